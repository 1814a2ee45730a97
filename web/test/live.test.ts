import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { LiveSocket, type Connection } from '../src/wire/live'

class Socket {
  static readonly opened: Socket[] = []
  onmessage: ((event: { data: string }) => void) | null = null
  onclose: (() => void) | null = null

  constructor() {
    Socket.opened.push(this)
  }

  close(): void {}

  tick(): void {
    this.onmessage?.({ data: '{"type": "tick", "t": 0}' })
  }
}

let states: Connection[]
let live: LiveSocket

beforeEach(() => {
  vi.useFakeTimers()
  vi.stubGlobal('WebSocket', Socket)
  vi.stubGlobal('document', { baseURI: 'http://127.0.0.1/' })
  vi.stubGlobal('addEventListener', () => undefined)
  vi.stubGlobal('removeEventListener', () => undefined)
  Socket.opened.length = 0
  states = []
  live = new LiveSocket({ message: () => undefined, opened: () => undefined, state: (state) => states.push(state) })
})

afterEach(() => {
  live.close()
  vi.unstubAllGlobals()
  vi.useRealTimers()
})

test('a connection is live as long as the server speaks, and says when it does not', () => {
  const [socket] = Socket.opened
  for (let count = 0; count < 40; count += 1) {
    socket!.tick()
    vi.advanceTimersByTime(250)
  }
  expect(states).toEqual(['connecting', 'live'])
  vi.advanceTimersByTime(2500)
  expect(states.at(-1)).toBe('silent')
  socket!.tick()
  expect(states.at(-1)).toBe('live')
})

test('a connection on which nothing comes for long is given up for a new one', () => {
  Socket.opened[0]!.tick()
  vi.advanceTimersByTime(12_000)
  expect(states.at(-1)).toBe('reconnecting')
  expect(Socket.opened).toHaveLength(2)
  Socket.opened[1]!.tick()
  expect(states.at(-1)).toBe('live')
})

test('a server that takes the connection and never answers is tried again', () => {
  vi.advanceTimersByTime(12_000)
  expect(Socket.opened.length).toBeGreaterThan(1)
  expect(states).not.toContain('live')
})

test('a closed connection stays closed', () => {
  live.close()
  vi.advanceTimersByTime(60_000)
  expect(Socket.opened).toHaveLength(1)
})
