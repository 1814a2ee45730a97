/** The shapes that all detail views share: a heading with its kind, and a list of facts. */
import type { App } from '../page/app'
import type { Place } from '../wire/messages'
import { h, say, type Child } from '../page/dom'

const SHOW_ZOOM = 40

export function heading(kind: string, name: string, app: App): HTMLElement {
  return h(
    'header',
    { class: 'detail-head' },
    h('p', { class: 'overline' }, kind),
    h('h2', {}, name),
    h(
      'button',
      { type: 'button', class: 'close', 'aria-label': 'Close details', onclick: () => app.select(null) },
      '✕',
    ),
  )
}

export class Facts {
  readonly element = h('dl', { class: 'facts' })
  private readonly values = new Map<string, HTMLElement>()

  set(name: string, value: Child): void {
    let cell = this.values.get(name)
    if (!cell) {
      cell = h('dd')
      this.values.set(name, cell)
      this.element.append(h('dt', {}, name), cell)
    }
    if (typeof value === 'string') say(cell, value)
    else if (value && cell.firstChild !== value) cell.replaceChildren(value)
  }
}

/** Brings a place to the middle of the map, near enough to take it in hand. */
export function showButton(app: App, place: () => Place | null): HTMLButtonElement {
  const show = () => {
    const at = place()
    if (at) app.map.flyTo(...at, Math.max(app.map.camera.zoom, SHOW_ZOOM))
  }
  return h('button', { type: 'button', class: 'small', onclick: show }, 'Show on the map')
}

export const brokerLink = (app: App, name: string): HTMLElement =>
  h('button', { class: 'link', type: 'button', onclick: () => app.select({ what: 'broker', name }) }, name)

export const clientLink = (app: App, id: string): HTMLElement =>
  h('button', { class: 'link', type: 'button', onclick: () => app.select({ what: 'client', id }) }, id)

export const topicLink = (app: App, topic: string): HTMLElement =>
  h('button', { class: 'link topic', type: 'button', onclick: () => app.select({ what: 'topic', topic }) }, topic)
