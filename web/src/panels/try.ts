/** Publish and subscribe from the page, with a fence drawn on the map or typed. */
import { clock } from '../model/numbers'
import { whyNot, type App, type Panel } from '../page/app'
import { fill, h, say } from '../page/dom'
import type { Fence, Place } from '../wire/messages'
import { ApiError, publish, subscribe } from '../wire/requests'
import { fenceFromText, fenceToText, fenceWords, placeFromText, placeToText } from './fence_text'
import { OwnSubscriptions } from './own_subscriptions'

export class Try implements Panel {
  readonly element: HTMLElement
  private readonly topic = input('try-topic', 'news/hello', { maxlength: 1000, required: true })
  private readonly payload = input('try-payload', 'Hello from the map')
  private readonly broker = h('select', { id: 'try-broker' })
  private readonly qos = h(
    'select',
    { id: 'try-qos' },
    h('option', { value: '0' }, '0, at most once'),
    h('option', { value: '1', selected: true }, '1, at least once'),
  )
  private readonly at = input('try-at', '', { placeholder: 'none; or lat,lon', oninput: () => this.placeTyped() })
  private readonly fence = input('try-fence', '', {
    placeholder: 'everywhere; or lat,lon,km',
    oninput: () => this.fenceTyped(),
  })
  private readonly words = h('p', { class: 'quiet', id: 'try-fence-words' })
  private readonly wrong = h('p', { class: 'failed', role: 'alert' })
  private readonly reason = h('p', { class: 'quiet reason' })
  private readonly own: OwnSubscriptions
  private readonly placeWords = h('p', { class: 'quiet' }, NOWHERE)
  private readonly received = h('ul', { class: 'events', 'aria-live': 'polite' })
  private readonly waiting = h('p', { class: 'quiet' })
  private readonly controls: HTMLFieldSetElement
  private brokers = ''
  private shown: unknown = null

  constructor(private readonly app: App) {
    this.own = new OwnSubscriptions(app)
    this.controls = this.form()
    this.element = h(
      'div',
      { class: 'panel' },
      h(
        'form',
        { class: 'box', onsubmit: (event: Event) => void this.publish(event) },
        h('h2', {}, 'Publish or subscribe here'),
        this.reason,
        this.controls,
      ),
      h(
        'section',
        { class: 'box', 'aria-labelledby': 'received-title' },
        h('h2', { id: 'received-title' }, 'Received here'),
        this.own.element,
        this.waiting,
        this.received,
      ),
    )
  }

  update(): void {
    const reason = whyNot(this.app)
    this.controls.disabled = reason !== null
    say(this.reason, reason ?? '')
    const names = [...this.app.federation.brokers.keys()]
    if (names.join() !== this.brokers) {
      this.brokers = names.join()
      const nearest = h('option', { value: '' }, 'the one whose area it is in')
      fill(this.broker, nearest, ...names.map((name) => h('option', { value: name }, name)))
    }
    this.own.update()
    this.showReceived()
  }

  fenceDrawn(fence: Fence): void {
    this.fence.value = fenceToText(fence)
    this.useFence(fence)
    if (!touch()) this.topic.focus()
  }

  placeChosen(place: Place): void {
    this.at.value = placeToText(place)
    this.placeTyped()
    if (!touch()) this.at.focus()
  }

  private form(): HTMLFieldSetElement {
    const { tools } = this.app.map
    const draw = (tool: 'circle' | 'polygon' | 'place', text: string) =>
      h('button', { type: 'button', class: 'small', onclick: () => this.draw(() => tools.use(tool)) }, text)
    const clear = h('button', { type: 'button', class: 'small', onclick: () => this.clearFence() }, 'Clear')
    return h(
      'fieldset',
      { class: 'plain' },
      field('Topic, or filter to subscribe', this.topic),
      field('Payload', this.payload),
      field('Fence', this.fence, draw('circle', 'Draw circle'), draw('polygon', 'Draw polygon'), clear),
      this.words,
      field('Your location', this.at, draw('place', 'Point')),
      this.placeWords,
      h('div', { class: 'pair' }, field('Broker', this.broker), field('QoS', this.qos)),
      this.wrong,
      h(
        'div',
        { class: 'inline' },
        h('button', { type: 'submit', class: 'primary' }, 'Publish'),
        h('button', { type: 'button', onclick: () => void this.subscribe() }, 'Subscribe'),
      ),
    )
  }

