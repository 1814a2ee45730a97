/** All that is known of a federation now, built from the server's world and tick messages. It draws nothing. */
import { KINDS } from '../wire/messages'
import type {
  BrokerNow,
  BrokerSite,
  EventSeen,
  Fence,
  Kind,
  OwnSubscription,
  Place,
  Received,
  Tick,
  World,
} from '../wire/messages'
import { Drops } from './drops'
import { Series } from './series'
import { Trials } from './trials'

const TICKS_PER_SECOND = 4
const SERIES_TICKS = 60 * TICKS_PER_SECOND
const EVENTS_MAX = 500
const RECEIVED_MAX = 100

export interface Broker extends BrokerSite {
  index: number
  now: BrokerNow
  load: Series
  latency: Series
}

export interface Client {
  id: string
  home: string
  at: Place | null
  /** Whether it may be moved from here; undefined when only the server knows. */
  movable: boolean | undefined
  /** Where it was before and when it moved, so that the map lets it glide. */
  from: Place | null
  movedAt: number
}

export type Totals = Record<Kind, number>
export const noTotals = (): Totals => ({ event: 0, subscription: 0, delivery: 0, location: 0, control: 0 })

const UNKNOWN: BrokerNow = {
  up: true,
  clients: 0,
  published: 0,
  delivered: 0,
  sent: 0,
  received: 0,
  latency_ms: null,
}

export class Federation {
  strategy = ''
  strategies: string[] = []
  areas: World['areas'] = 'nearest'
  /** Grows when brokers, their places or areas change, so that cells are computed once. */
  worldVersion = 0
  clientsVersion = 0
  subscriptionsVersion = 0
  eventsVersion = 0
  t = 0
  readonly brokers = new Map<string, Broker>()
  readonly clients = new Map<string, Client>()
  readonly subscriptions = new Map<string, Map<string, Fence | null>>()
  readonly events = new Map<string, EventSeen>()
  readonly received: Received[] = []
  own: OwnSubscription[] = []
  links: [from: string, to: string, latencyMs: number | null][] = []
  readonly totals = noTotals()
  readonly rates = Object.fromEntries(KINDS.map((kind) => [kind, new Series(SERIES_TICKS)])) as Record<Kind, Series>
  readonly published = new Series(SERIES_TICKS)
  readonly delivered = new Series(SERIES_TICKS)
  readonly latency = new Series(SERIES_TICKS)
  readonly trials = new Trials()
  private readonly drops = new Drops()
  skipped = 0

  applyWorld(world: World): void {
    this.strategy = world.strategy
    this.strategies = world.strategies
    this.areas = world.areas
    const known = new Map(this.brokers)
    this.brokers.clear()
    world.brokers.forEach((site, index) => {
      const before = known.get(site.name)
      this.brokers.set(site.name, {
        ...site,
        index,
        now: before?.now ?? UNKNOWN,
        load: before?.load ?? new Series(SERIES_TICKS),
        latency: before?.latency ?? new Series(SERIES_TICKS),
      })
    })
    this.worldVersion += 1
    this.trials.begin(world.strategy)
  }

  /** As if nothing had been seen yet; a replay that goes back starts so. */
  restart(world: World): void {
    this.forgetClients()
    this.brokers.clear()
    this.events.clear()
    this.eventsVersion += 1
    this.links = []
    Object.assign(this.totals, noTotals())
    for (const series of [...Object.values(this.rates), this.published, this.delivered, this.latency]) series.clear()
    this.trials.list.length = 0
    this.applyWorld(world)
  }

  /** Clients and subscriptions are sent whole on every connection; what was known before may be gone. */
  forgetClients(): void {
    this.clients.clear()
    this.drops.clear()
    this.subscriptions.clear()
    this.clientsVersion += 1
    this.subscriptionsVersion += 1
  }

  applyTick(tick: Tick, now: number): void {
    const seconds = tickLength(tick.t - this.t)
    this.t = tick.t
    this.skipped += tick.skipped ?? 0
    if (tick.links) this.links = tick.links
    if (tick.own) this.own = tick.own
    this.applyBrokers(tick.brokers ?? {})
    this.applyClients(tick, now)
    this.applySubscriptions(tick)
    this.applyEvents(tick.events ?? [])
    if (tick.received?.length) {
      this.received.push(...tick.received)
      this.received.splice(0, this.received.length - RECEIVED_MAX)
    }
    this.applyFlows(tick, seconds)
  }

