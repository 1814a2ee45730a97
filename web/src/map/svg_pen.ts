/** A pen that writes SVG, so that a download is drawn by the same layers as the screen. */
import type { Pen } from './pen'

const escape = (text: string) => text.replace(/[&<>"]/g, (mark) => `&#${mark.charCodeAt(0)};`)
const round = (value: number) => Math.round(value * 10) / 10

export class SvgPen implements Pen {
  fillStyle: string | CanvasGradient | CanvasPattern = '#000'
  strokeStyle: string | CanvasGradient | CanvasPattern = '#000'
  lineWidth = 1
  lineJoin: CanvasLineJoin = 'miter'
  lineCap: CanvasLineCap = 'butt'
  globalAlpha = 1
  font = ''
  textAlign: CanvasTextAlign = 'start'
  textBaseline: CanvasTextBaseline = 'alphabetic'
  private path = ''
  private dash: number[] = []
  private readonly elements: string[] = []

  constructor(private readonly ruler: CanvasRenderingContext2D) {}

  beginPath(): void {
    this.path = ''
  }
  moveTo(x: number, y: number): void {
    this.path += `M${round(x)},${round(y)}`
  }
  lineTo(x: number, y: number): void {
    this.path += `L${round(x)},${round(y)}`
  }
  closePath(): void {
    this.path += 'Z'
  }
  rect(x: number, y: number, width: number, height: number): void {
    this.path += `M${round(x)},${round(y)}h${round(width)}v${round(height)}h${round(-width)}Z`
  }
  /** Only whole circles are drawn here. */
  arc(x: number, y: number, radius: number): void {
    const [r, d] = [round(radius), round(radius * 2)]
    this.path += `M${round(x + radius)},${round(y)}a${r},${r} 0 1 1 ${-d},0a${r},${r} 0 1 1 ${d},0`
  }
  fill(): void {
    if (this.path) this.add(`<path d="${this.path}" fill="${this.colour(this.fillStyle)}"${this.opacity()}/>`)
  }
  stroke(): void {
    if (this.path) this.add(`<path d="${this.path}" fill="none" ${this.line()}/>`)
  }
  fillText(text: string, x: number, y: number): void {
    this.add(`<text ${this.type(x, y)} fill="${this.colour(this.fillStyle)}"${this.opacity()}>${escape(text)}</text>`)
  }
  strokeText(text: string, x: number, y: number): void {
    this.add(`<text ${this.type(x, y)} fill="none" ${this.line()}>${escape(text)}</text>`)
  }
  measureText(text: string): TextMetrics {
    this.ruler.font = this.font
    return this.ruler.measureText(text)
  }
  setLineDash(segments: number[]): void {
    this.dash = segments
  }

  document(width: number, height: number, title: string, background: string): string {
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`,
      `<title>${escape(title)}</title>`,
      `<rect width="${width}" height="${height}" fill="${background}"/>`,
      ...this.elements,
      '</svg>\n',
    ].join('\n')
  }

  private add(element: string): void {
    this.elements.push(element)
  }
  private colour(style: string | CanvasGradient | CanvasPattern): string {
    return typeof style === 'string' ? style : 'none'
  }
  private opacity(): string {
    return this.globalAlpha < 1 ? ` opacity="${round(this.globalAlpha * 100) / 100}"` : ''
  }
  private line(): string {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(' ')}"` : ''
    const shape = ` stroke-linejoin="${this.lineJoin}" stroke-linecap="${this.lineCap}"`
    return `stroke="${this.colour(this.strokeStyle)}" stroke-width="${this.lineWidth}"${shape}${dash}${this.opacity()}`
  }
  private type(x: number, y: number): string {
    const [, weight = '400', size = '12px', family = 'sans-serif'] = /^(\d+) (\S+) (.+)$/.exec(this.font) ?? []
    const anchor = { center: 'middle', right: 'end', end: 'end' }[this.textAlign as string] ?? 'start'
    const middle = this.textBaseline === 'middle' ? ' dominant-baseline="central"' : ''
    const face = `font-family="${escape(family)}" font-size="${size}" font-weight="${weight}"`
    return `x="${round(x)}" y="${round(y)}" ${face} text-anchor="${anchor}"${middle}`
  }
}
