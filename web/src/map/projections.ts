/** The ways the earth is shown. */
import {
  geoEqualEarth,
  geoEquirectangular,
  geoMercator,
  geoNaturalEarth1,
  geoOrthographic,
  type GeoProjection,
} from 'd3-geo'

export interface ProjectionChoice {
  title: string
  create: () => GeoProjection
  /** Half the width and half the height of the whole earth at scale 1. */
  extent: [number, number]
  latMax: number
}

export const PROJECTIONS = {
  globe: { title: 'Globe', create: geoOrthographic, extent: [1, 1], latMax: 90 },
  natural: { title: 'Natural Earth', create: geoNaturalEarth1, extent: [2.736, 1.424], latMax: 90 },
  equal: { title: 'Equal Earth', create: geoEqualEarth, extent: [2.707, 1.317], latMax: 90 },
  mercator: { title: 'Mercator', create: geoMercator, extent: [Math.PI, 2.4], latMax: 84 },
  plate: { title: 'Equirectangular', create: geoEquirectangular, extent: [Math.PI, Math.PI / 2], latMax: 90 },
} satisfies Record<string, ProjectionChoice>

export type ProjectionName = keyof typeof PROJECTIONS
export const isProjection = (name: string): name is ProjectionName => name in PROJECTIONS
