/** Messages by kind, one stacked bar per strategy, longest scale shared, numbers at the end. */
import { scaleLinear } from 'd3-scale'
import { short } from '../model/numbers'
import { strategyTitle } from '../model/strategies'
import { h, svg } from '../page/dom'
import { KINDS, type Kind } from '../wire/messages'

export interface Bar {
  strategy: string
  parts: Record<Kind, number>
  /** Shown as the one that runs or is chosen. */
  chosen: boolean
}

const WIDTH = 200
const HEIGHT = 14

export function stackedBars(
  bars: Bar[],
  options: { format?: (value: number) => string; choose?: (strategy: string) => void },
): HTMLElement {
  const total = (bar: Bar) => KINDS.reduce((sum, kind) => sum + bar.parts[kind], 0)
  const most = Math.max(1e-9, ...bars.map(total))
  const x = scaleLinear([0, most], [0, WIDTH])
  const format = options.format ?? short
  return h(
    'ul',
    { class: 'bars' },
    ...bars.map((bar) =>
      h(
        'li',
        { class: bar.chosen ? 'bar-row chosen' : 'bar-row' },
        title(bar, options.choose),
        stack(bar, x),
        h('span', { class: 'bar-total', title: partsText(bar, format) }, format(total(bar))),
        h('span', { class: 'only-read' }, partsText(bar, format)),
      ),
    ),
  )
}

function title(bar: Bar, choose?: (strategy: string) => void): HTMLElement {
  if (!choose) return h('span', { class: 'bar-name' }, strategyTitle(bar.strategy))
  return h(
    'button',
    { class: 'bar-name link', type: 'button', 'aria-pressed': String(bar.chosen), onclick: () => choose(bar.strategy) },
    strategyTitle(bar.strategy),
  )
}

function stack(bar: Bar, x: (value: number) => number): SVGElement {
  let before = 0
  const parts = KINDS.filter((kind) => bar.parts[kind] > 0).map((kind) => {
    const [left, width] = [x(before), x(bar.parts[kind])]
    before += bar.parts[kind]
    return svg('rect', { class: `fill-${kind}`, x: left, width: Math.max(0.5, width - 0.5), height: HEIGHT })
  })
  const box = { class: 'stack', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }
  return svg('svg', box, ...parts)
}

function partsText(bar: Bar, format: (value: number) => string): string {
  return KINDS.filter((kind) => bar.parts[kind] > 0)
    .map((kind) => `${kind} ${format(bar.parts[kind])}`)
    .join(', ')
}
