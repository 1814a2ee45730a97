import { expect, test } from 'vitest'
import { sparkPath } from '../src/charts/sparkline'
import { degrees, metres, milliseconds, rate } from '../src/model/numbers'
import { Series } from '../src/model/series'
import { reasonsOf } from '../src/panels/event_brokers'
import { fenceFromText, fenceToText, fenceWords, placeFromText } from '../src/panels/fence_text'

test('a typed fence is a circle, a polygon, nothing, or a sentence', () => {
  expect(fenceFromText('48.9,2.4,100')).toEqual({ type: 'Circle', center: [48.9, 2.4], radius_m: 100_000 })
  expect(fenceFromText('0,0 0,10 10,10')).toMatchObject({ type: 'Polygon' })
  expect(fenceFromText('  ')).toBeNull()
  for (const wrong of ['x', '1,2', '91,0,5', '0,0,-1', '0,0 1,1']) expect(typeof fenceFromText(wrong)).toBe('string')
})

test('a fence survives being written and read', () => {
  for (const text of ['48.9,2.4,100', '0,0 0,10 10,10']) {
    const fence = fenceFromText(text)
    expect(fenceToText(fence as never)).toBe(text)
  }
})

test('fences and numbers read well', () => {
  expect(fenceWords(null)).toBe('everywhere')
  expect(fenceWords({ type: 'Circle', center: [48.9, 2.4], radius_m: 5000 })).toBe('within 5.0 km of 48.90° N, 2.40° E')
  expect([rate(0.25), rate(12.3), rate(12_345), rate(NaN)]).toEqual(['0.3', '12', '12.3K', '–'])
  expect([metres(900), metres(120_000), milliseconds(3.14), degrees(-1, -2)]).toEqual([
    '900 m',
    '120 km',
    '3.1 ms',
    '1.00° S, 2.00° W',
  ])
})

test('a location is typed as lat,lon', () => {
  expect(placeFromText('48.9, 2.4')).toEqual([48.9, 2.4])
  expect(placeFromText('')).toBeNull()
  for (const wrong of ['48.9', '1,2,3', '91,0', 'here']) expect(typeof placeFromText(wrong)).toBe('string')
})

test('a sparkline leaves gaps where nothing was measured', () => {
  const series = new Series(40)
  for (const value of [1, 1, 1, 1, NaN, NaN, NaN, NaN, 2, 2, 2, 2]) series.push(value)
  expect(sparkPath(series, 100, 20).match(/M/g)).toHaveLength(2)
})

test('brokers with one reason are told together, those asked first', () => {
  const outside = { asked: false, text: 'its area does not meet the fence' }
  const told = reasonsOf([
    { broker: 'a', ...outside },
    { broker: 'b', asked: true, text: 'its area meets the fence' },
    { broker: 'c', ...outside },
  ])
  expect(told.map(({ asked, brokers }) => [asked, brokers])).toEqual([
    [true, ['b']],
    [false, ['a', 'c']],
  ])
})
