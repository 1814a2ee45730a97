/** A recorded set-up: which layer of it the map shows, and its groups in words. */
import { CELL_COLOURS } from '../map/cells'
import { groupsOf } from '../map/groups'
import type { App, Panel } from '../page/app'
import { fill, h } from '../page/dom'
import type { Layer } from '../wire/messages'
import { brokerLink } from './facts'

const NAMES_SHOWN = 24

export class Layers implements Panel {
  readonly element: HTMLElement
  private readonly groups = h('div')

  constructor(
    private readonly app: App,
    title: string,
    layers: Layer[],
  ) {
    const choices = [null, ...layers].map((layer, index) =>
      h(
        'label',
        { class: 'check' },
        h('input', {
          type: 'radio',
          name: 'layer',
          checked: index === (layers.length ? 1 : 0),
          onchange: () => this.show(layer),
        }),
        layer?.title ?? 'Areas only',
      ),
    )
    this.element = h(
      'div',
      { class: 'panel' },
      h(
        'section',
        { class: 'box' },
        h('h2', {}, title),
        h('fieldset', { class: 'plain choices' }, h('legend', {}, 'Layer'), ...choices),
      ),
      this.groups,
    )
    this.show(layers[0] ?? null)
  }

  update(): void {}

  private show(layer: Layer | null): void {
    this.app.map.scene.recorded = layer
    this.app.map.recolour()
    this.lookAt(layer)
    fill(this.groups, layer && this.legend(layer))
  }

  private lookAt(layer: Layer | null): void {
    const { map, federation } = this.app
    const named = new Set(layer?.lines.flatMap(([from, to]) => [from, to]))
    const brokers = [...federation.brokers.values()].filter(({ name }) => named.has(name))
    if (brokers.length) map.fit(brokers)
    else map.overview()
  }

  private legend(layer: Layer): HTMLElement {
    const kinds = [...new Set(layer.lines.map(([, , kind]) => kind))]
    return h(
      'section',
      { class: 'box', 'aria-label': layer.title },
      h('h3', {}, layer.title),
      layer.text ? h('p', { class: 'quiet' }, layer.text) : null,
      kinds.length
        ? h('p', { class: 'line-kinds' }, ...kinds.map((kind) => h('span', { class: `line-kind line-${kind}` }, kind)))
        : null,
      ...groupsOf(layer).map(([group, brokers], index) => this.group(layer, group, brokers, index)),
    )
  }

  private group(layer: Layer, group: string, brokers: string[], index: number): HTMLElement {
    const labels = new Set(brokers.map((name) => layer.brokers[name]?.label))
    const common = labels.size === 1 ? [...labels][0] : null
    const round = index >= CELL_COLOURS ? ' again' : ''
    const names = brokers.slice(0, NAMES_SHOWN).map((name) => {
      const label = layer.brokers[name]?.label
      return h(
        'li',
        { title: label ?? '' },
        brokerLink(this.app, name),
        common ? null : h('span', { class: 'quiet' }, ` ${label}`),
      )
    })
    const more = brokers.length - names.length
    return h(
      'div',
      { class: 'group' },
      h(
        'h4',
        {},
        h('span', { class: `swatch cell-${index % CELL_COLOURS}${round}` }),
        common ?? group,
        ` (${brokers.length})`,
      ),
      h(
        'ul',
        { class: common ? 'tight columns' : 'tight' },
        ...names,
        more > 0 ? h('li', { class: 'quiet' }, `and ${more} more`) : null,
      ),
    )
  }
}
