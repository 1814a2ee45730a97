/** A recorded set-up: which layer of it the map shows, and its groups in words. */
import { groupsOf } from '../map/groups'
import type { App, Panel } from '../page/app'
import { fill, h } from '../page/dom'
import type { Layer } from '../wire/messages'
import { brokerLink } from './facts'

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
    fill(this.groups, layer && this.legend(layer))
  }

  private legend(layer: Layer): HTMLElement {
    const groups = groupsOf(layer)
    return h(
      'section',
      { class: 'box', 'aria-label': layer.title },
      h('h3', {}, layer.title),
      layer.text ? h('p', { class: 'quiet' }, layer.text) : null,
      ...groups.map(([label, brokers], index) =>
        h(
          'div',
          { class: 'group' },
          h('h4', {}, h('span', { class: `swatch cell-${index % 6}` }), label || 'none'),
          h(
            'p',
            { class: 'names' },
            ...brokers.slice(0, 40).flatMap((name) => [brokerLink(this.app, name), ' ']),
            brokers.length > 40 ? `and ${brokers.length - 40} more` : null,
          ),
        ),
      ),
    )
  }
}
