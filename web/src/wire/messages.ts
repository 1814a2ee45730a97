/** What the dashboard's server says, as it says it. Places are [lat, lon]; only GeoJSON is (lon, lat). */
import type { Geometry } from 'geojson'

export const KINDS = ['event', 'subscription', 'delivery', 'location', 'control'] as const
export type Kind = (typeof KINDS)[number]

export type Place = [lat: number, lon: number]
export type Circle = { type: 'Circle'; center: Place; radius_m: number }
export type Fence = Circle | Geometry

export interface Session {
  version: string
  login_required: boolean
  admin: boolean
  logged_in?: boolean
  reason?: string
}

export type ViewKind = 'live' | 'setup' | 'results' | 'replay'
export interface ViewEntry {
  id: string
  title: string
  kind: ViewKind
}

export interface BrokerSite {
  name: string
  lat: number
  lon: number
  address?: string | null
  area: Geometry | null
}

export interface World {
  type: 'world'
  /** The whole state follows; what is not in it is gone. */
  whole?: boolean
  strategy: string
  strategies: string[]
  brokers: BrokerSite[]
  areas: 'nearest' | 'polygons' | 'grid'
}

export interface BrokerNow {
  up: boolean
  clients: number
  published: number
  delivered: number
  sent: number
  received: number
  latency_ms: number | null
}

export type ClientRow = [id: string, home: string, lat: number | null, lon: number | null, movable?: string | null]
export type SubscriptionRow = [client: string, filter: string, fence: Fence | null]

export interface EventSeen {
  id: string
  topic: string
  client: string
  home: string
  at: Place | null
  fence: Fence | null
  t: number
  delivered: number
}

export interface Received {
  topic: string
  payload: string
  id: string | null
  t: number
}

/** A subscription of the page's own, shared by all open pages. */
export interface OwnSubscription {
  broker: string
  filter: string
  fence: Fence | null
  /** Where the page's client at this broker is. */
  at: Place | null
}

export interface Tick {
  type: 'tick'
  t: number
  brokers?: Record<string, BrokerNow>
  links?: [from: string, to: string, latencyMs: number | null][]
  clients?: { put?: ClientRow[]; drop?: string[] }
  subscriptions?: { put?: SubscriptionRow[]; drop?: [client: string, filter: string][] }
  flows?: [from: string, to: string, kind: Kind, count: number][]
  /** Events published since the last tick; they and the flows are counted from the same records. */
  published?: number
  events?: EventSeen[]
  received?: Received[]
  /** All there are, when they changed. */
  own?: OwnSubscription[]
  skipped?: number
}

export interface WhyStep {
  t: number
  broker: string
  step: string
  text: string
  peer: string | null
  client: string | null
}
export interface AskedBroker {
  broker: string
  asked: boolean
  text: string
}
export interface Why {
  id: string
  steps: WhyStep[]
  /** The strategy that it was routed by. */
  strategy: string
  brokers: AskedBroker[]
  /** What became of it for those who subscribe to its topic. */
  summary: string
  /** Null where deliveries were not recorded. */
  reached?: string[] | null
  /** Why it did or did not reach the clients that were asked about. */
  clients?: Record<string, { verdict: string; text: string }>
}

export interface ClientDetails {
  id: string
  home: string
  at: Place | null
  subscriptions: { filter: string; fence: Fence | null }[]
  delivered: number
  published: number
  connected: boolean
}

export interface Layer {
  name: string
  title: string
  text?: string
  /** Brokers that are not named are in no group. */
  brokers: Record<string, { label: string; group: string }>
  lines: [from: string, to: string, kind: string, weight?: number][]
}

export interface Spread {
  count: number
  mean: number | null
  std: number | null
  p5: number | null
  p25: number | null
  p50: number | null
  p75: number | null
  p95: number | null
  p99: number | null
  max: number | null
}

export interface StrategyResult {
  messages: Record<Kind | 'total', number>
  latency_ms: Spread
  subscription_delay_ms: Spread
  deliveries: number
  redundant: number
  load?: Record<string, { sent: number; received: number }>
}

export interface Run {
  run: Record<string, string | number>
  events: number
  subscriptions: number
  strategies: Record<string, StrategyResult>
}
export type Results = Run | { runs: Run[] }

export interface RecordedView {
  id: string
  title: string
  kind: ViewKind
  world: World
  layers?: Layer[] | null
  results?: Results | null
  frames?: Tick[] | null
  start?: number | null
  end?: number | null
}