  private draw(begin: () => void): void {
    begin()
    this.app.map.surface.focus({ preventScroll: false })
  }

  private clearFence(): void {
    this.fence.value = ''
    this.useFence(null)
  }

  private fenceTyped(): void {
    const fence = fenceFromText(this.fence.value)
    if (typeof fence === 'string') say(this.words, fence)
    else this.useFence(fence)
  }

  private useFence(fence: Fence | null): void {
    this.app.map.scene.fence = fence
    say(this.words, fence ? `Publish: to subscribers ${fenceWords(fence)}. Subscribe: from publishers there.` : '')
    this.app.map.wake()
  }

  private placeTyped(): void {
    const place = placeFromText(this.at.value)
    this.app.map.scene.here = typeof place === 'string' ? null : place
    this.app.map.wake()
    say(this.placeWords, this.at.value.trim() ? '' : NOWHERE)
  }

  /** The typed fence and location, or null after saying what is wrong with them. */
  private geo(): { fence: Fence | null; at: Place | null } | null {
    const [fence, at] = [fenceFromText(this.fence.value), placeFromText(this.at.value)]
    const wrong = typeof fence === 'string' ? fence : typeof at === 'string' ? at : ''
    say(this.wrong, wrong)
    return typeof fence === 'string' || typeof at === 'string' ? null : { fence, at }
  }

  private async publish(event: Event): Promise<void> {
    event.preventDefault()
    const geo = this.geo()
    if (!geo) return
    const qos = this.qos.value === '1' ? 1 : 0
    const [topic, broker] = [this.topic.value.trim(), this.broker.value || null]
    await this.attempt(async () => {
      const { id } = await publish({ broker, topic, payload: this.payload.value, qos, ...geo })
      this.app.tell(`Published on ${topic}.`)
      if (id) this.app.select({ what: 'event', id })
    })
  }

  private async subscribe(): Promise<void> {
    const geo = this.geo()
    const filter = this.topic.value.trim()
    if (!geo || !filter) return
    await this.attempt(async () => {
      await subscribe({ broker: this.broker.value || null, filter, ...geo })
      this.app.tell(`Subscribed to ${filter}, from publishers ${fenceWords(geo.fence)}.`)
    })
  }

  private async attempt(work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      if (!(error instanceof ApiError)) throw error
      say(this.wrong, error.message)
      this.app.tell(error.message, 'failed')
    }
  }

  private showReceived(): void {
    const { received } = this.app.federation
    say(this.waiting, received.length ? '' : 'Subscribe, and what arrives is listed here.')
    if (this.shown === received.at(-1)) return
    this.shown = received.at(-1)
    const rows = received
      .slice(-30)
      .reverse()
      .map(({ topic, payload, t, id }) => {
        const why = () => id && this.app.select({ what: 'event', id })
        const name = id
          ? h('button', { class: 'link topic', type: 'button', onclick: why }, topic)
          : h('span', { class: 'topic' }, topic)
        return h(
          'li',
          { class: 'message' },
          name,
          h('span', { class: 'payload' }, payload),
          h('span', { class: 'quiet' }, clock(t)),
        )
      })
    fill(this.received, ...rows)
  }
}

/** Fences are checked against places: who has none is outside of all of them. */
const NOWHERE =
  'Without a location, events with a fence do not reach you, and subscriptions with a fence do not hear you.'

/** Focus on a text field brings up a keyboard over half the screen. */
const touch = () => matchMedia('(pointer: coarse)').matches

function input(id: string, value: string, attributes: Record<string, unknown> = {}): HTMLInputElement {
  return h('input', { id, value, type: 'text', autocomplete: 'off', spellcheck: 'false', ...attributes })
}

function field(label: string, control: HTMLElement, ...more: HTMLElement[]): HTMLElement {
  return h(
    'div',
    { class: 'field' },
    h('label', { for: control.id }, label),
    h('div', { class: more.length > 1 ? 'inline wide' : 'inline' }, control, ...more),
  )
}
