/** The page as a whole: one map, the tabs beside it, and whichever view the address names. */
import { EarthMap } from '../map/map'
import { Federation } from '../model/federation'
import { count } from '../model/numbers'
import { Replay } from '../model/replay'
import type { Selection } from '../model/selection'
import { Details } from '../panels/details'
import { Events } from '../panels/events'
import { Layers } from '../panels/layers'
import { Overview } from '../panels/overview'
import { Results } from '../panels/results'
import { Try } from '../panels/try'
import { LiveSocket, type Connection } from '../wire/live'
import type { Fence, Place, RecordedView, Session, Tick, World } from '../wire/messages'
import { ApiError, getSession, getView, getViews, logout } from '../wire/requests'
import type { App, Panel, TabName } from './app'
import { fill, h } from './dom'
import { Hint } from './hint'
import { legend } from './legend'
import { putClient } from './moving'
import { Notices } from './notices'
import { Tabs } from './tabs'
import { Theme } from './theme'
import { Timeline } from './timeline'
import { Tip } from './tip'
import { Toolbar } from './toolbar'
import { ViewChoice } from './views'

const PANEL_MS = 500

export class Dashboard implements App {
  readonly map: EarthMap
  federation = new Federation()
  live = true
  view: string | undefined = undefined
  selection: Selection | null = null
  private readonly notices = new Notices()
  private readonly tabs = new Tabs()
  private readonly choice = new ViewChoice()
  private readonly hint = new Hint()
  private readonly toolbar: Toolbar
  private readonly legend: HTMLElement
  private readonly tip: Tip
  private readonly empty = h(
    'p',
    { class: 'nothing', hidden: true },
    'No broker yet. Start a federation with geomq up.',
  )
  private readonly timelinePlace = h('div', { class: 'timeline-place' })
  private socket: LiveSocket | null = null
  private timeline: Timeline | null = null
  private connected = false

  constructor(
    readonly session: Session,
    root: HTMLElement,
  ) {
    const still = h('canvas', { class: 'still', 'aria-hidden': 'true' })
    const moving = h('canvas', { class: 'moving', 'aria-hidden': 'true' })
    const surface = h(
      'div',
      {
        class: 'surface',
        tabindex: 0,
        role: 'application',
        'aria-label': 'Map of brokers, clients and messages',
        'aria-describedby': 'map-keys',
      },
      still,
      moving,
    )
    this.map = this.createMap(surface, still, moving)
    this.tip = new Tip(this.map)
    this.toolbar = new Toolbar(this)
    this.legend = legend(this.map)
    fill(root, this.header(), this.main(surface), this.notices.toast)
    addEventListener('hashchange', () => void this.openView())
    setInterval(() => this.updatePanels(), PANEL_MS)
    void getViews().then((views) => {
      this.choice.offer(views)
      void this.openView()
    })
  }

  tell(text: string, kind: 'done' | 'failed' = 'done'): void {
    this.notices.tell(text, kind)
  }

  open(tab: TabName): void {
    this.tabs.open(tab)
  }

  select(selection: Selection | null): void {
    this.selection = selection
    this.map.scene.selection = selection
    for (const panel of this.tabs.all) panel.selectionChanged?.()
    if (selection) this.tabs.open('details')
    const place = selection && this.placeOf(selection)
    if (place && !this.visible(place)) this.map.flyTo(...place)
    this.map.redraw()
  }

  private header(): HTMLElement {
    const theme = new Theme(() => this.map.redraw())
    const leave = () =>
      void logout().then(
        () => location.reload(),
        () => location.reload(),
      )
    return h(
      'header',
      { class: 'bar' },
      h('a', { class: 'skip', href: '#side', onclick: (event: Event) => this.skipMap(event) }, 'Skip the map'),
      h('h1', { class: 'brand' }, h('span', { class: 'logo', 'aria-hidden': 'true' }), 'GeoMQ'),
      this.choice.element,
      this.notices.light,
      h('span', { class: 'gap' }),
      this.session.admin
        ? null
        : h('span', { class: 'badge', title: this.session.reason ?? 'Controls are disabled.' }, 'read-only'),
      h(
        'button',
        {
          type: 'button',
          class: 'round',
          'aria-label': 'Dark or light',
          title: 'Dark or light',
          onclick: () => theme.toggle(),
        },
        '◐',
      ),
      h(
        'button',
        {
          type: 'button',
          class: 'round',
          'aria-label': 'What am I looking at?',
          title: 'What am I looking at?',
          onclick: () => this.hint.toggle(),
        },
        '?',
      ),
      this.session.logged_in ? h('button', { type: 'button', class: 'small', onclick: leave }, 'Log out') : null,
    )
  }

  /** The address names the view and stays as it is. */
  private skipMap(event: Event): void {
    event.preventDefault()
    this.tabs.element.focus()
  }

  private main(surface: HTMLElement): HTMLElement {
    return h(
      'main',
      { class: 'main' },
      h(
        'section',
        { class: 'map', 'aria-label': 'Map' },
        surface,
        h(
          'p',
          { id: 'map-keys', class: 'only-read' },
          'Arrows move, plus and minus zoom, 0 shows all, N and P step through brokers, Enter picks what is under the crosshair, C draws a circle, G a polygon, Escape leaves. The tables under Overview hold the same in words.',
        ),
        this.toolbar.element,
        this.toolbar.hint,
        this.tip.element,
        this.empty,
        this.notices.banner,
        h('div', { class: 'bottom' }, this.timelinePlace, this.legend),
        this.hint.element,
      ),
      this.tabs.element,
    )
  }

