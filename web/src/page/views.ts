/** Which view the address names, and the choice between them. Addresses are `#/live` and `#/view/ID`. */
import type { ViewEntry } from '../wire/messages'
import { fill, h } from './dom'

const GROUPS: Record<string, string> = { setup: 'Set-ups', results: 'Results', replay: 'Replays' }

export function addressOf(id: string): string {
  return id === 'live' ? '#/live' : `#/view/${encodeURIComponent(id)}`
}

export class ViewChoice {
  readonly element = h('select', { 'aria-label': 'View', class: 'view-choice', hidden: true })
  private views: ViewEntry[] = [{ id: 'live', title: 'Live', kind: 'live' }]

  constructor() {
    this.element.addEventListener('change', () => (location.hash = addressOf(this.element.value)))
  }

  offer(views: ViewEntry[]): void {
    this.views = views
    const option = ({ id, title }: ViewEntry) => h('option', { value: id }, title)
    fill(
      this.element,
      ...views.filter(({ kind }) => kind === 'live').map(option),
      ...Object.entries(GROUPS).map(([kind, label]) => {
        const found = views.filter((view) => view.kind === kind)
        return found.length ? h('optgroup', { label }, ...found.map(option)) : null
      }),
    )
    this.element.hidden = views.length < 2
  }

  /** The view in the address, or the first there is. */
  get current(): string {
    const [, id] = /^#\/view\/(.+)$/.exec(location.hash) ?? []
    const chosen = id ? decodeURIComponent(id) : location.hash === '#/live' ? 'live' : (this.views[0]?.id ?? 'live')
    this.element.value = chosen
    return chosen
  }
}
