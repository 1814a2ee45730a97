/** A broker: its load, its links, its clients. */
import { Sparkline } from '../charts/sparkline'
import { count, degrees, milliseconds, rate } from '../model/numbers'
import type { App } from '../page/app'
import { fill, h } from '../page/dom'
import type { Place } from '../wire/messages'
import type { DetailView } from './details'
import { brokerLink, clientLink, Facts, heading, showButton } from './facts'

const CLIENTS_SHOWN = 12

export function brokerDetails(app: App, name: string): DetailView {
  const facts = new Facts()
  const load = new Sparkline('plain')
  const latency = new Sparkline('plain')
  const links = h('ul', { class: 'tight columns' })
  const clients = h('ul', { class: 'tight columns' })
  let listed = ''
  app.map.scene.highlight.brokers.add(name)
  return {
    element: h(
      'div',
      { class: 'box' },
      heading('Broker', name, app),
      facts.element,
      showButton(app, () => placeOf(app, name)),
      h(
        'div',
        { class: 'pair sparks' },
        h('div', {}, h('h3', {}, 'Load'), load.element),
        h('div', {}, h('h3', {}, 'Latency'), latency.element),
      ),
      h('h3', {}, 'Links'),
      links,
      h('h3', {}, 'Clients'),
      clients,
    ),
    update() {
      const broker = app.federation.brokers.get(name)
      if (!broker) return facts.set('state', 'gone')
      const { now } = broker
      facts.set('state', now.up ? 'up' : 'down')
      facts.set('location', degrees(broker.lat, broker.lon))
      if (broker.address) facts.set('address', h('code', {}, broker.address))
      facts.set('published', `${rate(now.published)} /s`)
      facts.set('delivered', `${rate(now.delivered)} /s`)
      facts.set('sent to peers', `${rate(now.sent)} /s`)
      facts.set('received from peers', `${rate(now.received)} /s`)
      facts.set('latency', milliseconds(now.latency_ms))
      load.update(broker.load)
      latency.update(broker.latency)
      const own = [...app.federation.clients.values()].filter(({ home }) => home === name)
      const peers = app.federation.links.filter(([from, to]) => from === name || to === name)
      const key =
        own
          .slice(0, CLIENTS_SHOWN)
          .map(({ id }) => id)
          .join() +
        own.length +
        JSON.stringify(peers)
      if (key === listed || links.contains(document.activeElement) || clients.contains(document.activeElement)) return
      listed = key
      fill(links, ...linkRows(app, name, peers))
      fill(
        clients,
        ...own.slice(0, CLIENTS_SHOWN).map(({ id }) => h('li', {}, clientLink(app, id))),
        own.length > CLIENTS_SHOWN
          ? h('li', { class: 'quiet' }, `and ${count(own.length - CLIENTS_SHOWN)} more`)
          : null,
        own.length ? null : h('li', { class: 'quiet' }, 'none'),
      )
    },
  }
}

function placeOf(app: App, name: string): Place | null {
  const broker = app.federation.brokers.get(name)
  return broker ? [broker.lat, broker.lon] : null
}

function linkRows(app: App, name: string, links: [string, string, number | null][]): HTMLElement[] {
  const peers = new Map<string, number | null>()
  for (const [from, to, latency] of links) peers.set(from === name ? to : from, latency)
  if (!peers.size) return [h('li', { class: 'quiet' }, 'none')]
  return [...peers]
    .slice(0, 20)
    .map(([peer, latency]) =>
      h('li', {}, brokerLink(app, peer), h('span', { class: 'quiet' }, ` ${milliseconds(latency)}`)),
    )
}
