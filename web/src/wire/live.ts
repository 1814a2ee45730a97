/** The live connection: a WebSocket that comes back by itself and says in which state it is. */
import type { Tick, World } from './messages'

export type Connection = 'connecting' | 'live' | 'reconnecting' | 'offline'

export interface LiveListener {
  message(message: World | Tick): void
  opened(): void
  state(state: Connection, retryInMs: number): void
}

const FIRST_RETRY_MS = 500
const LAST_RETRY_MS = 8000

export class LiveSocket {
  private socket: WebSocket | null = null
  private timer = 0
  private failures = 0
  private closed = false

  constructor(private readonly listener: LiveListener) {
    this.open()
    addEventListener('online', this.retry)
  }

  /** Try again now rather than when the timer says. */
  readonly retry = (): void => {
    if (this.closed || this.socket) return
    clearTimeout(this.timer)
    this.open()
  }

  close(): void {
    this.closed = true
    clearTimeout(this.timer)
    removeEventListener('online', this.retry)
    this.socket?.close()
  }

  private open(): void {
    this.listener.state(this.failures ? 'reconnecting' : 'connecting', 0)
    const address = new URL('api/live', document.baseURI)
    address.protocol = address.protocol.replace('http', 'ws')
    address.hash = ''
    const socket = new WebSocket(address)
    this.socket = socket
    let started = false
    socket.onmessage = ({ data }) => {
      if (this.closed) return
      if (!started) {
        started = true
        this.failures = 0
        this.listener.opened()
        this.listener.state('live', 0)
      }
      this.listener.message(JSON.parse(String(data)) as World | Tick)
    }
    socket.onclose = () => this.lost()
  }

  private lost(): void {
    this.socket = null
    if (this.closed) return
    const wait = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.failures)
    this.failures += 1
    this.listener.state(this.failures > 3 ? 'offline' : 'reconnecting', wait)
    this.timer = window.setTimeout(() => this.open(), wait)
  }
}
