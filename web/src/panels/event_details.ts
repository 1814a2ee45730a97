/** An event: what was published where, and step by step why it went where it went. */
import type { Highlight } from '../map/scene'
import { clock, count, degrees } from '../model/numbers'
import { strategySentence, strategyTitle } from '../model/strategies'
import type { App } from '../page/app'
import { fill, h, say, type Child } from '../page/dom'
import type { Kind, Place, Why, WhyStep } from '../wire/messages'
import { ApiError, getWhy } from '../wire/requests'
import type { DetailView } from './details'
import { reasonRow, reasonsOf } from './event_brokers'
import { brokerLink, clientLink, Facts, heading, topicLink } from './facts'
import { fenceWords } from './fence_text'

const RUN_SHOWN = 4
/** Steps still come in while the event travels: ask again this often, then leave it. */
const ASK_AFTER_MS = [0, 400, 1500, 4000]

export function eventDetails(app: App, id: string): DetailView {
  const facts = new Facts()
  const answer = new WhyAnswer(app, id)
  const opened = performance.now()
  const topic = app.federation.events.get(id)?.topic ?? 'event'
  const questions = app.live ? [...ASK_AFTER_MS] : [0]
  let linked = false
  const ask = () => {
    if (questions[0] === undefined || performance.now() - opened < questions[0]) return
    questions.shift()
    getWhy(id, askedOf(app)).then(
      (why) => answer.show(why),
      (error: unknown) => questions.length || answer.fail(error instanceof ApiError ? error.message : String(error)),
    )
  }
  return {
    element: h(
      'div',
      { class: 'box' },
      heading('Event', topic, app),
      facts.element,
      h('button', { type: 'button', class: 'small', onclick: () => showRoute(app, id) }, 'Show on the map'),
      answer.element,
      new Verdict(app, id).element,
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
    },
  }
}

/** Who is asked: the brokers, or the trace that is shown. */
const askedOf = ({ view }: App): { view?: string } => (view === undefined ? {} : { view })

/** What became of it, which brokers were asked because of what, and the steps of its way. */
class WhyAnswer {
  readonly element: HTMLElement
  private readonly summary = h('p', { class: 'summary' })
  private readonly brokers = h('ul', { class: 'tight' })
  private readonly steps = h('ol', { class: 'steps' })
  private readonly rule = h('p', { class: 'quiet' })
  private readonly brokersTitle = h('h3', { hidden: true }, 'Which brokers were asked, and why')

  constructor(
    private readonly app: App,
    private readonly id: string,
  ) {
    this.element = h(
      'div',
      {},
      h('h3', {}, 'Why it went where it went'),
      this.summary,
      this.steps,
      this.brokersTitle,
      this.brokers,
      this.rule,
    )
  }

  show(why: Why): void {
    const { app, id } = this
    if (app.selection?.what !== 'event' || app.selection.id !== id) return
    const start = why.steps[0]?.t ?? 0
    say(this.summary, why.summary)
    fill(this.steps, ...runsOf(why.steps).map((run) => stepRow(app, run, start)))
    this.brokersTitle.hidden = !why.brokers.length
    fill(this.brokers, ...reasonsOf(why.brokers).map((reason) => reasonRow(app, reason)))
    say(this.rule, why.strategy ? `Under ${strategyTitle(why.strategy)}: ${strategySentence(why.strategy)}` : '')
    light(app, id, why.steps, app.map.scene.highlight)
    app.map.wake()
  }

  fail(words: string): void {
    fill(this.steps, h('li', { class: 'quiet' }, words))
  }
}

/** Steps of one kind at one broker, one after the other, are told together. */
function runsOf(steps: WhyStep[]): WhyStep[][] {
  const runs: WhyStep[][] = []
  for (const step of steps) {
    const last = runs.at(-1)
    if (last?.[0]?.broker === step.broker && last[0].step === step.step) last.push(step)
    else runs.push([step])
  }
  return runs
}

function stepRow(app: App, run: WhyStep[], start: number): HTMLElement {
  const [{ t, broker, step }] = run as [WhyStep]
  const texts = run.slice(0, RUN_SHOWN).map(({ text }) => h('span', { class: 'what' }, text))
  const more = run.length - texts.length
  return h(
    'li',
    { class: `step kind-${COLOUR_OF[step] ?? 'control'}` },
    h('span', { class: 'when' }, `+${(t - start).toFixed(t - start < 10 ? 1 : 0)} ms`),
    h('span', { class: 'where' }, ...route(app, broker, run)),
    ...texts,
    more > 0 ? h('span', { class: 'what quiet' }, `and ${count(more)} more`) : null,
  )
}

/** Who handed it to whom. */
function route(app: App, broker: string, run: WhyStep[]): Child[] {
  const [{ step, peer, client }] = run as [WhyStep]
  const here = brokerLink(app, broker)
  if (step === 'published' && client) return [clientLink(app, client), ' → ', here]
  if (step === 'received' && peer) return [brokerLink(app, peer), ' → ', here]
  if (run.length > 1) return [here, ` → ${count(run.length)} ${step === 'sent' ? 'brokers' : 'clients'}`]
  if (client) return [here, ' → ', clientLink(app, client)]
  return peer ? [here, ' → ', brokerLink(app, peer)] : [here]
}

/** The event's way on the map: from its publisher, between brokers, to whom it was delivered. */
function light(app: App, id: string, steps: WhyStep[], highlight: Highlight): void {
  const { brokers, clients, events } = app.federation
  highlight.lines = []
  for (const { step, broker, peer, client } of steps) {
    const home = placeOf(brokers.get(broker))
    const other = placeOf(peer === null ? undefined : brokers.get(peer))
    const person = (client !== null && clients.get(client)?.at) || null
    highlight.brokers.add(broker)
    if (client) highlight.clients.add(client)
    const from = events.get(id)?.at ?? person
    if (step === 'published' && home && from) highlight.lines.push([from, home, 'event'])
    if (step === 'sent' && home && other) highlight.lines.push([home, other, 'event'])
    if (step === 'delivered' && home && person) highlight.lines.push([home, person, 'delivery'])
  }
}

function showRoute(app: App, id: string): void {
  const at = app.federation.events.get(id)?.at
  const places = app.map.scene.highlight.lines.flatMap(([from, to]) => [from, to])
  if (at) places.push(at)
  if (places.length) app.map.fit(places.map(([lat, lon]) => ({ lat, lon })))
}

const COLOUR_OF: Record<string, Kind> = {
  published: 'event',
  sent: 'event',
  received: 'event',
  matched: 'subscription',
  delivered: 'delivery',
}

function placeOf(broker: { lat: number; lon: number } | undefined): Place | null {
  return broker ? [broker.lat, broker.lon] : null
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
      const { clients } = await getWhy(this.id, { client, ...askedOf(this.app) })
      say(this.answer, clients?.[client]?.text ?? 'Nothing is known of that client and this event.')
      this.app.map.scene.highlight.clients.add(client)
      this.app.map.wake()
    } catch (error) {
      say(this.answer, error instanceof ApiError ? error.message : String(error))
    }
  }
}
