/** The controls on the map: projection, layers, tools, zoom, download. */
import type { EarthMap } from '../map/map'
import { isProjection, PROJECTIONS } from '../map/projections'
import type { LayerName } from '../map/scene'
import type { ToolName } from '../map/tools'
import { whyNot, type App } from './app'
import { h, say } from './dom'
import { downloadPng, downloadSvg } from './download'

const LAYERS: [LayerName, string][] = [
  ['areas', 'Areas'],
  ['clients', 'Clients'],
  ['fences', 'Fences of subscriptions'],
  ['links', 'Links'],
  ['labels', 'Names'],
]

const HINTS: Record<ToolName, string> = {
  look: '',
  circle: 'Drag from the centre of the fence outwards. Keyboard: Enter at the centre, arrows, Enter. Esc cancels.',
  polygon: 'Click the corners; click the first again to close. Keyboard: Enter per corner, F to close. Esc cancels.',
  place: 'Click where you are. Keyboard: arrows, then Enter. Esc cancels.',
}

export class Toolbar {
  readonly element: HTMLElement
  readonly hint = h('p', { class: 'tool-hint', role: 'status', hidden: true })
  private readonly tools: Map<ToolName, HTMLButtonElement>

  constructor(private readonly app: App) {
    const { map } = app
    this.tools = new Map([
      ['circle', this.tool('circle', '◯', 'Draw a circular fence')],
      ['polygon', this.tool('polygon', '⬠', 'Draw a polygon fence')],
    ])
    this.element = h(
      'div',
      { class: 'toolbar' },
      projectionChoice(map),
      layersMenu(map),
      ...this.tools.values(),
      h('span', { class: 'gap' }),
      round('+', 'Zoom in', () => map.zoomBy(1.6)),
      round('−', 'Zoom out', () => map.zoomBy(1 / 1.6)),
      round('⌂', 'See all brokers', () => map.overview()),
      downloadMenu(app),
    )
  }

  toolChanged(tool: ToolName): void {
    for (const [name, button] of this.tools) button.setAttribute('aria-pressed', String(name === tool))
    this.hint.hidden = tool === 'look'
    say(this.hint, HINTS[tool])
    this.app.map.surface.classList.toggle('drawing', tool !== 'look')
  }

  update(): void {
    const reason = whyNot(this.app)
    for (const button of this.tools.values()) {
      button.disabled = reason !== null
      button.title = reason ?? button.getAttribute('aria-label') ?? ''
    }
  }

  private tool(name: ToolName, sign: string, label: string): HTMLButtonElement {
    const button = round(sign, label, () => {
      const { tools } = this.app.map
      tools.use(tools.name === name ? 'look' : name)
      this.app.map.surface.focus({ preventScroll: true })
    })
    button.setAttribute('aria-pressed', 'false')
    return button
  }
}

function round(sign: string, label: string, onclick: () => void): HTMLButtonElement {
  return h('button', { type: 'button', class: 'round', 'aria-label': label, title: label, onclick }, sign)
}

function projectionChoice(map: EarthMap): HTMLElement {
  const select = h(
    'select',
    { 'aria-label': 'Projection', class: 'floating' },
    ...Object.entries(PROJECTIONS).map(([name, { title }]) => h('option', { value: name }, title)),
  )
  select.addEventListener('change', () => {
    if (!isProjection(select.value)) return
    map.camera.use(select.value)
    map.overview()
  })
  return select
}

function layersMenu(map: EarthMap): HTMLElement {
  const boxes = LAYERS.map(([name, title]) => {
    const box = h('input', { type: 'checkbox', checked: map.scene.layers[name] })
    box.addEventListener('change', () => {
      map.scene.layers[name] = box.checked
      map.redraw()
    })
    return h('label', { class: 'check' }, box, title)
  })
  return menu('Layers', '☰', h('div', { class: 'menu' }, ...boxes))
}

function downloadMenu(app: App): HTMLElement {
  const item = (text: string, save: () => void) => {
    const button = h('button', { type: 'button' }, text)
    button.addEventListener('click', () => {
      save()
      button.closest('details')!.open = false
    })
    return button
  }
  return menu(
    'Download the map',
    '⤓',
    h(
      'div',
      { class: 'menu right' },
      item('PNG image', () => downloadPng(app)),
      item('SVG drawing', () => downloadSvg(app)),
    ),
  )
}

function menu(label: string, sign: string, body: HTMLElement): HTMLElement {
  const details = h(
    'details',
    { class: 'drop' },
    h('summary', { class: 'round', 'aria-label': label, title: label }, sign),
    body,
  )
  details.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return
    details.open = false
    details.querySelector('summary')!.focus()
  })
  document.addEventListener('pointerdown', (event) => {
    if (!details.contains(event.target as Node)) details.open = false
  })
  return details
}
