/** Everything the map shows apart from where it looks from. Panels change it, layers draw it. */
import { Federation } from '../model/federation'
import type { Selection } from '../model/selection'
import { KINDS, type Fence, type Kind, type Layer, type Place } from '../wire/messages'

export interface Highlight {
  fences: Fence[]
  lines: [from: Place, to: Place, kind: Kind | null][]
  clients: Set<string>
  brokers: Set<string>
}
export const nothingHighlighted = (): Highlight => ({ fences: [], lines: [], clients: new Set(), brokers: new Set() })

export type Draft =
  { tool: 'circle'; centre: Place; radius_m: number } | { tool: 'polygon'; corners: Place[]; cursor: Place | null }

export class Scene {
  federation = new Federation()
  selection: Selection | null = null
  highlight: Highlight = nothingHighlighted()
  readonly kinds = new Set<Kind>(KINDS)
  readonly layers = { areas: true, clients: true, fences: true, labels: true, links: false }
  /** A recorded layer: brokers in groups, lines between them. */
  recorded: Layer | null = null
  /** Broker sizes by something else than their load now. */
  load: Map<string, number> | null = null
  draft: Draft | null = null
  /** The fence that is drawn and not used yet. */
  fence: Fence | null = null
  /** Where the page's own client stands. */
  here: Place | null = null
  dragged: { client: string; at: Place } | null = null
  /** The crosshair for drawing with the keyboard. */
  crosshair = false
  /** Grows with every change that the still layer must show. */
  version = 0

  /** One event or topic is looked at: everything else steps back. */
  get focused(): boolean {
    return this.selection?.what === 'event' || this.selection?.what === 'topic'
  }

  changed(): void {
    this.version += 1
  }
}

export type LayerName = keyof Scene['layers']
