/** Messages under way between brokers: a comet along the great circle, coloured and shaped by kind. */
import type { Federation } from '../model/federation'
import { KINDS, type Kind, type Tick } from '../wire/messages'
import type { Camera } from './camera'
import type { Palette } from './palette'
import { dot, type Pen } from './pen'
import type { Scene } from './scene'
import { angle, greatCircle, toVector, type Vector } from './sphere'

const ARCS_MAX = 320
const POINTS = 25
const TAIL = 0.32
const LIFT = 0.3

interface Arc {
  kind: Kind
  points: Vector[]
  weight: number
  start: number
  duration: number
  screen: Float32Array
  seen: boolean[]
  version: number
}

export class Arcs {
  private arcs: Arc[] = []

  get active(): boolean {
    return this.arcs.length > 0
  }

  /** Start the messages of a tick, spread over its quarter of a second. */
  spawn(tick: Tick, federation: Federation, now: number): void {
    for (const [from, to, kind, count] of tick.flows ?? []) {
      const [a, b] = [federation.brokers.get(from), federation.brokers.get(to)]
      if (!a || !b || a === b || this.arcs.length >= ARCS_MAX) continue
      const [start, end] = [toVector(a.lat, a.lon), toVector(b.lat, b.lon)]
      const distance = angle(start, end)
      this.arcs.push({
        kind,
        points: lifted(start, end, distance),
        weight: Math.min(4, 1 + Math.log2(Math.max(1, count)) / 2),
        start: now + Math.random() * 250,
        duration: 700 + 500 * distance,
        screen: new Float32Array(POINTS * 2),
        seen: new Array<boolean>(POINTS).fill(false),
        version: -1,
      })
    }
  }

  clear(): void {
    this.arcs = []
  }

  draw(pen: Pen, camera: Camera, palette: Palette, { kinds, focused }: Scene, now: number): void {
    this.arcs = this.arcs.filter((arc) => now < arc.start + arc.duration * (1 + TAIL))
    const strength = focused ? 0.25 : 1
    for (const arc of this.arcs) if (arc.version !== camera.version) project(arc, camera)
    for (const kind of KINDS) {
      if (!kinds.has(kind)) continue
      const arcs = this.arcs.filter((arc) => arc.kind === kind && now >= arc.start)
      if (!arcs.length) continue
      pen.strokeStyle = palette.kinds[kind]
      pen.fillStyle = palette.kinds[kind]
      for (const [length, alpha, width] of COMET) {
        pen.beginPath()
        for (const arc of arcs) tail(pen, arc, (now - arc.start) / arc.duration, TAIL * length)
        pen.globalAlpha = alpha * strength
        pen.lineWidth = width
        pen.stroke()
      }
      pen.globalAlpha = strength
      pen.beginPath()
      for (const arc of arcs) head(pen, arc, (now - arc.start) / arc.duration)
      pen.fill()
    }
    pen.globalAlpha = 1
  }

  /** For those who want no motion: whole lines that fade. */
  drawStill(pen: Pen, camera: Camera, palette: Palette, { kinds, focused }: Scene, now: number): void {
    this.arcs = this.arcs.filter((arc) => now < arc.start + 900)
    pen.globalAlpha = focused ? 0.2 : 0.6
    pen.lineWidth = 1.2
    for (const arc of this.arcs) {
      if (!kinds.has(arc.kind)) continue
      if (arc.version !== camera.version) project(arc, camera)
      pen.strokeStyle = palette.kinds[arc.kind]
      pen.beginPath()
      tail(pen, arc, 1, 1)
      pen.stroke()
    }
    pen.globalAlpha = 1
  }
}

/** Long and faint, then short and strong: one comet in two strokes. */
const COMET: [length: number, alpha: number, width: number][] = [
  [1, 0.4, 1],
  [0.45, 0.85, 1.6],
]

function lifted(a: Vector, b: Vector, distance: number): Vector[] {
  return greatCircle(a, b, POINTS).map((point, index) => {
    const lift = 1 + LIFT * Math.min(0.8, distance * 0.5) * Math.sin((Math.PI * index) / (POINTS - 1))
    return [point[0] * lift, point[1] * lift, point[2] * lift]
  })
}

function project(arc: Arc, camera: Camera): void {
  arc.version = camera.version
  arc.points.forEach((point, index) => {
    arc.seen[index] = camera.vectorInto(point, arc.screen, index * 2)
    if (camera.isGlobe || index === 0) return
    const jump = Math.hypot(
      arc.screen[index * 2]! - arc.screen[index * 2 - 2]!,
      arc.screen[index * 2 + 1]! - arc.screen[index * 2 - 1]!,
    )
    if (jump > camera.scale) arc.seen[index] = false
  })
}

function tail(pen: Pen, arc: Arc, progress: number, length: number): void {
  const from = Math.max(0, progress - length) * (POINTS - 1)
  const to = Math.min(1, progress) * (POINTS - 1)
  if (to <= from) return
  let drawing = step(pen, arc, from, false)
  for (let index = Math.ceil(from + 1e-9); index < to; index += 1) drawing = step(pen, arc, index, drawing)
  step(pen, arc, to, drawing)
}

function step(pen: Pen, arc: Arc, position: number, drawing: boolean): boolean {
  if (!arc.seen[Math.min(POINTS - 1, Math.ceil(position))] || !arc.seen[Math.floor(position)]) return false
  const [x, y] = place(arc, position)
  if (drawing) pen.lineTo(x, y)
  else pen.moveTo(x, y)
  return true
}

function place(arc: Arc, position: number): [number, number] {
  const index = Math.min(POINTS - 2, Math.floor(position))
  const part = position - index
  const { screen } = arc
  return [
    screen[index * 2]! * (1 - part) + screen[index * 2 + 2]! * part,
    screen[index * 2 + 1]! * (1 - part) + screen[index * 2 + 3]! * part,
  ]
}

/** Kinds differ in shape as well as in colour. */
function head(pen: Pen, arc: Arc, progress: number): void {
  if (progress > 1) return
  const position = progress * (POINTS - 1)
  if (!arc.seen[Math.min(POINTS - 1, Math.ceil(position))] || !arc.seen[Math.floor(position)]) return
  const [x, y] = place(arc, position)
  mark(pen, arc.kind, x, y, 2 + arc.weight * 0.7)
}

export function mark(pen: Pen, kind: Kind, x: number, y: number, r: number): void {
  if (kind === 'event') dot(pen, x, y, r)
  else if (kind === 'subscription') pen.rect(x - r * 0.85, y - r * 0.85, r * 1.7, r * 1.7)
  else if (kind === 'delivery') polygon(pen, x, y, r * 1.25, 3, -Math.PI / 2)
  else if (kind === 'location') polygon(pen, x, y, r * 1.2, 4, 0)
  else {
    pen.rect(x - r, y - r * 0.3, r * 2, r * 0.6)
    pen.rect(x - r * 0.3, y - r, r * 0.6, r * 2)
  }
}

function polygon(pen: Pen, x: number, y: number, r: number, corners: number, turn: number): void {
  for (let corner = 0; corner < corners; corner += 1) {
    const [px, py] = [
      x + r * Math.cos(turn + (2 * Math.PI * corner) / corners),
      y + r * Math.sin(turn + (2 * Math.PI * corner) / corners),
    ]
    if (corner) pen.lineTo(px, py)
    else pen.moveTo(px, py)
  }
  pen.closePath()
}
