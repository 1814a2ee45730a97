/** Recent events, newest first, found by topic. Rows stay while they are looked at. */
import { clock, count } from '../model/numbers'
import { topicSearch } from '../model/topics'
import type { App, Panel } from '../page/app'
import { fill, h, say } from '../page/dom'
import type { EventSeen } from '../wire/messages'

const SHOWN = 80

export class Events implements Panel {
  readonly element: HTMLElement
  private readonly list = h('ul', { class: 'events' })
  private readonly filter = h('input', {
    type: 'search',
    id: 'event-filter',
    placeholder: 'weather/# or part of a topic',
    oninput: () => this.redraw(),
  })
  private readonly paused = h('input', { type: 'checkbox', id: 'event-pause' })
  private readonly status = h('p', { class: 'quiet', role: 'status' })
  private version = -1

  constructor(private readonly app: App) {
    this.element = h(
      'div',
      { class: 'panel' },
      h(
        'div',
        { class: 'box' },
        h('h2', {}, 'Recent events'),
        h(
          'div',
          { class: 'inline' },
          h('label', { for: 'event-filter', class: 'only-read' }, 'Only topics'),
          this.filter,
          h('label', { for: 'event-pause', class: 'check' }, this.paused, 'Pause'),
        ),
        this.status,
        this.list,
      ),
    )
  }

  update(): void {
    const { federation } = this.app
    if (this.version === federation.eventsVersion || this.paused.checked) return
    if (this.list.contains(document.activeElement)) return
    if (this.pointedAt) return say(this.status, 'Held while you point at it.')
    this.version = federation.eventsVersion
    this.redraw()
  }

  selectionChanged(): void {
    const { selection } = this.app
    const id = selection?.what === 'event' ? selection.id : null
    for (const row of this.list.children) row.classList.toggle('chosen', (row as HTMLElement).dataset['id'] === id)
  }

  /** Rows that moved under the pointer would have it hit another event than the one aimed at. */
  private get pointedAt(): boolean {
    return this.list.matches(matchMedia('(hover: hover)').matches ? ':hover' : ':active')
  }

  private redraw(): void {
    const matches = topicSearch(this.filter.value)
    const events = [...this.app.federation.events.values()].filter(({ topic }) => matches(topic)).reverse()
    fill(this.list, ...events.slice(0, SHOWN).map((event) => this.row(event)))
    this.selectionChanged()
    const known = this.app.federation.events.size
    if (!known) say(this.status, 'No event yet. Publish one under “Try it”, or with geomq pub.')
    else if (!events.length) say(this.status, `None of the last ${count(known)} events matches.`)
    else say(this.status, `${count(events.length)} of the last ${count(known)} events`)
  }

  private row(event: EventSeen): HTMLElement {
    const reached = event.delivered === 1 ? '1 delivery' : `${count(event.delivered)} deliveries`
    return h(
      'li',
      { 'data-id': event.id },
      h(
        'button',
        { type: 'button', class: 'event', onclick: () => this.app.select({ what: 'event', id: event.id }) },
        h('span', { class: 'topic' }, event.topic),
        h('span', { class: event.delivered ? 'badge' : 'badge none' }, reached),
        h(
          'span',
          { class: 'quiet' },
          `${clock(event.t)} · ${event.client} at ${event.home}${event.fence ? ' · fenced' : ''}`,
        ),
      ),
    )
  }
}
