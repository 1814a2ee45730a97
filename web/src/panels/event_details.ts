/** An event: what was published where, and step by step why it went where it went. */
import type { Highlight } from '../map/scene'
import { clock, count, degrees } from '../model/numbers'
import type { App } from '../page/app'
import { fill, h, say } from '../page/dom'
import { KINDS, type Kind, type Place, type Why, type WhyStep } from '../wire/messages'
import { ApiError, getWhy } from '../wire/requests'
import type { DetailView } from './details'
import { brokerLink, clientLink, Facts, heading, topicLink } from './facts'
import { fenceWords } from './fence_text'

/** Steps still come in while the event travels: ask again this often, then leave it. */
const ASK_AFTER_MS = [0, 400, 1500, 4000]

export function eventDetails(app: App, id: string): DetailView {
  const facts = new Facts()
  const steps = h('ol', { class: 'steps' })
  const opened = performance.now()
  const topic = app.federation.events.get(id)?.topic ?? 'event'
  const questions = [...ASK_AFTER_MS]
  let linked = false
  const ask = () => {
    if (!app.live || questions[0] === undefined || performance.now() - opened < questions[0]) return
    questions.shift()
    getWhy(id).then(
      (why) => showSteps(app, id, why, steps),
      (error: unknown) =>
        questions.length ||
        fill(steps, h('li', { class: 'quiet' }, error instanceof ApiError ? error.message : String(error))),
    )
  }
  return {
    element: h(
      'div',
      { class: 'box' },
      heading('Event', topic, app),
      facts.element,
      h('h3', {}, 'Why it went where it went'),
      steps,
      app.live ? new Verdict(app, id).element : null,
    ),
    update() {
      const event = app.federation.events.get(id)
      if (event) {
        if (!linked) {
          facts.set('topic', topicLink(app, event.topic))
          facts.set('published by', clientLink(app, event.client))
          facts.set('home', brokerLink(app, event.home))
          app.map.scene.highlight.fences = event.fence ? [event.fence] : []
          app.map.scene.highlight.clients.add(event.client)
          app.map.scene.highlight.brokers.add(event.home)
        }
        linked = true
        facts.set('at', `${clock(event.t)}${event.at ? `, ${degrees(...event.at)}` : ''}`)
        facts.set('for subscribers', fenceWords(event.fence))
        facts.set('deliveries', count(event.delivered))
      }
      ask()
      if (!app.live && !steps.childElementCount)
        fill(steps, h('li', { class: 'quiet' }, 'A recording keeps messages, not reasons; ask on the live view.'))
    },
  }
}

function showSteps(app: App, id: string, why: Why, list: HTMLElement): void {
  if (app.selection?.what !== 'event' || app.selection.id !== id) return
  const start = why.steps[0]?.t ?? 0
  fill(
    list,
    ...why.steps.map((step) => stepRow(app, step, start)),
    why.steps.length ? null : h('li', { class: 'quiet' }, 'No steps are known of this event.'),
  )
  light(app, why.steps, app.map.scene.highlight)
  app.map.wake()
}

function stepRow(app: App, step: WhyStep, start: number): HTMLElement {
  const peer = step.peer ? h('span', {}, ' → ', brokerLink(app, step.peer)) : null
  const client = step.client ? h('span', {}, ' → ', clientLink(app, step.client)) : null
  return h(
    'li',
    { class: `step ${kindOf(step) ? `kind-${kindOf(step)}` : ''}` },
    h('span', { class: 'when' }, `+${(step.t - start).toFixed(step.t - start < 10 ? 1 : 0)} ms`),
    h('span', { class: 'where' }, brokerLink(app, step.broker), peer, client),
    h('span', { class: 'what' }, step.text),
  )
}

function light(app: App, steps: WhyStep[], highlight: Highlight): void {
  const { brokers } = app.federation
  highlight.lines = []
  for (const step of steps) {
    highlight.brokers.add(step.broker)
    if (step.client) highlight.clients.add(step.client)
    const [from, to] = [brokers.get(step.broker), step.peer ? brokers.get(step.peer) : undefined]
    if (from && to) highlight.lines.push([place(from), place(to), kindOf(step)])
  }
}

/** Why it did, or did not, reach one client. */
class Verdict {
  readonly element: HTMLElement
  private readonly client = h('input', {
    id: 'why-client',
    type: 'text',
    list: 'why-clients',
    autocomplete: 'off',
    placeholder: 'client id',
  })
  private readonly answer = h('p', { class: 'quiet', role: 'status' })

  constructor(
    private readonly app: App,
    private readonly id: string,
  ) {
    const known = [...app.federation.clients.keys()].slice(0, 200)
    this.element = h(
      'form',
      { class: 'mover', onsubmit: (event: Event) => void this.ask(event) },
      h('label', { for: 'why-client' }, 'Did it reach a client, and why?'),
      h('div', { class: 'inline' }, this.client, h('button', { type: 'submit' }, 'Ask')),
      h('datalist', { id: 'why-clients' }, ...known.map((client) => h('option', { value: client }))),
      this.answer,
    )
  }

  private async ask(event: Event): Promise<void> {
    event.preventDefault()
    const client = this.client.value.trim()
    if (!client) return
    try {
      const { clients } = await getWhy(this.id, client)
      say(this.answer, clients?.[client]?.text ?? 'Nothing is known of that client and this event.')
      this.app.map.scene.highlight.clients.add(client)
      this.app.map.wake()
    } catch (error) {
      say(this.answer, error instanceof ApiError ? error.message : String(error))
    }
  }
}

const place = ({ lat, lon }: { lat: number; lon: number }): Place => [lat, lon]
const kindOf = ({ step }: WhyStep): Kind | null => KINDS.find((kind) => step.includes(kind)) ?? null
