/** Kinds of messages under the map: what each colour and shape means, and whether it is shown. */
import type { EarthMap } from '../map/map'
import { KINDS, type Kind } from '../wire/messages'
import { h, svg } from './dom'

const SENTENCES: Record<Kind, string> = {
  event: 'an event on its way to where it is matched',
  subscription: 'a subscription made known to another broker',
  delivery: 'a matched event on its way to its subscribers’ home',
  location: 'a client’s new location',
  control: 'what brokers agree on among themselves',
}

const SHAPES: Record<Kind, () => SVGElement> = {
  event: () => svg('circle', { cx: 7, cy: 7, r: 4.5 }),
  subscription: () => svg('rect', { x: 3, y: 3, width: 8, height: 8 }),
  delivery: () => svg('path', { d: 'M7,1.5L12.5,11.5H1.5Z' }),
  location: () => svg('path', { d: 'M7,1L13,7L7,13L1,7Z' }),
  control: () => svg('path', { d: 'M5.5,1.5h3v4h4v3h-4v4h-3v-4h-4v-3h4Z' }),
}

export function legend(map: EarthMap): HTMLElement {
  const toggles = KINDS.map((kind) => {
    const button = h(
      'button',
      { type: 'button', class: `chip kind-${kind}`, 'aria-pressed': 'true', title: `${kind}: ${SENTENCES[kind]}` },
      svg('svg', { viewBox: '0 0 14 14', 'aria-hidden': 'true' }, SHAPES[kind]()),
      kind,
    )
    button.addEventListener('click', () => {
      const shown = !map.scene.kinds.delete(kind)
      if (shown) map.scene.kinds.add(kind)
      button.setAttribute('aria-pressed', String(shown))
      map.redraw()
    })
    return button
  })
  return h('div', { class: 'legend', role: 'group', 'aria-label': 'Message kinds shown' }, ...toggles)
}
