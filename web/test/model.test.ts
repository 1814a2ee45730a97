import { describe, expect, test } from 'vitest'
import { Federation } from '../src/model/federation'
import { Replay } from '../src/model/replay'
import { Series } from '../src/model/series'
import { topicMatches, topicSearch } from '../src/model/topics'
import { perEvent } from '../src/model/trials'
import type { ClientRow, Tick, World } from '../src/wire/messages'

const world: World = {
  type: 'world',
  strategy: 'dht',
  strategies: ['dht', 'adaptive'],
  brokers: [
    { name: 'paris', lat: 48.9, lon: 2.4, area: null },
    { name: 'columbus', lat: 40, lon: -83, area: null },
  ],
  areas: 'nearest',
}
const now = { up: true, clients: 1, published: 4, delivered: 8, sent: 2, received: 1, latency_ms: 20 }
const tick = (t: number, more: Partial<Tick> = {}): Tick => ({ type: 'tick', t, brokers: { paris: now }, ...more })

test('a series keeps the latest values, oldest first', () => {
  const series = new Series(3)
  for (const value of [1, 2, 3, 4]) series.push(value)
  expect(series.toArray()).toEqual([2, 3, 4])
  expect(series.mean(2)).toBe(3.5)
})

test.each([
  ['a/+', 'a/b', true],
  ['a/+', 'a', false],
  ['a/#', 'a', true],
  ['#', '$SYS/x', false],
  ['+/x', '$SYS/x', false],
  ['$SYS/#', '$SYS/x', true],
  ['$share/g/a/#', 'a/b/c', true],
  ['a/b', 'a/b/c', false],
])('filter %s on topic %s is %s', (filter, topic, expected) => expect(topicMatches(filter, topic)).toBe(expected))

test('people search by filter or by any part of a topic', () => {
  expect(topicSearch('weather/#')('weather/rain')).toBe(true)
  expect(topicSearch('RAIN')('weather/rain')).toBe(true)
  expect(topicSearch('')('anything')).toBe(true)
})

describe('a federation', () => {
  test('counts flows by kind and remembers clients until they are dropped', () => {
    const federation = new Federation()
    federation.applyWorld(world)
    federation.applyTick(
      tick(0, {
        flows: [['paris', 'columbus', 'event', 3]],
        clients: { put: [['c', 'paris', 48, 2, 'demo']] },
        subscriptions: { put: [['c', 'a/#', null]] },
      }),
      0,
    )
    expect(federation.totals.event).toBe(3)
    expect(federation.rates.event.last).toBe(12)
    federation.applyTick(tick(500, { flows: [['paris', 'columbus', 'event', 3]] }), 500)
    expect(federation.rates.event.last).toBe(6)
    expect(federation.clients.get('c')?.movable).toBe(true)
    expect(federation.subscribersOf((filter) => topicMatches(filter, 'a/b'))).toHaveLength(1)
    federation.applyTick(tick(750, { clients: { drop: ['c'] } }), 750)
    expect(federation.clients.size + federation.subscriptions.size).toBe(0)
  })

  test('keeps what each strategy cost, per event, across a switch', () => {
    const federation = new Federation()
    federation.applyWorld(world)
    for (let step = 0; step < 4; step += 1)
      federation.applyTick(tick(step * 250, { flows: [['paris', 'columbus', 'delivery', 2]], published: 1 }), 0)
    federation.applyWorld({ ...world, strategy: 'adaptive' })
    expect(federation.trials.list.map(({ strategy }) => strategy)).toEqual(['dht', 'adaptive'])
    expect(perEvent(federation.trials.list[0]!)?.delivery).toBe(2)
  })

  test('costs under flooding one message per event for each other broker, whatever else clients send', () => {
    const federation = new Federation()
    federation.applyWorld({ ...world, strategy: 'flood_events' })
    const busy = { ...now, published: 40 }
    for (const published of [3, 0, 1])
      federation.applyTick(
        tick(0, { brokers: { paris: busy }, flows: [['paris', 'columbus', 'event', 2 * published]], published }),
        0,
      )
    expect(perEvent(federation.trials.current!)?.event).toBe(2)
  })

  test('shows an event once, with its latest count of deliveries', () => {
    const federation = new Federation()
    federation.applyWorld(world)
    const event = { id: 'e', topic: 't', client: 'c', home: 'paris', at: null, fence: null, t: 0, delivered: 1 }
    federation.applyTick(tick(0, { events: [event, { ...event, delivered: 5 }] }), 0)
    expect([...federation.events.values()].map(({ delivered }) => delivered)).toEqual([5])
  })
})

describe('a client that a person drops somewhere', () => {
  const here: [number, number] = [48, 2]
  const there: [number, number] = [50, 9]
  const put = (lat: number, lon: number) => ({ clients: { put: [['c', 'paris', lat, lon] as ClientRow] } })

  function dropped() {
    const federation = new Federation()
    federation.applyWorld(world)
    federation.applyTick(tick(0, put(...here)), 0)
    federation.drop('c', there)
    return { federation, at: () => federation.clients.get('c')?.at }
  }

  test('is there at once, also while its broker still says otherwise', () => {
    const { federation, at } = dropped()
    expect(at()).toEqual(there)
    federation.applyTick(tick(250, put(48.1, 2)), 250)
    expect(at()).toEqual(there)
  })

  test('is where its broker says after the answer', () => {
    const { federation, at } = dropped()
    federation.dropAccepted('c')
    expect(at()).toEqual(there)
    federation.applyTick(tick(250, put(49, 8)), 250)
    expect(at()).toEqual([49, 8])
  })

  test('goes back when it may not go there, or when no broker says it went', () => {
    const refused = dropped()
    refused.federation.dropRefused('c')
    expect(refused.at()).toEqual(here)
    const silent = dropped()
    silent.federation.dropAccepted('c')
    for (let step = 1; step < 20; step += 1) silent.federation.applyTick(tick(step * 250), step * 250)
    expect(silent.at()).toEqual(here)
  })
})

test('a replay that goes back and forth ends in the same state', () => {
  const frames = [0, 250, 500, 750].map((t) => tick(t, { flows: [['paris', 'columbus', 'event', 1]] }))
  const replay = new Replay({ id: 'r', title: 'r', kind: 'replay', world, frames, start: 0, end: 750 })
  replay.seek(750, 0)
  expect(replay.federation.totals.event).toBe(4)
  replay.seek(250, 0)
  expect(replay.federation.totals.event).toBe(2)
  replay.advance(750, 0)
  expect(replay.federation.totals.event).toBe(4)
  expect(replay.over).toBe(true)
})
