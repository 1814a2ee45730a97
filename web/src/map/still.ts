/** The still layer: earth and areas, then fences at rest, lines and names. Drawn when the view or the world changes. */
import { geoGraticule, geoPath } from 'd3-geo'
import type { Geometry, MultiPolygon } from 'geojson'
import type { Camera } from './camera'
import type { Cell } from './cells'
import { groupColours, groupOf } from './groups'
import type { Palette } from './palette'
import { FONT, type Pen } from './pen'
import type { Scene } from './scene'
import { angle, fenceShape, greatCircle, toVector, type Vector } from './sphere'

/** More fences than this at once tell nobody anything. */
const FENCES_MAX = 400
const LABELS_MAX = 60
const LINKS_MAX = 400
const LABEL_GAP_PX = 5

export interface Still {
  camera: Camera
  scene: Scene
  palette: Palette
  cells: Cell[]
  land: MultiPolygon
  /** How large a broker's dot is; its name stands beside it. */
  radius: (broker: string) => number
  /** While the view moves: fewer points, no fences. */
  hasty: boolean
}

type Trace = (shape: Geometry | { type: 'Sphere' }) => void

function tracer(pen: Pen, { camera, hasty }: Still): Trace {
  camera.projection.precision(hasty ? 1.2 : 0.5)
  const path = geoPath(camera.projection, pen as unknown as CanvasRenderingContext2D)
  return (shape) => {
    pen.beginPath()
    path(shape as Geometry)
  }
}

/** What costs most and changes least; kept as a picture. */
export function drawEarth(pen: Pen, still: Still): void {
  const { camera, palette, hasty } = still
  const trace = tracer(pen, still)
  pen.lineJoin = 'round'
  trace({ type: 'Sphere' })
  pen.fillStyle = palette.ocean
  pen.fill()
  drawAreas(pen, still, trace)
  trace(still.land)
  pen.fillStyle = palette.land
  pen.fill()
  pen.strokeStyle = palette.coast
  pen.lineWidth = 0.7
  pen.stroke()
  if (!hasty) {
    trace(graticule(camera))
    pen.strokeStyle = palette.graticule
    pen.lineWidth = 0.6
    pen.stroke()
  }
  if (still.scene.layers.areas) drawBorders(pen, still, trace)
  trace({ type: 'Sphere' })
  pen.strokeStyle = palette.oceanDeep
  pen.lineWidth = 1
  pen.stroke()
}

/** Fences come and go with subscriptions. */
export function drawOverlay(pen: Pen, still: Still): void {
  drawLines(pen, still)
  if (!still.hasty && still.scene.layers.fences) drawFences(pen, still, tracer(pen, still))
  if (still.scene.layers.labels) drawLabels(pen, still)
}

function drawAreas(pen: Pen, { scene, cells, palette }: Still, trace: Trace): void {
  if (!scene.layers.areas) return
  const groups = scene.recorded && groupColours(scene.recorded)
  for (const cell of cells) {
    const colour = groups ? groups.get(groupOf(scene.recorded!, cell.broker) ?? '') : cell.colour
    if (colour === undefined) continue
    trace(cell.shape)
    pen.fillStyle = palette.cells[colour % palette.cells.length]!
    const chosen = scene.selection?.what === 'broker' && scene.selection.name === cell.broker
    pen.globalAlpha = chosen ? 0.42 : groups ? 0.34 : 0.2
    pen.fill()
  }
  pen.globalAlpha = 1
}

function drawBorders(pen: Pen, { scene, cells, palette }: Still, trace: Trace): void {
  for (const cell of cells) {
    const chosen = scene.selection?.what === 'broker' && scene.selection.name === cell.broker
    trace(cell.shape)
    pen.strokeStyle = chosen ? palette.select : palette.halo
    pen.globalAlpha = chosen ? 0.9 : 0.55
    pen.lineWidth = chosen ? 1.6 : 1
    pen.stroke()
  }
  pen.globalAlpha = 1
}

