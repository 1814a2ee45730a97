/** Broker areas as shapes, and a colour for each such that neighbours differ. Computed once per world. */
import { geoVoronoi } from 'd3-geo-voronoi'
import type { Geometry } from 'geojson'
import type { Broker } from '../model/federation'
import { drawable } from './sphere'

export interface Cell {
  broker: string
  shape: Geometry
  colour: number
}

export const CELL_COLOURS = 6

export function cellsOf(brokers: Broker[], areas: 'nearest' | 'polygons' | 'grid'): Cell[] {
  if (!brokers.length) return []
  const voronoi = geoVoronoi(brokers.map(separated))
  const colours = colouring(brokers, brokers.length > 1 ? voronoi.delaunay.neighbors : [[]])
  const cells = areas === 'nearest' ? voronoi.polygons().features.map((cell) => cell.geometry as Geometry | null) : []
  return brokers.flatMap((broker, index) => {
    const shape = broker.area ? drawable(broker.area) : (cells[index] ?? null)
    return shape ? [{ broker: broker.name, shape, colour: colours[index] ?? 0 }] : []
  })
}

/** Two brokers in one place, or all on one great circle, have no proper cells: a metre apart they do. */
function separated({ lat, lon }: Broker, index: number): [number, number] {
  return [lon + 1e-5 * Math.sin(index * 2.4), lat + 1e-5 * Math.cos(index * 1.7)]
}

function colouring(brokers: Broker[], neighbours: number[][]): number[] {
  const colours: number[] = []
  const used = new Array<number>(CELL_COLOURS).fill(0)
  brokers.forEach((_, index) => {
    const taken = new Set((neighbours[index] ?? []).map((other) => colours[other]))
    const free = [...used.keys()].filter((colour) => !taken.has(colour))
    const choice = (free.length ? free : [...used.keys()]).reduce((a, b) => (used[b]! < used[a]! ? b : a))
    colours[index] = choice
    used[choice]! += 1
  })
  return colours
}