  private createMap(surface: HTMLElement, still: HTMLCanvasElement, moving: HTMLCanvasElement): EarthMap {
    return new EarthMap(surface, still, moving, {
      picked: (picked) => this.select(picked),
      selected: (selection) => this.select(selection),
      hovered: (picked, x, y) => this.tip.show(picked, x, y),
      movable: (id) => this.live && this.session.admin && this.federation.clients.get(id)?.movable !== false,
      clientDropped: (id, at) => void this.dropClient(id, at),
      fenceDrawn: (fence: Fence) => this.toTry((panel) => panel.fenceDrawn?.(fence)),
      placeChosen: (place: Place) => this.toTry((panel) => panel.placeChosen?.(place)),
      toolChanged: (tool) => this.toolbar.toolChanged(tool),
    })
  }

  private toTry(act: (panel: Panel) => void): void {
    this.tabs.open('try')
    this.tabs.all.forEach(act)
  }

  private async openView(): Promise<void> {
    this.close()
    const id = this.choice.current
    if (id === 'live') return this.openLive()
    try {
      const view = await getView(id)
      if (this.choice.current === id) this.openRecorded(view)
    } catch (error) {
      this.tell(error instanceof ApiError ? error.message : String(error), 'failed')
      if (location.hash) location.hash = ''
    }
  }

  private close(): void {
    this.socket?.close()
    this.timeline?.close()
    this.socket = this.timeline = null
    Object.assign(this.map.scene, { recorded: null, load: null, fence: null, here: null, draft: null })
    this.selection = this.map.scene.selection = null
    this.legend.hidden = false
    fill(this.timelinePlace)
  }

  private begin(federation: Federation, view: string | undefined, panels: (app: App) => [TabName, Panel][]): void {
    this.federation = federation
    this.view = view
    this.live = view === undefined
    this.map.show(federation)
    this.tabs.use([...panels(this), ['details', new Details(this)]])
    this.updatePanels()
    if (federation.brokers.size && !this.map.scene.recorded) this.map.overview()
  }

  private openLive(): void {
    this.begin(new Federation(), undefined, (app) => [
      ['overview', new Overview(app)],
      ['events', new Events(app)],
      ['try', new Try(app)],
    ])
    const { federation } = this
    this.connected = false
    this.socket = new LiveSocket({
      opened: () => federation.forgetClients(),
      message: (message) => this.heard(message, federation),
      state: (state: Connection) => this.connectionChanged(state),
    })
    this.notices.onRetry(this.socket.retry)
  }

  /** A login ends after a while; the server then refuses, and only the session says why. */
  private connectionChanged(state: Connection): void {
    this.notices.connection(state, this.connected)
    if (state === 'reconnecting')
      getSession().then(
        ({ login_required }) => login_required && location.reload(),
        () => undefined,
      )
  }

  private openRecorded(view: RecordedView): void {
    const replay = view.frames?.length ? new Replay({ ...view, frames: view.frames }) : null
    const federation = replay?.federation ?? new Federation()
    const moving = (view.frames?.length ?? 0) > 1
    if (!replay) federation.applyWorld(view.world)
    this.notices.connection('recorded', true)
    this.begin(federation, view.id, (app) => [
      ...recordedPanels(app, view),
      ['overview', new Overview(app)],
      ...(moving ? [['events', new Events(app)] as [TabName, Panel]] : []),
    ])
    this.legend.hidden = !moving
    if (replay && !moving) replay.seek(replay.end, performance.now())
    if (!replay || !moving) return
    this.timeline = new Timeline(
      replay,
      (tick, now) => this.map.tick(tick, now),
      () => {
        this.map.show(federation)
        this.updatePanels()
      },
    )
    fill(this.timelinePlace, this.timeline.element)
  }

  private heard(message: World | Tick, federation: Federation): void {
    if (federation !== this.federation) return
    if (message.type === 'world') {
      if (message.whole) federation.forgetClients()
      federation.applyWorld(message)
      if (!this.connected) this.map.overview()
      this.connected = true
      this.map.redraw()
      this.updatePanels()
      return
    }
    const now = performance.now()
    federation.applyTick(message, now)
    this.map.tick(message, now)
  }

  /** The map in one sentence, for those who hear it. */
  private describeMap(): void {
    const { brokers, clients, strategy } = this.federation
    const label = `Map of ${count(brokers.size)} brokers and ${count(clients.size)} clients${strategy ? `, strategy ${strategy}` : ''}`
    if (this.map.surface.getAttribute('aria-label') !== label) this.map.surface.setAttribute('aria-label', label)
  }

  private updatePanels(): void {
    this.describeMap()
    this.tip.update()
    this.empty.hidden = this.federation.brokers.size > 0 || !this.connected
    this.toolbar.update()
    if (!document.hidden) this.tabs.update()
  }

  private async dropClient(id: string, at: Place): Promise<void> {
    this.map.scene.dragged = null
    if (await putClient(this, id, at)) this.select({ what: 'client', id })
  }

  private placeOf(selection: Selection): Place | null {
    if (selection.what === 'client') return this.federation.clients.get(selection.id)?.at ?? null
    if (selection.what === 'event') return this.federation.events.get(selection.id)?.at ?? null
    const broker = selection.what === 'broker' ? this.federation.brokers.get(selection.name) : undefined
    return broker ? [broker.lat, broker.lon] : null
  }

  private visible(place: Place): boolean {
    const { camera } = this.map
    const at = camera.toScreen(...place)
    const margin = 40
    return Boolean(
      at && at[0] > margin && at[1] > margin && at[0] < camera.width - margin && at[1] < camera.height - margin,
    )
  }
}

function recordedPanels(app: App, { title, results, layers }: RecordedView): [TabName, Panel][] {
  if (results) return [['results', new Results(app, title, results, layers ?? [])]]
  return layers?.length ? [['layers', new Layers(app, title, layers)]] : []
}
