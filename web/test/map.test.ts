import { geoContains, geoDistance } from 'd3-geo'
import { describe, expect, test } from 'vitest'
import { Camera } from '../src/map/camera'
import { cellsOf } from '../src/map/cells'
import { PROJECTIONS, type ProjectionName } from '../src/map/projections'
import { distanceM, drawable, fenceShape, greatCircle, toPlace, toVector } from '../src/map/sphere'
import { Federation } from '../src/model/federation'

const places: [number, number][] = [
  [48.88, 2.36],
  [50.11, 8.66],
  [39.96, -83],
  [-33.9, 151.2],
  [1.3, 103.8],
]

function brokersAt(at: [number, number][]) {
  const federation = new Federation()
  const brokers = at.map(([lat, lon], index) => ({ name: `b${index}`, lat, lon, area: null }))
  federation.applyWorld({ type: 'world', strategy: 'dht', strategies: [], brokers, areas: 'nearest' })
  return [...federation.brokers.values()]
}

describe('cells', () => {
  test('hold what is nearest to their broker', () => {
    const cells = cellsOf(brokersAt(places), 'nearest')
    for (let lat = -80; lat <= 80; lat += 16)
      for (let lon = -175; lon < 180; lon += 25) {
        const distances = places.map(([y, x]) => geoDistance([x, y], [lon, lat]))
        const nearest = distances.indexOf(Math.min(...distances))
        expect(geoContains(cells[nearest]!.shape, [lon, lat])).toBe(true)
      }
  })

  test('are the given polygons where areas are given', () => {
    const [broker] = brokersAt([places[0]!])
    const ring = [
      [0, 40],
      [10, 40],
      [10, 55],
      [0, 55],
      [0, 40],
    ]
    const [cell] = cellsOf([{ ...broker!, area: { type: 'Polygon', coordinates: [ring] } }], 'polygons')
    expect(geoContains(cell!.shape, [5, 50])).toBe(true)
    expect(geoContains(cell!.shape, [-20, 50])).toBe(false)
  })

  test('exist for brokers in one place, and on one great circle', () => {
    expect(cellsOf(brokersAt([places[0]!, places[0]!]), 'nearest')).toHaveLength(2)
    const equator = cellsOf(brokersAt([0, 90, 180, -90].map((lon) => [0, lon])), 'nearest')
    expect(geoContains(equator[1]!.shape, [95, 40])).toBe(true)
  })
})

describe.each(Object.keys(PROJECTIONS) as ProjectionName[])('the camera on %s', (name) => {
  const camera = new Camera()
  camera.resize(900, 700)
  camera.use(name)
  camera.look(20, 15, 1.5)

  test('finds the place under a pixel and back', () => {
    for (const [x, y] of [
      [450, 350],
      [520, 300],
      [380, 420],
    ] as const) {
      const place = camera.placeAt(x, y)!
      const back = camera.toScreen(...place)!
      expect(Math.hypot(back[0] - x, back[1] - y)).toBeLessThan(0.5)
    }
  })

  test('projects vectors as it projects places', () => {
    const into = new Float32Array(2)
    expect(camera.vectorInto(toVector(48.9, 2.4), into, 0)).toBe(true)
    const [x, y] = camera.toScreen(48.9, 2.4)!
    expect(Math.hypot(into[0]! - x, into[1]! - y)).toBeLessThan(0.5)
  })

  test('zooms about the pixel it is told', () => {
    const before = camera.placeAt(500, 300)!
    camera.zoomAt(1.2, 500, 300)
    const after = camera.toScreen(...before)!
    expect(Math.hypot(after[0] - 500, after[1] - 300)).toBeLessThan(12)
  })
})

test('great circles start and end where they should', () => {
  const [a, b] = [toVector(48.9, 2.4), toVector(40, -83)]
  const points = greatCircle(a, b, 5)
  expect(toPlace(points[0]!)[0]).toBeCloseTo(48.9)
  expect(toPlace(points[4]!)[1]).toBeCloseTo(-83)
})

test('distances are those of the earth', () => {
  expect(distanceM([48.8566, 2.3522], [50.1109, 8.6821]) / 1000).toBeCloseTo(478.8, -1)
})

test('fences contain what they should, whichever way their ring winds', () => {
  const circle = fenceShape({ type: 'Circle', center: [48.9, 2.4], radius_m: 100_000 })
  expect(geoContains(circle, [2.4, 49.7])).toBe(true)
  expect(geoContains(circle, [2.4, 50.2])).toBe(false)
  const ring = [
    [0, 0],
    [10, 0],
    [10, 10],
    [0, 10],
    [0, 0],
  ]
  for (const coordinates of [ring, ring.toReversed()]) {
    const shape = drawable({ type: 'Polygon', coordinates: [coordinates] })
    expect(geoContains(shape, [5, 5])).toBe(true)
    expect(geoContains(shape, [25, 5])).toBe(false)
  }
})
