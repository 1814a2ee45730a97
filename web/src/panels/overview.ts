/** The first tab: the strategy, the traffic, and the map in words. */
import type { App, Panel } from '../page/app'
import { h } from '../page/dom'
import { StrategyBox } from './strategy'
import { BrokerTable, ClientTable } from './tables'
import { Traffic } from './traffic'

export class Overview implements Panel {
  readonly element: HTMLElement
  private readonly strategy: StrategyBox
  private readonly traffic = new Traffic()
  private readonly brokers: BrokerTable
  private readonly clients: ClientTable
  private readonly trafficBox = h('section', { class: 'box', 'aria-label': 'Traffic' }, this.traffic.element)

  constructor(private readonly app: App) {
    this.strategy = new StrategyBox(app)
    this.brokers = new BrokerTable(app)
    this.clients = new ClientTable(app)
    this.element = h(
      'div',
      { class: 'panel' },
      this.strategy.element,
      this.trafficBox,
      this.brokers.element,
      this.clients.element,
    )
  }

  update(): void {
    const { federation, live } = this.app
    const moves = live || federation.published.length > 1
    this.strategy.element.hidden = !federation.strategy || !moves
    this.trafficBox.hidden = !moves
    if (moves) {
      this.strategy.update()
      this.traffic.update(federation)
    }
    this.brokers.update()
    this.clients.update()
  }
}
