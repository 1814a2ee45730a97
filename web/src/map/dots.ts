/** Clients and brokers as dots: where they are on the screen now, how they are drawn, which one is under the mouse. */
import type { Broker, Client, Federation } from '../model/federation'
import type { Camera } from './camera'
import { shade, type Palette } from './palette'
import { dot, type Pen } from './pen'
import type { Scene } from './scene'
import { toVector } from './sphere'

const GLIDE_MS = 700
/** Past this many, squares of three pixels: the eye sees no difference, the processor does. */
const ROUND_MAX = 600
const BROKER_MIN = 4.5
const BROKER_MAX = 11.5

interface Spot {
  x: number
  y: number
  seen: boolean
}
export type Picked = { what: 'broker'; name: string } | { what: 'client'; id: string }

export class Dots {
  private readonly clients = new Map<string, Spot & { client: Client; version: number; rest: boolean }>()
  private readonly brokers = new Map<string, Spot & { broker: Broker; radius: number }>()
  private readonly point = new Float32Array(2)
  gliding = false

  update(scene: Scene, camera: Camera, now: number, glide: boolean): void {
    const { federation } = scene
    this.gliding = false
    for (const id of this.clients.keys()) if (!federation.clients.has(id)) this.clients.delete(id)
    if (scene.layers.clients) for (const client of federation.clients.values()) this.place(client, camera, now, glide)
    else this.clients.clear()
    if (scene.dragged) {
      const spot = this.clients.get(scene.dragged.client)
      const at = camera.toScreen(...scene.dragged.at)
      if (spot && at) Object.assign(spot, { x: at[0], y: at[1], seen: true, version: -1 })
    }
    this.brokers.clear()
    const radius = brokerRadius(scene)
    for (const broker of federation.brokers.values()) {
      const seen = camera.vectorInto(toVector(broker.lat, broker.lon), this.point, 0)
      const [x, y] = [this.point[0]!, this.point[1]!]
      this.brokers.set(broker.name, { broker, radius: radius(broker), seen, x, y })
    }
  }

  private place(client: Client, camera: Camera, now: number, glide: boolean): void {
    if (!client.at) {
      this.clients.delete(client.id)
      return
    }
    let spot = this.clients.get(client.id)
    if (spot && spot.client === client && spot.rest && spot.version === camera.version) return
    if (!spot) this.clients.set(client.id, (spot = { client, x: 0, y: 0, seen: false, version: -1, rest: false }))
    const t = glide && client.from ? Math.min(1, (now - client.movedAt) / GLIDE_MS) : 1
    const part = t * (2 - t)
    const [lat, lon] = client.at
    const [fromLat, fromLon] = client.from ?? client.at
    const far = Math.abs(lon - fromLon) > 90
    spot.seen =
      part < 1 && !far
        ? camera.vectorInto(toVector(fromLat + (lat - fromLat) * part, fromLon + (lon - fromLon) * part), this.point, 0)
        : camera.vectorInto(toVector(lat, lon), this.point, 0)
    spot.client = client
    spot.x = this.point[0]!
    spot.y = this.point[1]!
    spot.version = camera.version
    spot.rest = t >= 1 || far
    if (!spot.rest) this.gliding = true
  }

  drawClients(pen: Pen, scene: Scene, camera: Camera, palette: Palette, colours: Map<string, number>): void {
    const round = this.clients.size <= ROUND_MAX
    const size = Math.min(4.5, 2.2 + Math.log2(Math.max(1, camera.zoom)) * 0.3) + (round ? 0.6 : 0)
    for (const colour of [...palette.cells, palette.neutral]) {
      pen.beginPath()
      for (const { client, x, y, seen } of this.clients.values()) {
        if (!seen || shade(palette, colours.get(client.home)) !== colour) continue
        if (round) dot(pen, x, y, size)
        else pen.rect(x - size / 2 - 0.5, y - size / 2 - 0.5, size + 1, size + 1)
      }
      pen.fillStyle = colour
      if (round) {
        pen.strokeStyle = palette.clientEdge
        pen.lineWidth = 1.6
        pen.stroke()
      }
      pen.fill()
    }
    pen.beginPath()
    for (const id of scene.highlight.clients) {
      const spot = this.clients.get(id)
      if (spot?.seen) dot(pen, spot.x, spot.y, size + 2.5)
    }
    pen.strokeStyle = palette.select
    pen.lineWidth = 1.5
    pen.stroke()
  }

  drawBrokers(pen: Pen, scene: Scene, palette: Palette, colours: Map<string, number>): void {
    for (const { broker, x, y, radius, seen } of this.brokers.values()) {
      if (!seen) continue
      const down = !broker.now.up
      pen.beginPath()
      dot(pen, x, y, radius)
      pen.fillStyle = down ? palette.halo : shade(palette, colours.get(broker.name))
      pen.fill()
      pen.strokeStyle = down ? palette.brokerDown : palette.broker
      pen.lineWidth = 2
      pen.stroke()
      if (down) cross(pen, x, y, radius * 0.5)
    }
    pen.beginPath()
    for (const name of scene.highlight.brokers) {
      const spot = this.brokers.get(name)
      if (spot?.seen) dot(pen, spot.x, spot.y, spot.radius + 5)
    }
    pen.strokeStyle = palette.select
    pen.lineWidth = 1.8
    pen.stroke()
  }

  /** The dot nearest to (x, y) within reach; brokers win over clients they cover. */
  pick(x: number, y: number, reach = 10): Picked | null {
    let best: Picked | null = null
    let nearest = Infinity
    for (const [name, spot] of this.brokers) {
      const distance = Math.hypot(spot.x - x, spot.y - y) - spot.radius
      if (spot.seen && distance < Math.min(nearest, reach / 2)) {
        nearest = distance
        best = { what: 'broker', name }
      }
    }
    if (nearest < 0) return best
    for (const [id, spot] of this.clients) {
      const distance = Math.hypot(spot.x - x, spot.y - y) - 2
      if (spot.seen && distance < Math.min(nearest, reach)) {
        nearest = distance
        best = { what: 'client', id }
      }
    }
    return best
  }

  radiusOf(broker: string): number {
    return this.brokers.get(broker)?.radius ?? BROKER_MIN
  }
}

function cross(pen: Pen, x: number, y: number, r: number): void {
  pen.beginPath()
  pen.moveTo(x - r, y - r)
  pen.lineTo(x + r, y + r)
  pen.moveTo(x + r, y - r)
  pen.lineTo(x - r, y + r)
  pen.stroke()
}

/** Area in proportion to load, against the busiest; smaller dots when there are many. */
function brokerRadius({ federation, load }: Scene): (broker: Broker) => number {
  const loadOf = (broker: Broker) => load?.get(broker.name) ?? smoothLoad(broker)
  const busiest = Math.max(1, ...[...federation.brokers.values()].map(loadOf))
  const crowd = crowding(federation)
  return (broker) => crowd * (BROKER_MIN + (BROKER_MAX - BROKER_MIN) * Math.sqrt(loadOf(broker) / busiest))
}

function smoothLoad(broker: Broker): number {
  const mean = broker.load.mean(8)
  return Number.isNaN(mean) ? 0 : mean
}

const crowding = (federation: Federation): number => Math.max(0.5, Math.min(1, 6 / Math.sqrt(federation.brokers.size)))
