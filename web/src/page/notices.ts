/** What the page says: short messages that go away, and the banner about the connection that stays. */
import type { Connection } from '../wire/live'
import { h, say } from './dom'

const SHOWN_MS = 5000

export class Notices {
  readonly toast = h('div', { class: 'toast', role: 'status', 'aria-live': 'polite' })
  readonly banner: HTMLElement
  readonly light = h('span', { class: 'light', role: 'status' })
  private readonly words = h('span')
  private readonly retry = h('button', { type: 'button', class: 'small' }, 'Try now')
  private timer = 0

  constructor() {
    this.banner = h('div', { class: 'banner', role: 'status', hidden: true }, this.words, this.retry)
  }

  onRetry(retry: () => void): void {
    this.retry.onclick = retry
  }

  tell(text: string, kind: 'done' | 'failed' = 'done'): void {
    clearTimeout(this.timer)
    this.toast.className = `toast shown ${kind}`
    say(this.toast, text)
    this.timer = window.setTimeout(() => (this.toast.className = 'toast'), SHOWN_MS)
  }

  connection(state: Connection | 'recorded', everConnected: boolean): void {
    const words = {
      live: 'Live',
      recorded: 'Recorded',
      connecting: 'Connecting',
      silent: 'No news',
      reconnecting: 'Reconnecting',
      offline: 'Disconnected',
    }[state]
    this.light.dataset['state'] = state
    say(this.light, words)
    this.retry.hidden = state !== 'offline'
    this.banner.hidden = state === 'live' || state === 'recorded'
    say(this.words, bannerWords(state, everConnected))
  }
}

function bannerWords(state: Connection | 'recorded', everConnected: boolean): string {
  if (state === 'silent') return 'No news from the dashboard’s server; the map shows what was last known.'
  if (state === 'offline')
    return 'The dashboard’s server does not answer. Is geomq still running? The map shows what was last known.'
  return everConnected ? 'Connection lost; reconnecting …' : 'Connecting to the federation …'
}
