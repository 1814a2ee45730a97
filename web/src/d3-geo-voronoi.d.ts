declare module 'd3-geo-voronoi' {
  import type { Polygon } from 'geojson'
  interface GeoVoronoi {
    polygons(): { features: { geometry: Polygon | null; properties: { sitecoordinates: [number, number] } }[] }
    delaunay: { neighbors: number[][] }
  }
  export function geoVoronoi(sites: [number, number][]): GeoVoronoi
}
