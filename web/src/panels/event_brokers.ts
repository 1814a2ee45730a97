/** Which brokers were asked with an event and which were not, each with its reason; equal reasons are told once. */
import { count } from '../model/numbers'
import type { App } from '../page/app'
import { h, type Child } from '../page/dom'
import type { AskedBroker } from '../wire/messages'
import { brokerLink } from './facts'

const NAMED_MAX = 6

export interface Reason {
  asked: boolean
  text: string
  brokers: string[]
}

/** Those asked first; brokers in the order they came in. */
export function reasonsOf(told: AskedBroker[]): Reason[] {
  const reasons = new Map<string, Reason>()
  for (const { broker, asked, text } of told) {
    const key = `${asked} ${text}`
    const reason = reasons.get(key) ?? { asked, text, brokers: [] }
    reason.brokers.push(broker)
    reasons.set(key, reason)
  }
  return [...reasons.values()].sort((a, b) => Number(b.asked) - Number(a.asked))
}

export function reasonRow(app: App, { asked, text, brokers }: Reason): HTMLElement {
  const links = brokers
    .slice(0, NAMED_MAX)
    .flatMap((name, index): Child[] => [index ? ', ' : null, brokerLink(app, name)])
  const more = brokers.length - NAMED_MAX
  return h(
    'li',
    { class: 'asked' },
    h('span', { class: asked ? 'badge' : 'badge none' }, asked ? 'asked' : 'not asked'),
    h('span', {}, ...links, more > 0 ? ` and ${count(more)} more` : null),
    h('span', { class: 'quiet' }, text),
  )
}
