/** The tooltip on the map: what is under the pointer, as it is now; nothing once it is gone. */
import type { EarthMap } from '../map/map'
import type { Federation } from '../model/federation'
import { count, milliseconds, rate } from '../model/numbers'
import type { Selection } from '../model/selection'
import { h, say } from './dom'

const WIDTH = 220

export class Tip {
  readonly element = h('div', { class: 'tip', hidden: true, 'aria-hidden': 'true' })
  private shown: Selection | null = null

  constructor(private readonly map: EarthMap) {}

  show(picked: Selection | null, x: number, y: number): void {
    this.shown = picked
    this.update()
    if (picked) this.element.style.translate = `${Math.min(x + 14, this.map.camera.width - WIDTH)}px ${y + 14}px`
  }

  /** What it tells of may have changed, or left. */
  update(): void {
    const text = this.shown && tipText(this.map, this.map.scene.federation, this.shown)
    this.element.hidden = !text
    this.map.surface.classList.toggle('pickable', Boolean(text))
    if (text) say(this.element, text)
    else this.shown = null
  }
}

function tipText({ scene }: EarthMap, federation: Federation, picked: Selection): string | null {
  if (picked.what === 'client') {
    const client = federation.clients.get(picked.id)
    return client ? `${client.id}, home ${client.home}` : null
  }
  const broker = picked.what === 'broker' ? federation.brokers.get(picked.name) : undefined
  if (!broker) return null
  const { name, now } = broker
  const mark = scene.recorded?.brokers[name]
  if (mark) return `${name}: ${mark.label}`
  const load = scene.load?.get(name)
  if (load !== undefined) return `${name}: ${count(load)} messages`
  if (!now.up) return `${name}: down`
  return `${name}: ${count(now.clients)} clients, ${rate(now.sent + now.received)} messages/s, ${milliseconds(now.latency_ms)}`
}
