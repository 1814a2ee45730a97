/** What the page is subscribed to, also since before it was loaded, what it can hear, and how to end it. */
import { whyNot, type App } from '../page/app'
import { fill, h } from '../page/dom'
import type { OwnSubscription } from '../wire/messages'
import { ApiError, unsubscribe } from '../wire/requests'
import { fenceWords } from './fence_text'

export const DEAF = 'Without a location, events with a fence do not reach it.'

export class OwnSubscriptions {
  readonly element = h('ul', { class: 'own' })
  private shown: OwnSubscription[] = []

  constructor(private readonly app: App) {}

  update(): void {
    const { own } = this.app.federation
    if (own === this.shown) return
    this.shown = own
    fill(this.element, ...own.map((one) => this.row(one)))
  }

  private row({ broker, filter, fence, at }: OwnSubscription): HTMLElement {
    return h(
      'li',
      {},
      h('span', { class: 'topic' }, filter),
      h('span', { class: 'quiet' }, ` at ${broker}, from publishers ${fenceWords(fence)} `),
      h(
        'button',
        {
          type: 'button',
          class: 'small',
          disabled: whyNot(this.app) !== null,
          'aria-label': `Unsubscribe from ${filter} at ${broker}`,
          onclick: () => void this.end(filter, broker),
        },
        'Unsubscribe',
      ),
      at ? null : h('span', { class: 'quiet warning' }, DEAF),
    )
  }

  private async end(filter: string, broker: string): Promise<void> {
    try {
      await unsubscribe(filter, broker)
    } catch (error) {
      this.app.tell(error instanceof ApiError ? error.message : String(error), 'failed')
    }
  }
}
