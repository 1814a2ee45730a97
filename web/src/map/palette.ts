/** The colours of the canvas, read from the stylesheet so that there is one place for them. */
import { KINDS, type Kind } from '../wire/messages'
import { CELL_COLOURS } from './cells'

export interface Palette {
  ocean: string
  oceanDeep: string
  land: string
  coast: string
  graticule: string
  halo: string
  ink: string
  inkSoft: string
  clientEdge: string
  broker: string
  brokerDown: string
  select: string
  fence: string
  own: string
  kinds: Record<Kind, string>
  cells: string[]
  /** What belongs to no area or group. */
  neutral: string
}

/** Area colours by number; they come again when there are more groups than colours. */
export const shade = (palette: Palette, colour: number | undefined): string =>
  colour === undefined ? palette.neutral : palette.cells[colour % palette.cells.length]!

export function readPalette(root: Element = document.documentElement): Palette {
  const style = getComputedStyle(root)
  const token = (name: string) => style.getPropertyValue(`--${name}`).trim()
  return {
    ocean: token('map-ocean'),
    oceanDeep: token('map-ocean-deep'),
    land: token('map-land'),
    coast: token('map-coast'),
    graticule: token('map-graticule'),
    halo: token('map-halo'),
    ink: token('ink'),
    inkSoft: token('ink-soft'),
    clientEdge: token('map-client-edge'),
    broker: token('map-broker'),
    brokerDown: token('map-broker-down'),
    select: token('map-select'),
    fence: token('map-fence'),
    own: token('map-own'),
    kinds: Object.fromEntries(KINDS.map((kind) => [kind, token(`kind-${kind}`)])) as Record<Kind, string>,
    neutral: token('map-neutral'),
    cells: Array.from({ length: CELL_COLOURS }, (_, index) => token(`cell-${index}`)),
  }
}
