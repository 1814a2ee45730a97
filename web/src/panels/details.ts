/** What was picked, and why an event went where it went. What it finds is lit up on the map. */
import { nothingHighlighted } from '../map/scene'
import { same, type Selection } from '../model/selection'
import type { App, Panel } from '../page/app'
import { fill, h } from '../page/dom'
import { brokerDetails } from './broker_details'
import { clientDetails } from './client_details'
import { eventDetails } from './event_details'
import { topicDetails } from './topic_details'

/** A detail view: its elements, and how it follows the data. */
export interface DetailView {
  element: HTMLElement
  update(): void
}

export class Details implements Panel {
  readonly element = h('div', { class: 'panel' })
  private view: DetailView | null = null
  private shown: Selection | null | undefined = undefined

  constructor(private readonly app: App) {
    this.selectionChanged()
  }

  update(): void {
    this.view?.update()
  }

  selectionChanged(): void {
    const { selection, map } = this.app
    if (this.shown !== undefined && same(this.shown, selection)) return
    this.shown = selection
    map.scene.highlight = nothingHighlighted()
    this.view = selection && detailsOf(this.app, selection)
    if (this.view) this.view.update()
    fill(this.element, this.view?.element ?? hint())
    map.redraw()
  }
}

function detailsOf(app: App, selection: Selection): DetailView {
  if (selection.what === 'broker') return brokerDetails(app, selection.name)
  if (selection.what === 'client') return clientDetails(app, selection.id)
  if (selection.what === 'topic') return topicDetails(app, selection.topic)
  return eventDetails(app, selection.id)
}

function hint(): HTMLElement {
  return h(
    'div',
    { class: 'box empty' },
    h('h2', {}, 'Nothing picked'),
    h(
      'p',
      { class: 'quiet' },
      'Click a broker or a client on the map, a row in a list, or an event, and its details appear here.',
    ),
  )
}
