/** The tabs beside the map, by the ARIA pattern: arrows move between them. */
import type { Panel, TabName } from './app'
import { fill, h } from './dom'

const TITLES: Record<TabName, string> = {
  overview: 'Overview',
  events: 'Events',
  try: 'Try it',
  layers: 'Layers',
  results: 'Results',
  details: 'Details',
}

export class Tabs {
  readonly element: HTMLElement
  current: TabName = 'details'
  private readonly list = h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'About the map' })
  private readonly body = h('div', { class: 'tab-body' })
  private panels: [TabName, Panel][] = []

  constructor() {
    this.element = h(
      'aside',
      { class: 'side', id: 'side', tabindex: -1, 'aria-label': 'Details' },
      this.list,
      this.body,
    )
    this.list.addEventListener('keydown', (event) => this.key(event))
  }

  use(panels: [TabName, Panel][]): void {
    this.panels = panels
    fill(
      this.list,
      ...panels.map(([name]) =>
        h(
          'button',
          {
            type: 'button',
            role: 'tab',
            id: `tab-${name}`,
            'aria-controls': `panel-${name}`,
            onclick: () => this.open(name),
          },
          TITLES[name],
        ),
      ),
    )
    for (const [name, panel] of panels) {
      panel.element.id = `panel-${name}`
      panel.element.setAttribute('role', 'tabpanel')
      panel.element.setAttribute('aria-labelledby', `tab-${name}`)
    }
    fill(this.body, ...panels.map(([, panel]) => panel.element))
    this.open(panels[0]![0])
  }

  get all(): Panel[] {
    return this.panels.map(([, panel]) => panel)
  }

  open(wanted: TabName): void {
    this.current = wanted
    for (const [name, panel] of this.panels) {
      const chosen = name === wanted
      const tab = this.list.querySelector<HTMLElement>(`#tab-${name}`)!
      tab.setAttribute('aria-selected', String(chosen))
      tab.tabIndex = chosen ? 0 : -1
      panel.element.hidden = !chosen
      if (chosen) panel.update()
    }
    this.body.scrollTop = 0
  }

  update(): void {
    this.panels.find(([name]) => name === this.current)?.[1].update()
  }

  private key(event: KeyboardEvent): void {
    const names = this.panels.map(([name]) => name)
    const index = names.indexOf(this.current)
    const next = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: names.length - 1 }[event.key]
    if (next === undefined) return
    event.preventDefault()
    const name = names[(next + names.length) % names.length]!
    this.open(name)
    this.list.querySelector<HTMLElement>(`#tab-${name}`)!.focus()
  }
}
