/** The map: two canvases, one still and one moving, and the loop that redraws only what changed. */
import type { Federation } from '../model/federation'
import type { Selection } from '../model/selection'
import type { EventSeen, Tick } from '../wire/messages'
import { Arcs } from './arcs'
import { Camera } from './camera'
import { cellsOf, type Cell } from './cells'
import { Dots } from './dots'
import { Flight } from './flight'
import { FrameCost } from './frame_cost'
import { Gestures, type GestureListener } from './gestures'
import { groupColours, groupOf } from './groups'
import { coarseLand, fineLand } from './land'
import { drawMarks } from './marks'
import { readPalette, type Palette } from './palette'
import type { Pen } from './pen'
import { Pulses } from './pulses'
import { Scene } from './scene'
import { drawEarth, drawOverlay, type Still } from './still'
import { Tools, type ToolListener } from './tools'

/** After the last move of the view, how long until it is drawn in full detail. */
const SETTLE_MS = 160
const RESTLESS_MS = 1000
const PIXEL_RATIO_MAX = 2

export type MapListener = Omit<GestureListener, 'moving' | 'reset' | 'stepBroker'> &
  ToolListener & { selected(selection: Selection): void }

export class EarthMap {
  readonly camera = new Camera()
  readonly scene = new Scene()
  readonly tools: Tools
  readonly cost: FrameCost
  private readonly gestures: Gestures
  private readonly arcs = new Arcs()
  private readonly pulses = new Pulses()
  private readonly dots = new Dots()
  private readonly flight = new Flight(this.camera)
  private readonly still: CanvasRenderingContext2D
  private readonly moving: CanvasRenderingContext2D
  private readonly earth = document.createElement('canvas').getContext('2d')!
  private palette: Palette = readPalette()
  private cells: Cell[] = []
  private colours = new Map<string, number>()
  private fine = coarseLand
  private drawn = { camera: -1, scene: -1, world: -1, subscriptions: -1, federation: null as Federation | null }
  private movedAt = 0
  private detailed = false
  private restedAt = 0
  private scheduled = false
  private readonly calm = matchMedia('(prefers-reduced-motion: reduce)')

  constructor(
    readonly surface: HTMLElement,
    still: HTMLCanvasElement,
    moving: HTMLCanvasElement,
    private readonly listener: MapListener,
  ) {
    this.still = still.getContext('2d', { alpha: true })!
    this.moving = moving.getContext('2d', { alpha: true })!
    this.cost = new FrameCost(surface)
    this.tools = new Tools(this.scene, this.camera, listener)
    this.gestures = new Gestures(surface, this.camera, this.scene, this.dots, this.tools, {
      ...listener,
      moving: () => this.wake(),
      reset: () => this.overview(),
      stepBroker: (by) => this.stepBroker(by),
    })
    new ResizeObserver(() => this.resize()).observe(surface)
    this.resize()
    void fineLand().then((land) => {
      this.fine = land
      this.redraw()
    })
  }

  show(federation: Federation): void {
    this.scene.federation = federation
    this.arcs.clear()
    this.pulses.clear()
    this.redraw()
  }

  tick(tick: Tick, now: number): void {
    if (document.hidden) return
    this.arcs.spawn(tick, this.scene.federation, now)
    if (tick.events?.length) this.pulses.spawn(tick.events.filter(hasPlace), now)
    this.wake()
  }

  /** Everything again: theme, layers or selection changed. */
  redraw(): void {
    this.palette = readPalette()
    this.scene.changed()
    this.wake()
  }

  wake(): void {
    if (this.scheduled) return
    this.scheduled = true
    requestAnimationFrame((now) => this.frame(now))
  }

  flyTo(lat: number, lon: number, zoom = this.camera.zoom): void {
    this.gestures.halt()
    this.flight.start({ lat, lon, zoom }, this.calm.matches ? 0 : 700)
    this.wake()
  }

  zoomBy(factor: number): void {
    this.flyTo(this.camera.lat, this.camera.lon, this.camera.zoom * factor)
  }

  /** All brokers. */
  overview(): void {
    this.fit([...this.scene.federation.brokers.values()])
  }

  /** As near as these places allow. */
  fit(places: { lat: number; lon: number }[]): void {
    const { lat, lon, zoom } = Flight.viewOf(places, this.camera.isGlobe)
    this.flyTo(lat, lon, zoom)
  }

