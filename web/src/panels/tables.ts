/** The map in words: every broker, and the clients one looks for. */
import type { Broker } from '../model/federation'
import { count, degrees, milliseconds, rate } from '../model/numbers'
import type { App } from '../page/app'
import { fill, h, say } from '../page/dom'

const CLIENTS_SHOWN = 50

export class BrokerTable {
  readonly element: HTMLElement
  private readonly body = h('tbody')
  private readonly summary = h('summary')
  private rows = new Map<string, { row: HTMLElement; cells: HTMLElement[] }>()
  private version = -1

  constructor(private readonly app: App) {
    const heads = ['broker', 'clients', 'sent/s', 'received/s', 'latency']
    this.element = h(
      'details',
      { class: 'box', open: true },
      this.summary,
      h(
        'div',
        { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Brokers' },
        h(
          'table',
          { class: 'list' },
          h(
            'thead',
            {},
            h('tr', {}, ...heads.map((head, index) => h('th', { scope: 'col', class: index ? 'number' : '' }, head))),
          ),
          this.body,
        ),
      ),
    )
  }

  update(): void {
    const { federation } = this.app
    if (this.version !== federation.worldVersion) this.rebuild()
    this.version = federation.worldVersion
    say(this.summary, `Brokers (${federation.brokers.size})`)
    for (const broker of federation.brokers.values()) {
      const cells = this.rows.get(broker.name)?.cells
      if (cells) valuesOf(broker).forEach((value, index) => say(cells[index]!, value))
    }
  }

  private rebuild(): void {
    this.rows = new Map()
    for (const broker of this.app.federation.brokers.values()) {
      const cells = valuesOf(broker).map(() => h('td', { class: 'number' }))
      const pick = () => this.app.select({ what: 'broker', name: broker.name })
      const name = h('button', { class: 'link', type: 'button', onclick: pick }, broker.name)
      this.rows.set(broker.name, { row: h('tr', {}, h('th', { scope: 'row' }, name), ...cells), cells })
    }
    fill(this.body, ...[...this.rows.values()].map(({ row }) => row))
  }
}

function valuesOf({ now }: Broker): string[] {
  if (!now.up) return ['down', '–', '–', '–']
  return [count(now.clients), rate(now.sent), rate(now.received), milliseconds(now.latency_ms)]
}

export class ClientTable {
  readonly element: HTMLElement
  private readonly body = h('tbody')
  private readonly summary = h('summary')
  private readonly search = h('input', {
    type: 'search',
    id: 'client-search',
    placeholder: 'part of a client id or broker',
    oninput: () => this.rebuild(),
  })
  private readonly more = h('p', { class: 'quiet' })
  private version = -1

  constructor(private readonly app: App) {
    this.element = h(
      'details',
      { class: 'box', ontoggle: () => this.rebuild() },
      this.summary,
      h('label', { for: 'client-search', class: 'only-read' }, 'Find a client'),
      this.search,
      h(
        'div',
        { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Clients' },
        h(
          'table',
          { class: 'list' },
          h('thead', {}, h('tr', {}, ...['client', 'home', 'location'].map((head) => h('th', { scope: 'col' }, head)))),
          this.body,
        ),
      ),
      this.more,
    )
  }

  update(): void {
    const { federation } = this.app
    say(this.summary, `Clients (${count(federation.clients.size)})`)
    if (this.version === federation.clientsVersion || this.body.contains(document.activeElement)) return
    this.version = federation.clientsVersion
    this.rebuild()
  }

  private rebuild(): void {
    if (!(this.element as HTMLDetailsElement).open) return
    const wanted = this.search.value.trim().toLowerCase()
    const found = [...this.app.federation.clients.values()].filter(
      ({ id, home }) => id.toLowerCase().includes(wanted) || home.toLowerCase().includes(wanted),
    )
    const rows = found.slice(0, CLIENTS_SHOWN).map(({ id, home, at }) => {
      const pick = () => this.app.select({ what: 'client', id })
      const place = at ? degrees(...at) : 'unknown'
      const name = h('button', { class: 'link', type: 'button', onclick: pick }, id)
      return h('tr', {}, h('th', { scope: 'row' }, name), h('td', {}, home), h('td', {}, place))
    })
    fill(this.body, ...rows)
    const left = found.length - rows.length
    say(this.more, left > 0 ? `and ${count(left)} more; type to narrow them down.` : '')
  }
}
