/** The live connection: a WebSocket that comes back by itself and says in which state it is. */
import type { Tick, World } from './messages'

export type Connection = 'connecting' | 'live' | 'silent' | 'reconnecting' | 'offline'

export interface LiveListener {
  message(message: World | Tick): void
  opened(): void
  state(state: Connection, retryInMs: number): void
}

const FIRST_RETRY_MS = 500
const LAST_RETRY_MS = 8000
/** The server speaks four times a second: after so long without a word nothing here is live any more. */
const SILENT_MS = 2000
/** After so long the connection is given up, though nobody said that it is lost. */
const LOST_MS = 10_000
const WATCH_MS = 500

export class LiveSocket {
  private socket: WebSocket | null = null
  private retryTimer: ReturnType<typeof setTimeout> | undefined
  private readonly watch: ReturnType<typeof setInterval>
  private failures = 0
  private closed = false
  private started = false
  private state: Connection = 'connecting'
  private heardAt = 0

  constructor(private readonly listener: LiveListener) {
    this.open()
    this.watch = setInterval(() => this.look(), WATCH_MS)
    addEventListener('online', this.retry)
  }

  /** Try again now rather than when the timer says. */
  readonly retry = (): void => {
    if (this.closed || this.socket) return
    clearTimeout(this.retryTimer)
    this.open()
  }

  close(): void {
    this.closed = true
    clearTimeout(this.retryTimer)
    clearInterval(this.watch)
    removeEventListener('online', this.retry)
    this.drop()
  }

  private open(): void {
    this.say(this.failures ? 'reconnecting' : 'connecting')
    const address = new URL('api/live', document.baseURI)
    address.protocol = address.protocol.replace('http', 'ws')
    address.hash = ''
    const socket = new WebSocket(address)
    this.socket = socket
    this.started = false
    this.heardAt = performance.now()
    socket.onmessage = ({ data }) => this.hear(JSON.parse(String(data)) as World | Tick)
    socket.onclose = () => this.lost()
  }

  private hear(message: World | Tick): void {
    this.heardAt = performance.now()
    if (!this.started) {
      this.started = true
      this.failures = 0
      this.listener.opened()
    }
    if (this.state !== 'live') this.say('live')
    this.listener.message(message)
  }

  /** A server that hangs, or a network that swallows everything, closes nothing: only the silence tells. */
  private look(): void {
    if (!this.socket) return
    const silence = performance.now() - this.heardAt
    if (silence > LOST_MS) {
      this.drop()
      this.lost()
    } else if (silence > SILENT_MS && this.state === 'live') this.say('silent')
  }

  private drop(): void {
    if (this.socket) this.socket.onmessage = this.socket.onclose = null
    this.socket?.close()
    this.socket = null
  }

  private lost(): void {
    this.socket = null
    const wait = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.failures)
    this.failures += 1
    this.say(this.failures > 3 ? 'offline' : 'reconnecting', wait)
    this.retryTimer = setTimeout(() => this.open(), wait)
  }

  private say(state: Connection, retryInMs = 0): void {
    this.state = state
    this.listener.state(state, retryInMs)
  }
}
