/** A topic or filter: who subscribes to it and from where, and its recent events. */
import { clock, count } from '../model/numbers'
import { topicMatches } from '../model/topics'
import type { App } from '../page/app'
import { fill, h } from '../page/dom'
import type { DetailView } from './details'
import { brokerLink, clientLink, Facts, heading } from './facts'
import { fenceWords } from './fence_text'

const ROWS = 12

export function topicDetails(app: App, topic: string): DetailView {
  const facts = new Facts()
  const subscribers = h('ul', { class: 'tight' })
  const homes = h('ul', { class: 'tight' })
  const events = h('ul', { class: 'tight' })
  const lists = [subscribers, homes, events]
  let version = ''
  return {
    element: h(
      'div',
      { class: 'box' },
      heading('Topic', topic, app),
      facts.element,
      h('h3', {}, 'Subscribers by broker'),
      homes,
      h('h3', {}, 'Subscribers'),
      subscribers,
      h('h3', {}, 'Recent events'),
      events,
    ),
    update() {
      const { federation, map } = app
      const now = `${federation.subscriptionsVersion} ${federation.eventsVersion}`
      if (now === version || lists.some((list) => list.contains(document.activeElement))) return
      version = now
      const found = federation.subscribersOf((filter) => filter === topic || topicMatches(filter, topic))
      const recent = [...federation.events.values()].filter((event) => topicMatches(topic, event.topic)).reverse()
      map.scene.highlight.clients = new Set(found.map(({ client }) => client))
      map.scene.highlight.fences = found.flatMap(({ fence }) => (fence ? [fence] : []))
      facts.set('subscriptions', count(found.length))
      facts.set(
        'recent events',
        `${count(recent.length)}, ${count(recent.reduce((sum, event) => sum + event.delivered, 0))} deliveries`,
      )
      fill(homes, ...homesOf(app, found))
      fill(
        subscribers,
        ...found
          .slice(0, ROWS)
          .map(({ client, fence }) =>
            h(
              'li',
              {},
              clientLink(app, client),
              h('span', { class: 'quiet' }, ` from publishers ${fenceWords(fence)}`),
            ),
          ),
        more(found.length),
      )
      fill(
        events,
        ...recent
          .slice(0, ROWS)
          .map((event) =>
            h(
              'li',
              {},
              h(
                'button',
                { class: 'link', type: 'button', onclick: () => app.select({ what: 'event', id: event.id }) },
                `${clock(event.t)} ${event.client}`,
              ),
              h('span', { class: 'quiet' }, ` ${count(event.delivered)} deliveries`),
            ),
          ),
        more(recent.length),
      )
      map.wake()
    },
  }
}

function homesOf(app: App, found: { client: string }[]): HTMLElement[] {
  const counts = new Map<string, number>()
  for (const { client } of found) {
    const home = app.federation.clients.get(client)?.home
    if (home) counts.set(home, (counts.get(home) ?? 0) + 1)
  }
  const rows = [...counts].sort((a, b) => b[1] - a[1]).slice(0, ROWS)
  return rows.map(([name, clients]) =>
    h('li', {}, brokerLink(app, name), h('span', { class: 'quiet' }, ` ${count(clients)}`)),
  )
}

function more(total: number): HTMLElement | null {
  if (!total) return h('li', { class: 'quiet' }, 'none')
  return total > ROWS ? h('li', { class: 'quiet' }, `and ${count(total - ROWS)} more`) : null
}
