/** A recorded layer's groups in a fixed order, each with its colour. */
import type { Layer } from '../wire/messages'

export function groupsOf(layer: Layer): [group: string, brokers: string[]][] {
  const groups = new Map<string, string[]>()
  for (const [broker, { group }] of Object.entries(layer.brokers))
    groups.set(group, [...(groups.get(group) ?? []), broker])
  return [...groups].sort(([a, x], [b, y]) => y.length - x.length || a.localeCompare(b, 'en', { numeric: true }))
}

export const groupOf = (layer: Layer, broker: string): string | undefined => layer.brokers[broker]?.group

export function groupColours(layer: Layer): Map<string, number> {
  return new Map(groupsOf(layer).map(([group], index) => [group, index]))
}
