/** Points on the unit sphere and the shapes of fences on it. Pure. */
import { geoCircle } from 'd3-geo'
import type { Geometry, MultiPolygon, Polygon, Position } from 'geojson'
import type { Circle, Fence, Place } from '../wire/messages'

export type Vector = [x: number, y: number, z: number]

export const EARTH_RADIUS_M = 6_371_008.8
const RADIANS = Math.PI / 180
/** GeoMQ's polygon edges are straight in lon/lat, d3's are great circles: long edges are split before drawing. */
const EDGE_DEG_MAX = 2

export function toVector(lat: number, lon: number): Vector {
  const phi = lat * RADIANS
  const lambda = lon * RADIANS
  return [Math.cos(phi) * Math.cos(lambda), Math.cos(phi) * Math.sin(lambda), Math.sin(phi)]
}

export function toPlace([x, y, z]: Vector): Place {
  return [Math.atan2(z, Math.hypot(x, y)) / RADIANS, Math.atan2(y, x) / RADIANS]
}

/** The angle between two places, in radians. */
export function angle(a: Vector, b: Vector): number {
  const cross = Math.hypot(a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
  return Math.atan2(cross, a[0] * b[0] + a[1] * b[1] + a[2] * b[2])
}

export const distanceM = (a: Place, b: Place): number => angle(toVector(...a), toVector(...b)) * EARTH_RADIUS_M

/** `count` points from `a` to `b` along the great circle, both included. */
export function greatCircle(a: Vector, b: Vector, count: number): Vector[] {
  const omega = angle(a, b)
  const sine = Math.sin(omega)
  return Array.from({ length: count }, (_, index) => {
    const t = index / (count - 1)
    if (sine < 1e-9) return a
    const p = Math.sin((1 - t) * omega) / sine
    const q = Math.sin(t * omega) / sine
    return [p * a[0] + q * b[0], p * a[1] + q * b[1], p * a[2] + q * b[2]]
  })
}

export const isCircle = (fence: Fence): fence is Circle => fence.type === 'Circle'

/** A fence as d3 wants it: circles become polygons, edges are split, rings wind clockwise. */
export function fenceShape(fence: Fence): Geometry {
  if (!isCircle(fence)) return drawable(fence)
  const [lat, lon] = fence.center
  const radius = Math.min(179, fence.radius_m / EARTH_RADIUS_M / RADIANS)
  return geoCircle().center([lon, lat]).radius(radius).precision(6)()
}

export function drawable(geometry: Geometry): Geometry {
  if (geometry.type === 'Polygon') return { type: 'Polygon', coordinates: polygon(geometry.coordinates) }
  if (geometry.type === 'MultiPolygon')
    return { type: 'MultiPolygon', coordinates: geometry.coordinates.map(polygon) } satisfies MultiPolygon
  return geometry
}

function polygon(rings: Polygon['coordinates']): Polygon['coordinates'] {
  return rings.map((ring, index) => {
    const clockwise = signedArea(ring) < 0
    return split(clockwise === (index === 0) ? ring : ring.toReversed())
  })
}

function signedArea(ring: Position[]): number {
  let sum = 0
  ring.forEach(([x = 0, y = 0], index) => {
    const [nextX = 0, nextY = 0] = ring[(index + 1) % ring.length] ?? []
    sum += x * nextY - nextX * y
  })
  return sum / 2
}

function split(ring: Position[]): Position[] {
  const result: Position[] = ring.slice(0, 1)
  for (let index = 1; index < ring.length; index += 1) {
    const [x0 = 0, y0 = 0] = ring[index - 1] ?? []
    const [x1 = 0, y1 = 0] = ring[index] ?? []
    const parts = Math.max(1, Math.ceil(Math.max(Math.abs(x1 - x0), Math.abs(y1 - y0)) / EDGE_DEG_MAX))
    for (let part = 1; part <= parts; part += 1)
      result.push([x0 + ((x1 - x0) * part) / parts, y0 + ((y1 - y0) * part) / parts])
  }
  return result
}

export function centreOf(fence: Fence): Place | null {
  if (isCircle(fence)) return fence.center
  const ring =
    fence.type === 'Polygon' ? fence.coordinates[0] : fence.type === 'MultiPolygon' ? fence.coordinates[0]?.[0] : null
  if (!ring?.length) return null
  const sum: Vector = [0, 0, 0]
  for (const [lon = 0, lat = 0] of ring) toVector(lat, lon).forEach((value, axis) => (sum[axis]! += value))
  return toPlace(sum)
}
