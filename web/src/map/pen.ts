/** What the layers draw with: the part of a canvas context that an SVG writer can offer too. */
export type Pen = Pick<
  CanvasRenderingContext2D,
  | 'beginPath'
  | 'moveTo'
  | 'lineTo'
  | 'closePath'
  | 'arc'
  | 'rect'
  | 'fill'
  | 'stroke'
  | 'fillText'
  | 'strokeText'
  | 'measureText'
  | 'setLineDash'
> & {
  fillStyle: string | CanvasGradient | CanvasPattern
  strokeStyle: string | CanvasGradient | CanvasPattern
  lineWidth: number
  lineJoin: CanvasLineJoin
  lineCap: CanvasLineCap
  globalAlpha: number
  font: string
  textAlign: CanvasTextAlign
  textBaseline: CanvasTextBaseline
}

export const FONT = '500 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'

export function dot(pen: Pen, x: number, y: number, radius: number): void {
  pen.moveTo(x + radius, y)
  pen.arc(x, y, radius, 0, 2 * Math.PI)
}
