/** Mouse, touch, wheel and keys on the map, turned into camera moves, tool strokes and picks. */
import type { Place } from '../wire/messages'
import type { Camera } from './camera'
import type { Dots, Picked } from './dots'
import type { Scene } from './scene'
import type { Tools } from './tools'

const CLICK_PX = 5
const KEY_STEP_PX = 60
const FRICTION = 0.93

export interface GestureListener {
  moving(): void
  picked(picked: Picked | null): void
  hovered(picked: Picked | null, x: number, y: number): void
  clientDropped(id: string, at: Place): void
  movable(id: string): boolean
  stepBroker(by: number): void
  reset(): void
}

export class Gestures {
  private readonly pointers = new Map<number, [x: number, y: number]>()
  private travelled = 0
  private velocity: [number, number] = [0, 0]
  private lastMove = 0
  private client: string | null = null

  constructor(
    private readonly surface: HTMLElement,
    private readonly camera: Camera,
    private readonly scene: Scene,
    private readonly dots: Dots,
    private readonly tools: Tools,
    private readonly listener: GestureListener,
  ) {
    surface.addEventListener('pointerdown', this.down)
    surface.addEventListener('pointermove', this.move)
    surface.addEventListener('pointerup', this.up)
    surface.addEventListener('pointercancel', this.up)
    surface.addEventListener('pointerleave', () => listener.hovered(null, 0, 0))
    surface.addEventListener('dblclick', this.double)
    surface.addEventListener('wheel', this.wheel, { passive: false })
    surface.addEventListener('keydown', this.key)
    surface.addEventListener('focus', () => this.crosshair(surface.matches(':focus-visible')))
    surface.addEventListener('blur', () => this.crosshair(false))
  }

  /** After a flick the map glides on; returns whether it still does. */
  coast(): boolean {
    if (this.pointers.size || Math.hypot(...this.velocity) < 0.3) return false
    this.camera.pan(...this.velocity)
    this.velocity = [this.velocity[0] * FRICTION, this.velocity[1] * FRICTION]
    return true
  }

  halt(): void {
    this.velocity = [0, 0]
  }

  private readonly down = (event: PointerEvent): void => {
    if (event.button > 0) return
    const [x, y] = this.at(event)
    this.surface.setPointerCapture(event.pointerId)
    this.pointers.set(event.pointerId, [x, y])
    this.travelled = 0
    this.halt()
    this.crosshair(false)
    const place = this.camera.placeAt(x, y)
    if (this.pointers.size > 1) this.scene.draft = null
    else if (this.tools.drags && place) this.tools.press(place)
    else if (this.tools.name === 'look') {
      const picked = this.dots.pick(x, y)
      this.client = picked?.what === 'client' && this.listener.movable(picked.id) ? picked.id : null
    }
  }

  private readonly move = (event: PointerEvent): void => {
    const [x, y] = this.at(event)
    const before = this.pointers.get(event.pointerId)
    const place = this.camera.placeAt(x, y)
    if (!before) {
      if (place) this.tools.move(place)
      this.listener.hovered(this.tools.name === 'look' ? this.dots.pick(x, y) : null, x, y)
      this.listener.moving()
      return
    }
    const [dx, dy] = [x - before[0], y - before[1]]
    this.travelled += Math.hypot(dx, dy)
    if (this.pointers.size === 2) this.pinch(event.pointerId, x, y)
    else if (this.tools.drags) {
      if (place) this.tools.move(place)
    } else if (this.client) {
      if (place && this.travelled > CLICK_PX) this.scene.dragged = { client: this.client, at: place }
    } else if (this.travelled > CLICK_PX) this.drag(dx, dy, event.timeStamp)
    this.pointers.set(event.pointerId, [x, y])
    this.listener.moving()
  }

