/** The still layer: earth and areas, then fences at rest, lines and names. Drawn when the view or the world changes. */
import { geoGraticule, geoPath } from 'd3-geo'
import type { Geometry, MultiPolygon } from 'geojson'
import type { Camera } from './camera'
import { CELL_COLOURS, type Cell } from './cells'
import { groupColours, groupOf } from './groups'
import { drawLines } from './lines'
import { shade, type Palette } from './palette'
import { FONT, type Pen } from './pen'
import type { Scene } from './scene'
import { fenceShape } from './sphere'

/** More fences than this at once tell nobody anything. */
const FENCES_MAX = 300
const FILLED_MAX = 150
const LABELS_MAX = 60
const LABELS_HASTY_MAX = 24
const UNGROUPED = -1
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

type Trace = (...shapes: (Geometry | { type: 'Sphere' })[]) => void

function tracer(pen: Pen, { camera, hasty }: Still): Trace {
  camera.projection.precision(hasty ? 1.2 : 0.5)
  const path = geoPath(camera.projection, pen as unknown as CanvasRenderingContext2D)
  return (...shapes) => {
    pen.beginPath()
    for (const shape of shapes) path(shape as Geometry)
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
  if (still.scene.layers.areas) drawAreas(pen, still, trace)
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
  if (still.scene.layers.areas) drawChosen(pen, still, trace)
  trace({ type: 'Sphere' })
  pen.strokeStyle = palette.oceanDeep
  pen.lineWidth = 1
  pen.stroke()
}

/** Fences come and go with subscriptions. */
export function drawOverlay(pen: Pen, still: Still): void {
  drawLines(pen, still.scene, still.camera, still.palette)
  if (!still.hasty && still.scene.layers.fences && !still.scene.focused) drawFences(pen, still, tracer(pen, still))
  if (still.scene.layers.labels) drawLabels(pen, still)
}

/** Areas of one colour are drawn at once: six strokes of the pen, not hundreds. */
function drawAreas(pen: Pen, { scene, cells, palette }: Still, trace: Trace): void {
  const groups = groupColours(scene.recorded)
  const colours = new Map<number, Cell[]>()
  for (const cell of cells) {
    const colour = groups ? (groups.get(groupOf(scene.recorded, cell.broker) ?? '') ?? UNGROUPED) : cell.colour
    colours.set(colour, [...(colours.get(colour) ?? []), cell])
  }
  pen.strokeStyle = palette.halo
  pen.lineWidth = 1
  for (const [colour, alike] of colours) {
    trace(...alike.map(({ shape }) => shape))
    pen.fillStyle = shade(palette, colour)
    pen.globalAlpha = groups ? (colour < CELL_COLOURS ? 0.36 : 0.18) : 0.2
    if (colour !== UNGROUPED) pen.fill()
    pen.globalAlpha = 0.55
    pen.stroke()
  }
  pen.globalAlpha = 1
}

function drawChosen(pen: Pen, { scene: { selection }, cells, palette }: Still, trace: Trace): void {
  const chosen = selection?.what === 'broker' && cells.find(({ broker }) => broker === selection.name)
  if (!chosen) return
  trace(chosen.shape)
  pen.fillStyle = shade(palette, chosen.colour)
  pen.globalAlpha = 0.25
  pen.fill()
  pen.globalAlpha = 0.9
  pen.strokeStyle = palette.select
  pen.lineWidth = 1.6
  pen.stroke()
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

/** The more there are, the fainter each: where many people listen stays visible, the map stays readable. */
function drawFences(pen: Pen, { scene, palette }: Still, trace: Trace): void {
  const fences = [...scene.federation.subscriptions.values()].flatMap((filters) =>
    [...filters.values()].filter((fence) => fence !== null),
  )
  pen.strokeStyle = palette.fence
  pen.fillStyle = palette.fence
  pen.lineWidth = 0.8
  const crowd = Math.min(fences.length, FENCES_MAX)
  for (const fence of fences.slice(0, FENCES_MAX)) {
    trace(fenceShape(fence))
    pen.globalAlpha = Math.min(0.05, 1.2 / crowd)
    if (crowd < FILLED_MAX) pen.fill()
    pen.globalAlpha = Math.max(0.12, Math.min(0.4, 24 / crowd))
    pen.stroke()
  }
  pen.globalAlpha = 1
}

/** Names of brokers, busiest first, each only where it covers no other. */
function drawLabels(pen: Pen, { camera, scene, palette, radius, hasty }: Still): void {
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
    if (labels >= (hasty ? LABELS_HASTY_MAX : LABELS_MAX)) break
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
