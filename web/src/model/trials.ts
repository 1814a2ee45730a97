/** What each strategy cost while it ran here: the comparison a person makes by switching. */
import type { Kind } from '../wire/messages'

export interface Trial {
  strategy: string
  ticks: number
  messages: Record<Kind, number>
  published: number
  latencySum: number
  latencyTicks: number
}

/** Messages still under way at a switch belong to nobody. */
const SETTLING_TICKS = 6
const TRIALS_MAX = 8

export class Trials {
  private settling = 0
  /** Latest last; the running one is the last. */
  readonly list: Trial[] = []

  begin(strategy: string): void {
    if (this.current?.strategy === strategy) return
    const earlier = this.list.findIndex((trial) => trial.strategy === strategy)
    if (earlier >= 0) this.list.splice(earlier, 1)
    if (this.list.length >= TRIALS_MAX) this.list.shift()
    const messages = { event: 0, subscription: 0, delivery: 0, location: 0, control: 0 }
    this.list.push({ strategy, ticks: 0, messages, published: 0, latencySum: 0, latencyTicks: 0 })
    this.settling = this.list.length > 1 ? SETTLING_TICKS : 0
  }

  get current(): Trial | undefined {
    return this.list.at(-1)
  }

  record(counts: Record<Kind, number>, published: number, latency: number): void {
    const trial = this.current
    if (!trial) return
    if (this.settling > 0) {
      this.settling -= 1
      return
    }
    trial.ticks += 1
    trial.published += published
    for (const kind of Object.keys(counts) as Kind[]) trial.messages[kind] += counts[kind]
    if (!Number.isNaN(latency)) {
      trial.latencySum += latency
      trial.latencyTicks += 1
    }
  }
}

/** Messages between brokers per event published, by kind: fair however busy the clients were. */
export function perEvent(trial: Trial): Record<Kind, number> | null {
  if (trial.published < 1) return null
  const entries = Object.entries(trial.messages).map(([kind, count]) => [kind, count / trial.published])
  return Object.fromEntries(entries) as Record<Kind, number>
}

export const meanLatency = (trial: Trial): number =>
  trial.latencyTicks ? trial.latencySum / trial.latencyTicks : Number.NaN