function graticule(camera: Camera): Geometry {
  const step = [30, 15, 10, 5, 2, 1, 0.5, 0.2, 0.1].find((degrees) => degrees * camera.scale < 5200) ?? 0.1
  const lines = geoGraticule()
  if (step >= 10) return lines.step([step, step])()
  const reach = Math.min(60, (camera.width / camera.scale) * 60)
  const cut = (value: number) => Math.round(value / step) * step
  const [west, east] = [cut(camera.lon - reach), cut(camera.lon + reach)]
  const [south, north] = [Math.max(-90, cut(camera.lat - reach)), Math.min(90, cut(camera.lat + reach))]
  return lines
    .extent([
      [west, south],
      [east, north + 1e-6],
    ])
    .step([step, step])()
}

function drawFences(pen: Pen, { scene, palette }: Still, trace: Trace): void {
  let left = FENCES_MAX
  pen.strokeStyle = palette.fence
  pen.fillStyle = palette.fence
  pen.lineWidth = 0.8
  for (const filters of scene.federation.subscriptions.values())
    for (const fence of filters.values()) {
      if (!fence || left-- <= 0) continue
      trace(fenceShape(fence))
      pen.globalAlpha = 0.05
      pen.fill()
      pen.globalAlpha = 0.4
      pen.stroke()
    }
  pen.globalAlpha = 1
}

function drawLines(pen: Pen, { camera, scene, palette }: Still): void {
  const { federation, recorded, selection, layers } = scene
  let lines = recorded?.lines.map(([from, to]) => [from, to] as [string, string]) ?? []
  if (layers.links) lines = lines.concat(federation.links.map(([from, to]) => [from, to]))
  if (selection?.what === 'broker')
    lines = lines.concat(
      federation.links
        .filter(([from, to]) => from === selection.name || to === selection.name)
        .map(([from, to]) => [from, to]),
    )
  pen.strokeStyle = palette.ink
  pen.lineWidth = recorded ? 1.2 : 0.8
  pen.globalAlpha = recorded ? 0.6 : 0.35
  for (const [from, to] of lines.slice(0, recorded ? 4000 : LINKS_MAX)) {
    const [a, b] = [federation.brokers.get(from), federation.brokers.get(to)]
    if (a && b) strokeGreatCircle(pen, camera, toVector(a.lat, a.lon), toVector(b.lat, b.lon))
  }
  pen.globalAlpha = 1
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

/** Names of brokers, busiest first, each only where it covers no other. */
function drawLabels(pen: Pen, { camera, scene, palette, radius }: Still): void {
  const { brokers } = scene.federation
  const taken: Box[] = []
  let labels = 0
  const busiest = [...brokers.values()].sort((a, b) => b.now.sent + b.now.received - a.now.sent - a.now.received)
  const chosen = scene.selection?.what === 'broker' ? scene.selection.name : null
  busiest.sort((a, b) => Number(b.name === chosen) - Number(a.name === chosen))
  pen.font = FONT
  pen.textBaseline = 'middle'
  pen.textAlign = 'left'
  for (const broker of busiest) {
    if (labels >= LABELS_MAX) break
    const at = camera.toScreen(broker.lat, broker.lon)
    if (!at || at[0] < 0 || at[1] < 0 || at[0] > camera.width || at[1] > camera.height) continue
    const width = pen.measureText(broker.name).width
    const gap = radius(broker.name) + LABEL_GAP_PX
    const y = at[1] + 1
    const left = [at[0] + gap, at[0] - gap - width].find((x) => {
      const box: Box = [x - 2, y - 9, x + width + 2, y + 9]
      return !taken.some((other) => overlaps(box, other))
    })
    if (left === undefined) continue
    const x = left
    taken.push([x - 2, y - 9, x + width + 2, y + 9], [at[0] - 7, y - 7, at[0] + 7, y + 7])
    labels += 1
    pen.strokeStyle = palette.halo
    pen.lineWidth = 3
    pen.strokeText(broker.name, x, y)
    pen.fillStyle = palette.ink
    pen.fillText(broker.name, x, y)
  }
}

type Box = [left: number, top: number, right: number, bottom: number]

function overlaps(a: Box, b: Box): boolean {
  return a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}
