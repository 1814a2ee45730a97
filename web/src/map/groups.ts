/** A recorded layer's groups in a fixed order, each with its colour. */
import type { Layer } from '../wire/messages'

export function groupsOf(layer: Layer): [group: string, brokers: string[]][] {
  const groups = new Map<string, string[]>()
  for (const [broker, { group }] of Object.entries(layer.brokers))
    groups.set(group, [...(groups.get(group) ?? []), broker])
  return [...groups].sort(([a, x], [b, y]) => y.length - x.length || a.localeCompare(b, 'en', { numeric: true }))
}

export const groupOf = (layer: Layer | null, broker: string): string | undefined => layer?.brokers[broker]?.group

/** A number per group, or null when there are no groups to tell apart. */
export function groupColours(layer: Layer | null): Map<string, number> | null {
  const groups = layer ? groupsOf(layer) : []
  return groups.length ? new Map(groups.map(([group], index) => [group, index])) : null
}