  /** A person put a client there. */
  drop(id: string, at: Place): void {
    const client = this.clients.get(id)
    if (!client) return
    this.drops.begin(id, client.at)
    this.place(client, at, at)
  }

  dropAccepted(id: string): void {
    this.drops.accepted(id)
  }

  dropRefused(id: string): void {
    this.backTo(id, this.drops.refused(id))
  }

  subscribersOf(matches: (filter: string) => boolean): { client: string; filter: string; fence: Fence | null }[] {
    const found = []
    for (const [client, filters] of this.subscriptions)
      for (const [filter, fence] of filters) if (matches(filter)) found.push({ client, filter, fence })
    return found
  }

  private applyBrokers(brokers: Record<string, BrokerNow>): void {
    let published = 0
    let delivered = 0
    let weighted = 0
    let weights = 0
    for (const [name, now] of Object.entries(brokers)) {
      const broker = this.brokers.get(name)
      if (broker) broker.now = now
    }
    for (const broker of this.brokers.values()) {
      const { now } = broker
      published += now.published
      delivered += now.delivered
      if (now.latency_ms !== null) {
        const weight = Math.max(now.delivered, 0.01)
        weighted += now.latency_ms * weight
        weights += weight
      }
      broker.load.push(now.sent + now.received)
      broker.latency.push(now.latency_ms ?? NaN)
    }
    this.published.push(published)
    this.delivered.push(delivered)
    this.latency.push(weights ? weighted / weights : NaN)
  }

  private applyClients(tick: Tick, now: number): void {
    const { put = [], drop = [] } = tick.clients ?? {}
    for (const [id, said] of this.drops.tick()) this.backTo(id, said)
    for (const [id, home, lat, lon, movable] of put) {
      const said: Place | null = lat === null || lon === null ? null : [lat, lon]
      const before = this.clients.get(id)
      const at = this.drops.holds(id, said) ? said : (before?.at ?? said)
      const mayMove = movable === undefined ? undefined : movable !== null
      this.clients.set(id, { id, home, at, movable: mayMove, from: before?.at ?? at, movedAt: now })
    }
    for (const id of drop) {
      this.clients.delete(id)
      this.subscriptions.delete(id)
    }
    if (put.length || drop.length) this.clientsVersion += 1
  }

  private backTo(id: string, said: Place | null | undefined): void {
    const client = this.clients.get(id)
    if (client && said !== undefined) this.place(client, said, client.at)
  }

  private place(client: Client, at: Place | null, from: Place | null): void {
    this.clients.set(client.id, { ...client, at, from, movedAt: performance.now() })
    this.clientsVersion += 1
  }

  private applySubscriptions(tick: Tick): void {
    const { put = [], drop = [] } = tick.subscriptions ?? {}
    for (const [client, filter, fence] of put) {
      const filters = this.subscriptions.get(client) ?? new Map<string, Fence | null>()
      filters.set(filter, fence)
      this.subscriptions.set(client, filters)
    }
    for (const [client, filter] of drop) this.subscriptions.get(client)?.delete(filter)
    if (put.length || drop.length) this.subscriptionsVersion += 1
  }

  private applyEvents(events: EventSeen[]): void {
    for (const event of events) this.events.set(event.id, event)
    for (const id of this.events.keys()) {
      if (this.events.size <= EVENTS_MAX) break
      this.events.delete(id)
    }
    if (events.length) this.eventsVersion += 1
  }

  private applyFlows(tick: Tick, seconds: number): void {
    const counts = noTotals()
    for (const [, , kind, count] of tick.flows ?? []) counts[kind] += count
    for (const kind of KINDS) {
      this.totals[kind] += counts[kind]
      this.rates[kind].push(counts[kind] / seconds)
    }
    this.trials.record(counts, tick.published ?? 0, this.latency.last)
  }
}

/** A busy server ticks late; rates are per second all the same. After a gap nobody knows, so a tick is a tick. */
function tickLength(ms: number): number {
  return ms >= 50 && ms <= 3000 ? ms / 1000 : 1 / TICKS_PER_SECOND
}
