/** Fences in words and as text a person can type: `lat,lon,km` for a circle, `lat,lon lat,lon …` for a polygon. */
import { count, degrees, metres } from '../model/numbers'
import type { Fence, Place } from '../wire/messages'

const CORNERS_MAX = 1000

export function fenceWords(fence: Fence | null): string {
  if (!fence) return 'everywhere'
  if (fence.type === 'Circle') return `within ${metres(fence.radius_m)} of ${degrees(...fence.center)}`
  if (fence.type === 'Polygon')
    return `a polygon of ${count(Math.max(0, (fence.coordinates[0]?.length ?? 1) - 1))} corners`
  if (fence.type === 'MultiPolygon') return `${count(fence.coordinates.length)} polygons`
  return fence.type
}

export function fenceToText(fence: Fence | null): string {
  if (!fence) return ''
  if (fence.type === 'Circle')
    return `${fixed(fence.center[0])},${fixed(fence.center[1])},${fixed(fence.radius_m / 1000)}`
  if (fence.type !== 'Polygon') return ''
  return (fence.coordinates[0] ?? [])
    .slice(0, -1)
    .map(([lon = 0, lat = 0]) => `${fixed(lat)},${fixed(lon)}`)
    .join(' ')
}

/** A fence, null for no text, or a sentence that says what is wrong. */
export function fenceFromText(text: string): Fence | null | string {
  const parts = text.trim().split(/\s+/).filter(Boolean)
  if (!parts.length) return null
  const numbers = parts.map((part) => part.split(',').map(Number))
  if (numbers.flat().some((value) => !Number.isFinite(value)))
    return 'A fence is lat,lon,km or at least three lat,lon pairs.'
  if (numbers.some(([lat = 0, lon = 0]) => Math.abs(lat) > 90 || Math.abs(lon) > 180))
    return 'Latitudes are within ±90, longitudes within ±180.'
  const [first = []] = numbers
  if (numbers.length === 1 && first.length === 3) {
    const [lat = 0, lon = 0, km = 0] = first
    return km > 0 ? { type: 'Circle', center: [lat, lon], radius_m: km * 1000 } : 'The radius must be positive.'
  }
  if (numbers.length < 3 || numbers.some((pair) => pair.length !== 2))
    return 'A fence is lat,lon,km or at least three lat,lon pairs.'
  if (numbers.length > CORNERS_MAX) return `A fence has at most ${CORNERS_MAX} corners.`
  const ring = numbers.map(([lat = 0, lon = 0]) => [lon, lat])
  return { type: 'Polygon', coordinates: [[...ring, ring[0]!]] }
}

/** A place, null for no text, or a sentence that says what is wrong. */
export function placeFromText(text: string): Place | null | string {
  if (!text.trim()) return null
  const [lat, lon, ...rest] = text.split(',').map((part) => Number(part.trim() || NaN))
  if (rest.length || !Number.isFinite(lat) || !Number.isFinite(lon)) return 'A location is lat,lon.'
  if (Math.abs(lat!) > 90 || Math.abs(lon!) > 180) return 'Latitudes are within ±90, longitudes within ±180.'
  return [lat!, lon!]
}

export const placeToText = (place: Place | null): string => (place ? place.map(fixed).join(',') : '')

const fixed = (value: number): string => String(Math.round(value * 1e4) / 1e4)
