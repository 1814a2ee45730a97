/** Which view the address names, and the choice between them. Addresses are `#/live` and `#/view/ID`. */
import type { ViewEntry } from '../wire/messages'
import { fill, h } from './dom'

const GROUPS: Record<string, string> = { setup: 'Set-ups', results: 'Results', replay: 'Replays' }

export function viewInAddress(): string {
  const [, id] = /^#\/view\/(.+)$/.exec(location.hash) ?? []
  return id ? decodeURIComponent(id) : 'live'
}

export function addressOf(id: string): string {
  return id === 'live' ? '#/live' : `#/view/${encodeURIComponent(id)}`
}

export class ViewChoice {
  readonly element = h('select', { 'aria-label': 'View', class: 'view-choice' })

  constructor() {
    this.element.addEventListener('change', () => (location.hash = addressOf(this.element.value)))
  }

  offer(views: ViewEntry[]): void {
    const option = ({ id, title }: ViewEntry) => h('option', { value: id }, title)
    const live = views.find(({ kind }) => kind === 'live') ?? { id: 'live', title: 'Live', kind: 'live' }
    fill(
      this.element,
      option({ ...live, id: 'live' } as ViewEntry),
      ...Object.entries(GROUPS).map(([kind, label]) => {
        const found = views.filter((view) => view.kind === kind)
        return found.length ? h('optgroup', { label }, ...found.map(option)) : null
      }),
    )
    this.element.hidden = this.element.options.length < 2
    this.show()
  }

  show(): void {
    this.element.value = viewInAddress()
  }
}
