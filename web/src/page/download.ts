/** The map as a picture to keep: PNG from a canvas at twice the size, SVG from the same layers. */
import { SvgPen } from '../map/svg_pen'
import type { App } from './app'
import { h } from './dom'

const PNG_RATIO = 2

export function downloadSvg(app: App): void {
  const { width, height } = app.map.camera
  const pen = new SvgPen(document.createElement('canvas').getContext('2d')!)
  app.map.paint(pen)
  const text = pen.document(width, height, titleOf(app), background())
  save(new Blob([text], { type: 'image/svg+xml' }), 'geomq-map.svg')
}

export function downloadPng(app: App): void {
  const { width, height } = app.map.camera
  const canvas = h('canvas', { width: width * PNG_RATIO, height: height * PNG_RATIO })
  const pen = canvas.getContext('2d')!
  pen.scale(PNG_RATIO, PNG_RATIO)
  pen.fillStyle = background()
  pen.fillRect(0, 0, width, height)
  app.map.paint(pen)
  canvas.toBlob((blob) => blob && save(blob, 'geomq-map.png'), 'image/png')
}

function titleOf({ federation }: App): string {
  return `GeoMQ: ${federation.brokers.size} brokers, strategy ${federation.strategy}, ${new Date().toISOString()}`
}

const background = (): string => getComputedStyle(document.documentElement).getPropertyValue('--paper').trim()

function save(blob: Blob, name: string): void {
  const address = URL.createObjectURL(blob)
  h('a', { href: address, download: name }).click()
  setTimeout(() => URL.revokeObjectURL(address), 10_000)
}
