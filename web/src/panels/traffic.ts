/** Messages between brokers by kind, and what clients publish, receive and wait: a minute of each as a line. */
import { Sparkline } from '../charts/sparkline'
import type { Federation } from '../model/federation'
import { milliseconds, rate, short } from '../model/numbers'
import type { Series } from '../model/series'
import { h, say } from '../page/dom'
import { KINDS } from '../wire/messages'

/** Rates are read over two seconds; a single tick is too nervous to read. */
const READ_TICKS = 8

interface Row {
  series: (federation: Federation) => Series
  spark: Sparkline
  value: HTMLElement
  total: HTMLElement | null
  totalOf: (federation: Federation) => string
  format: (value: number) => string
}

export class Traffic {
  readonly element: HTMLElement
  private readonly rows: Row[] = []

  constructor() {
    const kinds = KINDS.map((kind) =>
      this.row(
        kind,
        `kind-${kind}`,
        ({ rates }) => rates[kind],
        rate,
        ({ totals }) => short(totals[kind]),
      ),
    )
    const clients = [
      this.row('published', 'plain', ({ published }) => published, rate),
      this.row('delivered', 'plain', ({ delivered }) => delivered, rate),
      this.row('latency', 'plain', ({ latency }) => latency, milliseconds),
    ]
    this.element = h(
      'div',
      {},
      table('Messages between brokers', ['kind', 'last minute', 'per second', 'total'], kinds),
      table('Clients', ['what', 'last minute', 'now', ''], clients),
    )
  }

  update(federation: Federation): void {
    for (const row of this.rows) {
      const series = row.series(federation)
      row.spark.update(series)
      say(row.value, row.format(series.mean(READ_TICKS)))
      if (row.total) say(row.total, row.totalOf(federation))
    }
  }

  private row(
    name: string,
    className: string,
    series: Row['series'],
    format: Row['format'],
    totalOf?: Row['totalOf'],
  ): HTMLElement {
    const spark = new Sparkline(className)
    const value = h('td', { class: 'number strong' })
    const total = totalOf ? h('td', { class: 'number' }) : null
    this.rows.push({ series, spark, value, total, totalOf: totalOf ?? (() => ''), format })
    const label = className === 'plain' ? name : h('span', { class: `mark ${className}` }, name)
    return h('tr', {}, h('th', { scope: 'row' }, label), h('td', { class: 'spark-cell' }, spark.element), value, total)
  }
}

function table(caption: string, heads: string[], rows: HTMLElement[]): HTMLElement {
  const cells = heads
    .filter(Boolean)
    .map((head, index) => h('th', { scope: 'col', class: index > 1 ? 'number' : '' }, head))
  return h(
    'table',
    { class: 'traffic' },
    h('caption', {}, caption),
    h('thead', {}, h('tr', {}, ...cells)),
    h('tbody', {}, ...rows),
  )
}
