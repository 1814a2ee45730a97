/** Lines between brokers at rest: links, and those of a recorded layer, coloured by what they stand for. */
import type { Camera } from './camera'
import type { Palette } from './palette'
import type { Pen } from './pen'
import type { Scene } from './scene'
import { angle, greatCircle, toVector, type Vector } from './sphere'

const LINKS_MAX = 400
const RECORDED_MAX = 4000

export interface LineStyle {
  colour: string
  width: number
  alpha: number
}

export function lineStyle(kind: string, palette: Palette): LineStyle {
  const { kinds, ink, inkSoft } = palette
  const styles: Record<string, LineStyle> = {
    event: { colour: kinds.event, width: 1.4, alpha: 0.8 },
    subscription: { colour: kinds.subscription, width: 1.4, alpha: 0.8 },
    delivery: { colour: kinds.delivery, width: 1.4, alpha: 0.8 },
    row: { colour: kinds.subscription, width: 1.6, alpha: 0.9 },
    column: { colour: kinds.event, width: 1.6, alpha: 0.9 },
    member: { colour: ink, width: 1.1, alpha: 0.6 },
    overlay: { colour: inkSoft, width: 0.8, alpha: 0.45 },
    mesh: { colour: kinds.delivery, width: 2, alpha: 0.95 },
  }
  return styles[kind] ?? { colour: ink, width: 0.9, alpha: 0.35 }
}

export function drawLines(pen: Pen, scene: Scene, camera: Camera, palette: Palette): void {
  const { federation, recorded, selection, layers } = scene
  const chosen = selection?.what === 'broker' ? selection.name : null
  const links = federation.links.filter(([from, to]) => layers.links || from === chosen || to === chosen)
  for (const [from, to] of links.slice(0, LINKS_MAX)) line(pen, scene, camera, from, to, lineStyle('link', palette), 1)
  const most = Math.max(1, ...(recorded?.lines.map(([, , , weight]) => weight ?? 1) ?? []))
  for (const [from, to, kind, weight] of recorded?.lines.slice(0, RECORDED_MAX) ?? []) {
    const share = weight === undefined ? 1 : 0.4 + 2 * Math.sqrt(weight / most)
    line(pen, scene, camera, from, to, lineStyle(kind, palette), share)
  }
  pen.globalAlpha = 1
}

function line(pen: Pen, scene: Scene, camera: Camera, from: string, to: string, style: LineStyle, share: number): void {
  const { brokers } = scene.federation
  const [a, b] = [brokers.get(from), brokers.get(to)]
  if (!a || !b) return
  pen.strokeStyle = style.colour
  pen.lineWidth = style.width * share
  pen.globalAlpha = style.alpha
  strokeGreatCircle(pen, camera, toVector(a.lat, a.lon), toVector(b.lat, b.lon))
}

const scratch = new Float32Array(2)

export function strokeGreatCircle(pen: Pen, camera: Camera, a: Vector, b: Vector): void {
  const points = greatCircle(a, b, 2 + Math.ceil(angle(a, b) * 14))
  pen.beginPath()
  let drawing = false
  let [lastX, lastY] = [0, 0]
  for (const point of points) {
    const seen = camera.vectorInto(point, scratch, 0)
    const [x, y] = [scratch[0]!, scratch[1]!]
    const jumps = drawing && !camera.isGlobe && Math.hypot(x - lastX, y - lastY) > camera.scale
    if (!seen) drawing = false
    else if (!drawing || jumps) {
      pen.moveTo(x, y)
      drawing = true
    } else pen.lineTo(x, y)
    lastX = x
    lastY = y
  }
  pen.stroke()
}
