/** Evaluation results: messages by kind and delays per strategy; the chosen strategy's load sizes the brokers. */
import { spreads } from '../charts/spread'
import { stackedBars } from '../charts/stacked'
import { count } from '../model/numbers'
import { strategySentence, strategyTitle } from '../model/strategies'
import type { App, Panel } from '../page/app'
import { fill, h } from '../page/dom'
import type { Layer, Results as Recorded, Run } from '../wire/messages'

export class Results implements Panel {
  readonly element: HTMLElement
  private readonly runs: Run[]
  private readonly body = h('div')
  private run: Run
  private strategy: string

  constructor(
    private readonly app: App,
    title: string,
    results: Recorded,
    private readonly layers: Layer[],
  ) {
    this.runs = 'runs' in results ? results.runs : [results]
    this.run = this.runs[0]!
    this.strategy = firstChoice(this.run)
    const choice = h(
      'select',
      { id: 'run-choice', onchange: () => this.choose(this.runs[Number(choice.value)]!) },
      ...this.runs.map((run, index) => h('option', { value: index }, runTitle(run))),
    )
    this.element = h(
      'div',
      { class: 'panel' },
      h(
        'section',
        { class: 'box' },
        h('h2', {}, title),
        this.runs.length > 1 ? h('div', { class: 'field' }, h('label', { for: 'run-choice' }, 'Run'), choice) : null,
      ),
      this.body,
    )
    this.draw()
  }

  update(): void {}

  private choose(run: Run): void {
    this.run = run
    if (!(this.strategy in run.strategies)) this.strategy = firstChoice(run)
    this.draw()
  }

  private draw(): void {
    const { run } = this
    const entries = Object.entries(run.strategies)
    const pick = (strategy: string) => {
      this.strategy = strategy
      this.draw()
      this.body.querySelector<HTMLElement>('[aria-pressed=true]')?.focus()
    }
    this.sizeBrokers()
    fill(
      this.body,
      h('p', { class: 'box quiet' }, this.about(run)),
      h(
        'section',
        { class: 'box', 'aria-labelledby': 'messages-title' },
        h('h3', { id: 'messages-title' }, 'Messages between brokers'),
        stackedBars(
          entries.map(([strategy, result]) => ({
            strategy,
            parts: result.messages,
            chosen: strategy === this.strategy,
          })),
          { choose: pick },
        ),
        h(
          'p',
          { class: 'quiet' },
          `${strategyTitle(this.strategy)}: ${strategySentence(this.strategy)} Brokers on the map are sized by its load.`,
        ),
      ),
      h(
        'section',
        { class: 'box', 'aria-labelledby': 'latency-title' },
        h('h3', { id: 'latency-title' }, 'Delivery latency'),
        spreads(
          entries.map(([strategy, result]) => ({
            strategy,
            spread: result.latency_ms,
            chosen: strategy === this.strategy,
          })),
        ),
      ),
      h(
        'section',
        { class: 'box', 'aria-labelledby': 'delay-title' },
        h('h3', { id: 'delay-title' }, 'Subscription delay'),
        spreads(
          entries.map(([strategy, result]) => ({
            strategy,
            spread: result.subscription_delay_ms,
            chosen: strategy === this.strategy,
          })),
        ),
      ),
    )
  }

  private about(run: Run): string {
    const deliveries = new Set(Object.values(run.strategies).map((result) => result.deliveries))
    const same = deliveries.size === 1 ? ` Every strategy made the same ${count([...deliveries][0]!)} deliveries.` : ''
    return `${count(run.events)} events, ${count(run.subscriptions)} subscription updates.${same}`
  }

  private sizeBrokers(): void {
    const { load } = this.run.strategies[this.strategy] ?? {}
    const { scene } = this.app.map
    scene.load = load
      ? new Map(Object.entries(load).map(([name, { sent, received }]) => [name, sent + received]))
      : null
    const busiest = this.layers.find(({ name }) => name === this.strategy)
    scene.recorded = busiest ? { ...busiest, brokers: {} } : null
    this.app.map.recolour()
  }
}

/** The one to look at first: ours if it is there, else the cheapest that can be run. */
function firstChoice(run: Run): string {
  const real = Object.entries(run.strategies).filter(([name]) => name !== 'oracle' && name !== 'clairvoyant')
  const sorted = real.sort(([, a], [, b]) => a.messages.total - b.messages.total)
  return 'adaptive' in run.strategies ? 'adaptive' : (sorted[0]?.[0] ?? '')
}

function runTitle({ run }: Run): string {
  return `${run['preset']} (${run['variant']}), ${count(Number(run['brokers']))} brokers, ${count(Number(run['clients']))} clients`
}
