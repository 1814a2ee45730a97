/** What the person chose or draws: highlighted fences and lines, the fence in hand, the crosshair, the scale bar. */
import { geoPath } from 'd3-geo'
import { metres } from '../model/numbers'
import type { Fence } from '../wire/messages'
import type { Camera } from './camera'
import type { Palette } from './palette'
import { dot, FONT, type Pen } from './pen'
import type { Draft, Scene } from './scene'
import { EARTH_RADIUS_M, fenceShape, toVector } from './sphere'
import { strokeGreatCircle } from './lines'

export function drawMarks(pen: Pen, scene: Scene, camera: Camera, palette: Palette): void {
  const { highlight, draft, fence, here } = scene
  for (const shown of highlight.fences.slice(0, 60)) drawFence(pen, camera, shown, palette.select, [])
  highlight.lines.forEach(([from, to, kind]) => {
    pen.strokeStyle = kind ? palette.kinds[kind] : palette.select
    pen.lineWidth = 2
    strokeGreatCircle(pen, camera, toVector(...from), toVector(...to))
  })
  if (fence) drawFence(pen, camera, fence, palette.own, [6, 4])
  if (draft) drawDraft(pen, camera, draft, palette)
  const at = here && camera.toScreen(...here)
  if (at) drawHere(pen, at, palette)
  if (scene.crosshair) drawCrosshair(pen, camera, palette)
  drawScale(pen, camera, palette)
}

function drawFence(pen: Pen, camera: Camera, fence: Fence, colour: string, dash: number[]): void {
  pen.beginPath()
  geoPath(camera.projection, pen as unknown as CanvasRenderingContext2D)(fenceShape(fence))
  pen.fillStyle = colour
  pen.strokeStyle = colour
  pen.globalAlpha = 0.14
  pen.fill()
  pen.globalAlpha = 1
  pen.lineWidth = 1.8
  pen.setLineDash(dash)
  pen.stroke()
  pen.setLineDash([])
}

function drawDraft(pen: Pen, camera: Camera, draft: Draft, palette: Palette): void {
  if (draft.tool === 'circle') {
    drawFence(pen, camera, { type: 'Circle', center: draft.centre, radius_m: draft.radius_m }, palette.own, [6, 4])
    const at = camera.toScreen(...draft.centre)
    if (!at) return
    pen.fillStyle = palette.own
    pen.beginPath()
    dot(pen, at[0], at[1], 3)
    pen.fill()
    text(pen, metres(draft.radius_m), at[0] + 8, at[1] - 8, palette)
    return
  }
  const corners = draft.cursor ? [...draft.corners, draft.cursor] : draft.corners
  pen.strokeStyle = palette.own
  pen.fillStyle = palette.own
  pen.lineWidth = 1.8
  pen.setLineDash([6, 4])
  pen.beginPath()
  corners.forEach((corner, index) => {
    const at = camera.toScreen(...corner)
    if (at && index) pen.lineTo(at[0], at[1])
    else if (at) pen.moveTo(at[0], at[1])
  })
  if (corners.length > 2) pen.closePath()
  pen.stroke()
  pen.setLineDash([])
  pen.beginPath()
  for (const corner of draft.corners) {
    const at = camera.toScreen(...corner)
    if (at) dot(pen, at[0], at[1], 4)
  }
  pen.fill()
}

function drawHere(pen: Pen, [x, y]: [number, number], palette: Palette): void {
  pen.beginPath()
  dot(pen, x, y, 5)
  pen.fillStyle = palette.own
  pen.fill()
  pen.strokeStyle = palette.halo
  pen.lineWidth = 2
  pen.stroke()
  text(pen, 'you', x + 9, y, palette)
}

function drawCrosshair(pen: Pen, camera: Camera, palette: Palette): void {
  const [x, y] = [camera.width / 2, camera.height / 2]
  pen.beginPath()
  pen.moveTo(x - 14, y)
  pen.lineTo(x + 14, y)
  pen.moveTo(x, y - 14)
  pen.lineTo(x, y + 14)
  pen.strokeStyle = palette.ink
  pen.lineWidth = 1.5
  pen.stroke()
}

/** A round distance at the centre of the view, once the view is small enough for one scale to hold. */
function drawScale(pen: Pen, camera: Camera, palette: Palette): void {
  const metresPerPixel = EARTH_RADIUS_M / camera.scale / stretch(camera)
  const wanted = 110 * metresPerPixel
  if (wanted > 2_000_000) return
  const power = 10 ** Math.floor(Math.log10(wanted))
  const nice = [5, 2, 1].map((factor) => factor * power).find((length) => length <= wanted) ?? power
  const [x, y] = [16, camera.height - 16]
  pen.beginPath()
  pen.moveTo(x, y - 5)
  pen.lineTo(x, y)
  pen.lineTo(x + nice / metresPerPixel, y)
  pen.lineTo(x + nice / metresPerPixel, y - 5)
  pen.strokeStyle = palette.ink
  pen.lineWidth = 1.2
  pen.stroke()
  text(pen, metres(nice), x + nice / metresPerPixel + 6, y - 3, palette)
}

const stretch = ({ name, lat }: Camera): number =>
  name === 'mercator' || name === 'plate' ? 1 / Math.max(0.1, Math.cos((lat * Math.PI) / 180)) : 1

function text(pen: Pen, words: string, x: number, y: number, palette: Palette): void {
  pen.font = FONT
  pen.textAlign = 'left'
  pen.textBaseline = 'middle'
  pen.strokeStyle = palette.halo
  pen.lineWidth = 3
  pen.strokeText(words, x, y)
  pen.fillStyle = palette.ink
  pen.fillText(words, x, y)
}
