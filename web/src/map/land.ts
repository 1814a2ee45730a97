/** Natural Earth land: a light version at once, the fine one when the page has time for it. */
import type { MultiPolygon } from 'geojson'
import { feature } from 'topojson-client'
import type { GeometryCollection, Topology } from 'topojson-specification'
import coarseTopology from 'world-atlas/land-110m.json'
import fineUrl from 'world-atlas/land-50m.json?url'

export const coarseLand = shapeOf(coarseTopology as unknown as Topology)

export async function fineLand(): Promise<MultiPolygon> {
  return shapeOf((await (await fetch(fineUrl)).json()) as Topology)
}

function shapeOf(topology: Topology): MultiPolygon {
  const { features } = feature(topology, topology.objects['land'] as GeometryCollection)
  return features[0]!.geometry as MultiPolygon
}