  /** Draw the whole picture with any pen; the downloads use it. */
  paint(pen: Pen): void {
    const still = this.stillScene(false)
    drawEarth(pen, still)
    drawOverlay(pen, still)
    this.drawMoving(pen, performance.now())
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.surface
    if (!width || !height) return
    const ratio = Math.min(PIXEL_RATIO_MAX, devicePixelRatio || 1)
    for (const context of [this.earth, this.still, this.moving]) {
      context.canvas.width = Math.round(width * ratio)
      context.canvas.height = Math.round(height * ratio)
      context.setTransform(ratio, 0, 0, ratio, 0, 0)
    }
    this.camera.resize(width, height)
    this.redraw()
  }

  private frame(now: number): void {
    this.scheduled = false
    const started = performance.now()
    const flying = this.flight.step(now)
    const coasting = !this.calm.matches && this.gestures.coast()
    this.drawStillIfStale(now)
    const { moving, camera, scene } = this
    this.dots.update(scene, camera, now, !this.calm.matches)
    moving.clearRect(0, 0, camera.width, camera.height)
    this.drawMoving(moving, now)
    this.cost.add(performance.now() - started, now)
    const alive = this.arcs.active || this.pulses.active || this.dots.gliding
    if (flying || coasting || alive || !this.detailed) this.wake()
  }

  private drawMoving(pen: Pen, now: number): void {
    const { camera, scene, palette } = this
    if (!this.calm.matches && !scene.focused) this.pulses.draw(pen, camera, palette, now)
    this.dots.drawClients(pen, scene, camera, palette, this.colours)
    if (this.calm.matches) this.arcs.drawStill(pen, camera, palette, scene, now)
    else this.arcs.draw(pen, camera, palette, scene, now)
    this.dots.drawBrokers(pen, scene, palette, this.colours)
    drawMarks(pen, scene, camera, palette)
  }

  private drawStillIfStale(now: number): void {
    const { camera, scene, drawn } = this
    const { federation } = scene
    if (drawn.world !== federation.worldVersion || drawn.federation !== federation) this.rebuildCells(federation)
    const moved = drawn.camera !== camera.version
    const changed = drawn.scene !== scene.version
    const restless =
      drawn.subscriptions !== federation.subscriptionsVersion && now - this.restedAt > RESTLESS_MS && !moved
    if (moved) this.movedAt = now
    const settled = now - this.movedAt > SETTLE_MS
    const unsettled = settled && !this.detailed
    if (!moved && !changed && !restless && !unsettled) return
    this.detailed = settled
    if (settled) this.restedAt = now
    Object.assign(drawn, {
      camera: camera.version,
      scene: scene.version,
      subscriptions: settled ? federation.subscriptionsVersion : drawn.subscriptions,
    })
    const still = this.stillScene(!settled)
    this.still.clearRect(0, 0, camera.width, camera.height)
    if (settled) this.drawEarthFromPicture(still, changed || unsettled)
    else drawEarth(this.still, still)
    drawOverlay(this.still, still)
  }

  /** While the view rests, the earth is a picture: fences change above it without drawing it again. */
  private drawEarthFromPicture(still: Still, stale: boolean): void {
    const { width, height } = this.camera
    if (stale) {
      this.earth.clearRect(0, 0, width, height)
      drawEarth(this.earth, still)
    }
    this.still.drawImage(this.earth.canvas, 0, 0, width, height)
  }

  private stillScene(hasty: boolean): Still {
    const { camera, scene, palette, cells } = this
    const land = hasty ? coarseLand : this.fine
    return { camera, scene, palette, cells, land, hasty, radius: (name: string) => this.dots.radiusOf(name) }
  }

  private rebuildCells(federation: Federation): void {
    Object.assign(this.drawn, { world: federation.worldVersion, federation, scene: -1 })
    this.cells = cellsOf([...federation.brokers.values()], federation.areas)
    this.recolour()
  }

  /** Brokers and clients wear the colour of their area, or of their group in a recorded layer. */
  recolour(): void {
    const { recorded } = this.scene
    const groups = groupColours(recorded)
    this.colours = new Map()
    for (const { broker, colour } of this.cells) {
      const worn = groups ? groups.get(groupOf(recorded, broker) ?? '') : colour
      if (worn !== undefined) this.colours.set(broker, worn)
    }
    this.redraw()
  }

  private stepBroker(by: number): void {
    const names = [...this.scene.federation.brokers.keys()]
    if (!names.length) return
    const { selection } = this.scene
    const index = selection?.what === 'broker' ? names.indexOf(selection.name) : by > 0 ? -1 : 0
    const name = names[(index + by + names.length) % names.length]!
    const { lat, lon } = this.scene.federation.brokers.get(name)!
    this.listener.selected({ what: 'broker', name })
    this.flyTo(lat, lon)
  }
}

const hasPlace = (event: EventSeen): boolean => event.at !== null || event.fence !== null
