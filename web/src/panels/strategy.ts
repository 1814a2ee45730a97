/** The strategy: what it does, switching it, and what each one tried here has cost. */
import { stackedBars } from '../charts/stacked'
import { milliseconds } from '../model/numbers'
import { strategySentence, strategyTitle } from '../model/strategies'
import { meanLatency, perEvent } from '../model/trials'
import { whyNot, type App } from '../page/app'
import { fill, h, say } from '../page/dom'
import { ApiError, setStrategy } from '../wire/requests'

const perEventText = (value: number) => value.toFixed(value < 10 ? 2 : 1)

export class StrategyBox {
  readonly element: HTMLElement
  private readonly choice = h('select', { id: 'strategy-choice', onchange: () => this.explain() })
  private readonly button = h('button', { class: 'primary', type: 'submit' }, 'Switch')
  private readonly sentence = h('p', { class: 'quiet', id: 'strategy-sentence' })
  private readonly reason = h('p', { class: 'quiet reason', id: 'strategy-reason' })
  private readonly trials = h('div', { class: 'trials' })
  private readonly title = h('h2', { id: 'strategy-title' }, 'Strategy')
  private options = ''
  private running = ''

  constructor(private readonly app: App) {
    this.element = h(
      'section',
      { class: 'box', 'aria-labelledby': 'strategy-title' },
      this.title,
      h(
        'form',
        { class: 'inline', hidden: !app.live, onsubmit: (event: Event) => void this.submit(event) },
        h('label', { for: 'strategy-choice', class: 'only-read' }, 'Strategy'),
        this.choice,
        this.button,
      ),
      this.sentence,
      this.reason,
      this.trials,
    )
  }

  update(): void {
    const { federation } = this.app
    const options = federation.strategies.join()
    if (options !== this.options || federation.strategy !== this.running) {
      this.options = options
      this.running = federation.strategy
      const names = new Set([federation.strategy, ...federation.strategies])
      fill(this.choice, ...[...names].map((name) => h('option', { value: name }, strategyTitle(name))))
      this.choice.value = federation.strategy
      say(this.title, this.app.live ? 'Strategy' : `Strategy: ${strategyTitle(federation.strategy)}`)
      this.explain()
    }
    const reason = whyNot(this.app)
    this.choice.disabled = reason !== null
    this.button.disabled = reason !== null || this.choice.value === federation.strategy
    say(this.reason, this.app.live ? (reason ?? '') : '')
    this.drawTrials()
  }

  private explain(): void {
    say(this.sentence, strategySentence(this.choice.value))
    this.button.disabled = whyNot(this.app) !== null || this.choice.value === this.app.federation.strategy
  }

  private drawTrials(): void {
    const { list, current } = this.app.federation.trials
    const bars = list.flatMap((trial) => {
      const parts = perEvent(trial)
      return parts ? [{ strategy: trial.strategy, parts, chosen: trial === current }] : []
    })
    if (!bars.length) return fill(this.trials)
    const latencies = list
      .filter((trial) => trial.latencyTicks > 0)
      .map((trial) => `${strategyTitle(trial.strategy)} ${milliseconds(meanLatency(trial))}`)
    fill(
      this.trials,
      h('h3', {}, 'Messages between brokers per event'),
      stackedBars(bars, { format: perEventText }),
      latencies.length ? h('p', { class: 'quiet' }, `Latency: ${latencies.join(' · ')}`) : null,
      list.length < 2 && !whyNot(this.app)
        ? h('p', { class: 'quiet' }, 'Switch to another strategy to see both side by side.')
        : null,
    )
  }

  private async submit(event: Event): Promise<void> {
    event.preventDefault()
    const strategy = this.choice.value
    this.button.disabled = true
    try {
      await setStrategy(strategy)
      this.app.tell(`Switched to ${strategyTitle(strategy)}.`)
    } catch (error) {
      this.app.tell(error instanceof ApiError ? error.message : String(error), 'failed')
      this.choice.value = this.app.federation.strategy
      this.explain()
    }
  }
}
