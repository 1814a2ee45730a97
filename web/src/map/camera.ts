/** Where the map looks from: a projection, a centre and a zoom. Everything on the map asks it for screen places. */
import { geoDistance, type GeoProjection } from 'd3-geo'
import type { Place } from '../wire/messages'
import { PROJECTIONS, type ProjectionName } from './projections'
import { toPlace, type Vector } from './sphere'

export const ZOOM_MAX = 2000
const MARGIN = 0.88
const RADIANS = Math.PI / 180

export class Camera {
  name: ProjectionName = 'globe'
  lat = 30
  lon = -30
  zoom = 1
  width = 1
  height = 1
  /** Grows with every change; what was drawn for an older version is stale. */
  version = 0
  projection: GeoProjection = PROJECTIONS.globe.create()
  private matrix: Float64Array = new Float64Array(9)

  constructor() {
    this.changed()
  }

  get isGlobe(): boolean {
    return this.name === 'globe'
  }

  /** Pixels per radian at the centre. */
  get scale(): number {
    const [x, y] = PROJECTIONS[this.name].extent
    return Math.min(this.width / 2 / x, this.height / 2 / y) * MARGIN * this.zoom
  }

  use(name: ProjectionName): void {
    this.name = name
    this.projection = PROJECTIONS[name].create()
    this.changed()
  }

  resize(width: number, height: number): void {
    this.width = width
    this.height = height
    this.changed()
  }

  look(lat: number, lon: number, zoom = this.zoom): void {
    const { latMax } = PROJECTIONS[this.name]
    this.zoom = Math.min(ZOOM_MAX, Math.max(this.zoomMin, zoom))
    this.lat = Math.min(latMax, Math.max(-latMax, lat))
    this.lon = ((((lon + 180) % 360) + 360) % 360) - 180
    this.changed()
  }

  /** Move so that what was under one pixel comes under another. */
  pan(dx: number, dy: number): void {
    if (this.isGlobe) {
      const perPixel = 1 / this.scale / RADIANS
      const stretch = 1 / Math.max(0.2, Math.cos(this.lat * RADIANS))
      this.look(this.lat + dy * perPixel, this.lon - dx * perPixel * stretch)
      return
    }
    const centre = this.projection.invert?.([this.width / 2 - dx, this.height / 2 - dy])
    if (centre && centre.every(Number.isFinite)) this.look(centre[1], centre[0])
  }

  /** Zoom, keeping the place under (x, y) where it is. */
  zoomAt(factor: number, x: number, y: number): void {
    const before = this.placeAt(x, y)
    this.look(this.lat, this.lon, this.zoom * factor)
    const after = before && this.placeAt(x, y)
    if (before && after) this.look(this.lat + before[0] - after[0], this.lon + wrap(before[1] - after[1]))
  }

  placeAt(x: number, y: number): Place | null {
    const [centreX, centreY] = this.projection.translate()
    if (this.isGlobe && Math.hypot(x - centreX, y - centreY) > this.scale) return null
    const place = this.projection.invert?.([x, y])
    if (!place || !place.every(Number.isFinite) || Math.abs(place[1]) > 90) return null
    if (!this.isGlobe) {
      const back = this.projection(place)
      if (!back || Math.hypot(back[0] - x, back[1] - y) > 1) return null
    }
    return [place[1], place[0]]
  }

  /** Screen place of a location, or null when it is on the far side. */
  toScreen(lat: number, lon: number): [number, number] | null {
    if (this.isGlobe && geoDistance([lon, lat], [this.lon, this.lat]) > Math.PI / 2) return null
    return this.projection([lon, lat])
  }

  /** As toScreen, from a vector, fast and into an array at `offset`; false when it is hidden behind the globe. */
  vectorInto(vector: Vector, into: Float32Array, offset: number): boolean {
    if (!this.isGlobe) {
      const [lat, lon] = toPlace(vector)
      const point = this.projection([lon, lat])
      into[offset] = point ? point[0] : NaN
      into[offset + 1] = point ? point[1] : NaN
      return point !== null
    }
    const m = this.matrix
    const [x, y, z] = vector
    const depth = m[0]! * x + m[1]! * y + m[2]! * z
    const right = m[3]! * x + m[4]! * y + m[5]! * z
    const up = m[6]! * x + m[7]! * y + m[8]! * z
    into[offset] = this.width / 2 + this.scaleNow * right
    into[offset + 1] = this.height / 2 - this.scaleNow * up
    return depth > 0 || right * right + up * up > 1
  }

  private scaleNow = 1

  private get zoomMin(): number {
    return this.isGlobe ? 0.5 : 0.7
  }

  private changed(): void {
    const { projection, lat, lon, width, height } = this
    const scale = this.scale
    this.scaleNow = scale
    projection.scale(scale).translate([width / 2, height / 2])
    if (this.isGlobe) {
      projection.rotate([-lon, -lat]).clipAngle(90)
    } else {
      projection.rotate([-lon, 0])
      const [, y = height / 2] = projection([lon, lat]) ?? []
      projection.translate([width / 2, height - y])
    }
    const slack = 20
    projection.clipExtent([
      [-slack, -slack],
      [width + slack, height + slack],
    ])
    this.matrix = rotation(lat * RADIANS, lon * RADIANS)
    this.version += 1
  }
}

function rotation(phi: number, lambda: number): Float64Array {
  const [sp, cp, sl, cl] = [Math.sin(phi), Math.cos(phi), Math.sin(lambda), Math.cos(lambda)]
  return new Float64Array([cp * cl, cp * sl, sp, -sl, cl, 0, -sp * cl, -sp * sl, cp])
}

const wrap = (degrees: number): number => ((((degrees + 180) % 360) + 360) % 360) - 180
