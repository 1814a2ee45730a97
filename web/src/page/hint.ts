/** What a first visitor reads: three sentences, once. */
import { h } from './dom'

const KEY = 'geomq-hint-seen'

export class Hint {
  readonly element: HTMLElement
  private readonly gotIt = h('button', { type: 'button', class: 'primary', onclick: () => this.show(false) }, 'Got it')

  constructor() {
    this.element = h(
      'section',
      { class: 'hint', 'aria-labelledby': 'hint-title', hidden: true },
      h('h2', { id: 'hint-title' }, 'Events that know where they matter'),
      h(
        'p',
        {},
        'A ',
        h('strong', {}, 'fence'),
        ' says where an event or a subscription matters: an event reaches only subscribers inside its fence, a subscription hears only publishers inside its own. ',
        'Each broker serves an area, and the ',
        h('strong', {}, 'strategy'),
        ' decides which brokers events and subscriptions visit to meet; every strategy delivers the same, at a different cost in messages. ',
        'Pick anything to see why it went where it went, drag a client, draw a fence, or switch the strategy and watch the counts.',
      ),
      h(
        'p',
        { class: 'quiet keys' },
        'Keys on the map: arrows and + − move it, 0 shows all, N and P step through brokers, Enter picks, C and G draw a circle or polygon.',
      ),
      this.gotIt,
    )
    if (!localStorage.getItem(KEY)) this.show(true)
  }

  toggle(): void {
    this.show(Boolean(this.element.hidden))
    if (!this.element.hidden) this.gotIt.focus()
  }

  private show(shown: boolean): void {
    this.element.hidden = !shown
    if (!shown) localStorage.setItem(KEY, '1')
  }
}
