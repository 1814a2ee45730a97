/** The last minute of a number as a line: no axes, one glance. */
import type { Series } from '../model/series'
import { svg } from '../page/dom'

const WIDTH = 120
const HEIGHT = 28

export class Sparkline {
  readonly element: SVGElement
  private readonly line = svg('path', { class: 'spark-line' })
  private readonly area = svg('path', { class: 'spark-area' })

  constructor(className: string) {
    this.element = svg(
      'svg',
      {
        class: `spark ${className}`,
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        preserveAspectRatio: 'none',
        'aria-hidden': 'true',
      },
      this.area,
      this.line,
    )
  }

  update(series: Series): void {
    const path = sparkPath(series, WIDTH, HEIGHT)
    this.line.setAttribute('d', path)
    const closed = path.includes('L') && !path.slice(1).includes('M')
    this.area.setAttribute('d', closed ? `${path}L${WIDTH},${HEIGHT}L${firstX(path)},${HEIGHT}Z` : '')
  }
}

const firstX = (path: string): string => path.slice(1, path.indexOf(','))

/** Right-aligned, four values averaged to one so that a tick's jitter does not dominate; gaps stay gaps. */
export function sparkPath(series: Series, width: number, height: number): string {
  const values = smoothed(series.toArray(), 4)
  const highest = Math.max(1e-9, ...values.filter((value) => !Number.isNaN(value)))
  const step = width / (series.capacity / 4 - 1)
  let path = ''
  let drawing = false
  values.forEach((value, index) => {
    if (Number.isNaN(value)) {
      drawing = false
      return
    }
    const x = width - (values.length - 1 - index) * step
    const y = height - 2 - (height - 4) * (value / highest)
    path += `${drawing ? 'L' : 'M'}${x.toFixed(1)},${y.toFixed(1)}`
    drawing = true
  })
  return path
}

function smoothed(values: number[], by: number): number[] {
  const result: number[] = []
  for (let end = values.length; end > 0; end -= by) {
    const part = values.slice(Math.max(0, end - by), end).filter((value) => !Number.isNaN(value))
    result.unshift(part.length ? part.reduce((sum, value) => sum + value, 0) / part.length : NaN)
  }
  return result
}
