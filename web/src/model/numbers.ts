/** How numbers are written on the page. */
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 })

export const count = (value: number): string => whole.format(value)
export const short = (value: number): string => (value < 10_000 ? whole.format(value) : compact.format(value))

export function rate(value: number): string {
  if (Number.isNaN(value)) return '–'
  if (value >= 100) return short(value)
  return value >= 10 ? value.toFixed(0) : value.toFixed(1)
}

export function milliseconds(value: number | null): string {
  if (value === null || Number.isNaN(value)) return '–'
  return `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ms`
}

export function degrees(lat: number, lon: number, digits = 2): string {
  const northing = `${Math.abs(lat).toFixed(digits)}° ${lat < 0 ? 'S' : 'N'}`
  return `${northing}, ${Math.abs(lon).toFixed(digits)}° ${lon < 0 ? 'W' : 'E'}`
}

export function metres(value: number): string {
  if (value >= 10_000) return `${whole.format(value / 1000)} km`
  return value >= 1000 ? `${(value / 1000).toFixed(1)} km` : `${whole.format(value)} m`
}

export const clock = (t: number): string => new Date(t).toLocaleTimeString('en-GB')
