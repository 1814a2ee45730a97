/** Percentiles of a delay per strategy: a whisker from p5 to p95, a box from p25 to p75, a mark at the median. */
import { scaleLog } from 'd3-scale'
import { milliseconds } from '../model/numbers'
import { strategyTitle } from '../model/strategies'
import { h, svg } from '../page/dom'
import type { Spread } from '../wire/messages'

const WIDTH = 200
const HEIGHT = 16

export interface SpreadRow {
  strategy: string
  spread: Spread
  chosen: boolean
}

export function spreads(rows: SpreadRow[]): HTMLElement {
  const shown = rows.filter(({ spread }) => spread.count > 0)
  if (!shown.length) return h('p', { class: 'quiet' }, 'Nothing was delayed: no strategy sent such messages.')
  const lowest = Math.max(0.1, Math.min(...shown.map(({ spread }) => spread.p5 ?? Infinity)))
  const highest = Math.max(lowest * 2, ...shown.map(({ spread }) => spread.p99 ?? 0))
  const x = scaleLog([lowest, highest], [4, WIDTH - 4]).clamp(true)
  return h(
    'div',
    {},
    h(
      'ul',
      { class: 'bars' },
      ...rows.map(({ strategy, spread, chosen }) =>
        h(
          'li',
          { class: chosen ? 'bar-row chosen' : 'bar-row' },
          h('span', { class: 'bar-name' }, strategyTitle(strategy)),
          spread.count
            ? box(spread, (value) => x(Math.max(lowest, value ?? lowest)))
            : h('span', { class: 'stack quiet' }, 'none'),
          h('span', { class: 'bar-total', title: words(spread) }, milliseconds(spread.p50)),
          h('span', { class: 'only-read' }, words(spread)),
        ),
      ),
    ),
    h(
      'p',
      { class: 'quiet axis' },
      `Log scale, ${milliseconds(lowest)} to ${milliseconds(highest)}; box p25–p75, line p5–p95, number: median.`,
    ),
  )
}

function box(spread: Spread, x: (value: number | null) => number): SVGElement {
  const middle = HEIGHT / 2
  const [p5, p25, p50, p75, p95, p99] = [spread.p5, spread.p25, spread.p50, spread.p75, spread.p95, spread.p99].map(x)
  return svg(
    'svg',
    { class: 'stack', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    svg('line', { class: 'whisker', x1: p5, x2: p95, y1: middle, y2: middle }),
    svg('rect', { class: 'quartiles', x: p25, width: Math.max(1.5, p75! - p25!), y: 3, height: HEIGHT - 6 }),
    svg('rect', { class: 'median', x: p50! - 1, width: 2, y: 1, height: HEIGHT - 2 }),
    svg('circle', { class: 'tail', cx: p99, cy: middle, r: 1.6 }),
  )
}

function words(spread: Spread): string {
  if (!spread.count) return 'none'
  const parts = (['p5', 'p25', 'p50', 'p75', 'p95', 'p99'] as const).map(
    (name) => `${name} ${milliseconds(spread[name])}`,
  )
  return `${parts.join(', ')}, mean ${milliseconds(spread.mean)}`
}
