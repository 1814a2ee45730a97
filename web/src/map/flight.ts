/** Smooth camera moves. */
import type { Camera } from './camera'
import { angle, toPlace, toVector, type Vector } from './sphere'

/** As near as a view of several places goes. */
const NEAREST = 60

export interface Pose {
  lat: number
  lon: number
  zoom: number
}

export class Flight {
  private from: Pose | null = null
  private to: Pose = { lat: 0, lon: 0, zoom: 1 }
  private started = 0
  private duration = 0

  constructor(private readonly camera: Camera) {}

  start(to: Pose, duration: number): void {
    const { lat, lon, zoom } = this.camera
    this.from = { lat, lon, zoom }
    this.to = to
    this.started = performance.now()
    this.duration = duration
  }

  /** Move a little; returns whether there is more to go. */
  step(now: number): boolean {
    if (!this.from) return false
    const t = this.duration ? Math.min(1, Math.max(0, now - this.started) / this.duration) : 1
    const part = t < 0.5 ? 4 * t ** 3 : 1 - (-2 * t + 2) ** 3 / 2
    const { from, to } = this
    const turn = ((((to.lon - from.lon + 180) % 360) + 360) % 360) - 180
    this.camera.look(
      from.lat + (to.lat - from.lat) * part,
      from.lon + turn * part,
      Math.exp(Math.log(from.zoom) * (1 - part) + Math.log(to.zoom) * part),
    )
    if (t < 1) return true
    this.from = null
    return false
  }

  /** The pose that shows these places well: their middle, as near as they allow. */
  static viewOf(places: { lat: number; lon: number }[], globe: boolean): Pose {
    if (!places.length) return { lat: 20, lon: 10, zoom: 1 }
    const sum: Vector = [0, 0, 0]
    const vectors = places.map(({ lat, lon }) => toVector(lat, lon))
    for (const vector of vectors) vector.forEach((value, axis) => (sum[axis]! += value))
    const [lat, lon] = toPlace(sum)
    const middle = toVector(lat, lon)
    const spread = Math.max(...vectors.map((vector) => angle(middle, vector)))
    if (!globe)
      return spread > 1
        ? { lat: 10, lon: spread > 1.8 ? 0 : lon, zoom: 1 }
        : { lat, lon, zoom: Math.min(NEAREST, 1 / spread) }
    const level = spread < 0.6 ? lat : Math.max(-35, Math.min(35, lat))
    return { lat: level, lon, zoom: spread < 0.6 ? Math.min(NEAREST, 0.6 / spread) : 1 }
  }
}
