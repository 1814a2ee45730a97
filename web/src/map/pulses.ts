/** Events as they happen: the event's fence lights up and fades; without a fence, a ring where it was published. */
import { geoPath } from 'd3-geo'
import type { Geometry } from 'geojson'
import type { EventSeen, Place } from '../wire/messages'
import type { Camera } from './camera'
import type { Palette } from './palette'
import { dot, type Pen } from './pen'
import { centreOf, fenceShape } from './sphere'

const PULSES_MAX = 40
const LIFETIME_MS = 1600
const SMALLEST_PX = 5

interface Pulse {
  at: Place
  shape: Geometry | null
  start: number
}

export class Pulses {
  private pulses: Pulse[] = []

  get active(): boolean {
    return this.pulses.length > 0
  }

  spawn(events: EventSeen[], now: number): void {
    for (const event of events.slice(-PULSES_MAX)) {
      const at = (event.fence && centreOf(event.fence)) ?? event.at
      if (!at) continue
      this.pulses.push({ at, shape: event.fence && fenceShape(event.fence), start: now + Math.random() * 250 })
    }
    this.pulses.splice(0, this.pulses.length - PULSES_MAX)
  }

  clear(): void {
    this.pulses = []
  }

  draw(pen: Pen, camera: Camera, palette: Palette, now: number): void {
    this.pulses = this.pulses.filter((pulse) => now < pulse.start + LIFETIME_MS)
    const path = geoPath(camera.projection, pen as unknown as CanvasRenderingContext2D)
    pen.strokeStyle = palette.kinds.event
    pen.fillStyle = palette.kinds.event
    for (const { at, shape, start } of this.pulses) {
      const age = (now - start) / LIFETIME_MS
      const centre = age >= 0 && camera.toScreen(...at)
      if (!centre) continue
      pen.beginPath()
      if (shape && path.area(shape) > SMALLEST_PX ** 2 * 4) path(shape)
      else dot(pen, centre[0], centre[1], SMALLEST_PX + 6 * age)
      pen.globalAlpha = 0.12 * (1 - age)
      pen.fill()
      pen.globalAlpha = 0.75 * (1 - age)
      pen.lineWidth = 1.2
      pen.stroke()
    }
    pen.globalAlpha = 1
  }
}