  private readonly up = (event: PointerEvent): void => {
    if (!this.pointers.delete(event.pointerId)) return
    const [x, y] = this.at(event)
    const place = this.camera.placeAt(x, y)
    const { dragged } = this.scene
    if (dragged) this.listener.clientDropped(dragged.client, dragged.at)
    else if (this.tools.drags) this.tools.release()
    else if (this.travelled <= CLICK_PX && event.type === 'pointerup') {
      if (this.tools.name === 'look') this.listener.picked(this.dots.pick(x, y))
      else if (place) this.tools.click(place)
    }
    if (event.timeStamp - this.lastMove > 60) this.halt()
    this.client = null
    this.listener.moving()
  }

  private drag(dx: number, dy: number, time: number): void {
    this.camera.pan(dx, dy)
    this.velocity = [dx * 0.6 + this.velocity[0] * 0.4, dy * 0.6 + this.velocity[1] * 0.4]
    this.lastMove = time
  }

  private pinch(id: number, x: number, y: number): void {
    const own = this.pointers.get(id)
    const other = [...this.pointers].find(([key]) => key !== id)?.[1]
    if (!own || !other) return
    const before = Math.hypot(own[0] - other[0], own[1] - other[1])
    const after = Math.hypot(x - other[0], y - other[1])
    this.camera.zoomAt(after / Math.max(1, before), (x + other[0]) / 2, (y + other[1]) / 2)
    this.camera.pan((x - own[0]) / 2, (y - own[1]) / 2)
  }

  private readonly wheel = (event: WheelEvent): void => {
    event.preventDefault()
    this.halt()
    const step = event.deltaMode === 1 ? 0.05 : 0.0016
    this.camera.zoomAt(Math.exp(-Math.max(-300, Math.min(300, event.deltaY)) * step), ...this.at(event))
    this.listener.moving()
  }

  private readonly double = (event: MouseEvent): void => {
    if (this.tools.name === 'polygon') this.tools.close()
    else if (this.tools.name === 'look') this.camera.zoomAt(2, ...this.at(event))
    this.listener.moving()
  }

  private readonly key = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const action = this.keys(event.shiftKey ? KEY_STEP_PX / 6 : KEY_STEP_PX)[event.key]
    if (!action) return
    event.preventDefault()
    this.halt()
    this.crosshair(true)
    action()
    this.listener.moving()
  }

  private keys(step: number): Record<string, () => void> {
    const pan = (dx: number, dy: number) => () => {
      this.camera.pan(dx, dy)
      this.tools.move([this.camera.lat, this.camera.lon])
    }
    const zoom = (factor: number) => () => this.camera.look(this.camera.lat, this.camera.lon, this.camera.zoom * factor)
    return {
      ArrowLeft: pan(step, 0),
      ArrowRight: pan(-step, 0),
      ArrowUp: pan(0, step),
      ArrowDown: pan(0, -step),
      '+': zoom(1.4),
      '=': zoom(1.4),
      '-': zoom(1 / 1.4),
      0: () => this.listener.reset(),
      n: () => this.listener.stepBroker(1),
      p: () => this.listener.stepBroker(-1),
      c: () => this.tools.use('circle'),
      g: () => this.tools.use('polygon'),
      f: () => this.tools.close(),
      Enter: () => this.enter(),
      ' ': () => this.enter(),
      Escape: () => this.escape(),
    }
  }

  private enter(): void {
    const { lat, lon, width, height } = this.camera
    if (this.tools.name === 'look') this.listener.picked(this.dots.pick(width / 2, height / 2, 24))
    else this.tools.enter([lat, lon])
  }

  private escape(): void {
    if (this.tools.name === 'look') this.listener.picked(null)
    else this.tools.use('look')
  }

  private crosshair(shown: boolean): void {
    this.scene.crosshair = shown
    this.listener.moving()
  }

  private at(event: MouseEvent): [number, number] {
    const box = this.surface.getBoundingClientRect()
    return [event.clientX - box.left, event.clientY - box.top]
  }
}
