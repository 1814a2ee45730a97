/** A client: where it is, what it subscribed to; moving it by typing does what dragging it does. */
import { count, degrees } from '../model/numbers'
import { whyNot, type App } from '../page/app'
import { fill, h, say } from '../page/dom'
import { putClient } from '../page/moving'
import type { ClientDetails } from '../wire/messages'
import { getClient } from '../wire/requests'
import type { DetailView } from './details'
import { brokerLink, Facts, heading, showButton, topicLink } from './facts'
import { fenceWords, placeFromText, placeToText } from './fence_text'

const REFRESH_MS = 2000

export function clientDetails(app: App, id: string): DetailView {
  const facts = new Facts()
  const subscriptions = h('ul', { class: 'tight' })
  const mover = new Mover(app, id)
  let asked = -Infinity
  app.map.scene.highlight.clients.add(id)
  const refresh = () => {
    if (!app.live || performance.now() - asked < REFRESH_MS) return
    asked = performance.now()
    void getClient(id).then(
      (details) => tell(details),
      () => undefined,
    )
  }
  const tell = (details: ClientDetails) => {
    facts.set('published', `${count(details.published)} events`)
    facts.set('delivered', `${count(details.delivered)} events`)
    facts.set('state', details.connected ? 'connected' : 'away; its session is kept')
  }
  const show = showButton(app, () => app.federation.clients.get(id)?.at ?? null)
  let home: string | undefined
  let version = -1
  return {
    element: h(
      'div',
      { class: 'box' },
      heading('Client', id, app),
      facts.element,
      show,
      h('h3', {}, 'Subscriptions'),
      subscriptions,
      mover.element,
    ),
    update() {
      const client = app.federation.clients.get(id)
      show.disabled = !client?.at
      if (client && client.home !== home) facts.set('home', brokerLink(app, (home = client.home)))
      facts.set('location', client ? (client.at ? degrees(...client.at) : 'unknown') : 'gone')
      mover.update()
      refresh()
      if (version === app.federation.subscriptionsVersion || subscriptions.contains(document.activeElement)) return
      version = app.federation.subscriptionsVersion
      const filters = [...(app.federation.subscriptions.get(id) ?? [])]
      app.map.scene.highlight.fences = filters.flatMap(([, fence]) => (fence ? [fence] : []))
      fill(
        subscriptions,
        ...filters.map(([filter, fence]) =>
          h('li', {}, topicLink(app, filter), h('span', { class: 'quiet' }, ` from publishers ${fenceWords(fence)}`)),
        ),
        filters.length ? null : h('li', { class: 'quiet' }, 'none'),
      )
    },
  }
}

class Mover {
  readonly element: HTMLElement
  private readonly place = h('input', { id: 'move-place', type: 'text', autocomplete: 'off', placeholder: 'lat,lon' })
  private readonly button = h('button', { type: 'submit' }, 'Move')
  private readonly note = h('p', { class: 'quiet reason' })

  constructor(
    private readonly app: App,
    private readonly id: string,
  ) {
    const at = app.federation.clients.get(id)?.at ?? null
    this.place.value = placeToText(at)
    this.element = h(
      'form',
      { class: 'mover', onsubmit: (event: Event) => void this.move(event) },
      h('label', { for: 'move-place' }, 'Move it to'),
      h('div', { class: 'inline' }, this.place, this.button),
      this.note,
    )
  }

  update(): void {
    const client = this.app.federation.clients.get(this.id)
    const reason =
      whyNot(this.app) ??
      (client?.movable === false ? 'Only demo clients and the page’s own can be moved from here.' : null)
    this.place.disabled = this.button.disabled = reason !== null
    say(this.note, reason ?? 'Or drag it on the map.')
  }

  private async move(event: Event): Promise<void> {
    event.preventDefault()
    const place = placeFromText(this.place.value)
    if (place === null || typeof place === 'string')
      return this.app.tell(place ?? 'Type a location as lat,lon.', 'failed')
    if (await putClient(this.app, this.id, place)) this.app.tell(`Moved ${this.id} to ${degrees(...place)}.`)
  }
}
