/** The hand on the map: looking around, drawing a circle or a polygon, pointing at a place. */
import type { Fence, Place } from '../wire/messages'
import type { Camera } from './camera'
import type { Scene } from './scene'
import { distanceM } from './sphere'

export type ToolName = 'look' | 'circle' | 'polygon' | 'place'

/** A polygon is closed by a click this near to its first corner. */
const CLOSE_PX = 12
const SMALLEST_CIRCLE_PX = 4

export interface ToolListener {
  fenceDrawn(fence: Fence): void
  placeChosen(place: Place): void
  toolChanged(tool: ToolName): void
}

export class Tools {
  name: ToolName = 'look'

  constructor(
    private readonly scene: Scene,
    private readonly camera: Camera,
    private readonly listener: ToolListener,
  ) {}

  use(name: ToolName): void {
    this.name = name
    this.scene.draft = null
    this.listener.toolChanged(name)
  }

  /** Whether a press on the map belongs to the tool rather than to looking around. */
  get drags(): boolean {
    return this.name === 'circle'
  }

  press(place: Place): void {
    if (this.name === 'circle') this.scene.draft = { tool: 'circle', centre: place, radius_m: 0 }
  }

  move(place: Place): void {
    const { draft } = this.scene
    if (draft?.tool === 'circle') draft.radius_m = distanceM(draft.centre, place)
    if (draft?.tool === 'polygon') draft.cursor = place
  }

  release(): void {
    const { draft } = this.scene
    if (draft?.tool !== 'circle') return
    const pixels = (draft.radius_m / 6_371_009) * this.camera.scale
    if (pixels < SMALLEST_CIRCLE_PX) this.scene.draft = null
    else this.finish({ type: 'Circle', center: draft.centre, radius_m: Math.round(draft.radius_m) })
  }

  click(place: Place): void {
    if (this.name === 'place') {
      this.use('look')
      this.listener.placeChosen(place)
    }
    if (this.name === 'polygon') this.corner(place)
  }

  /** Enter on the keyboard, with the crosshair at `place`: what press, drag and click are for the mouse. */
  enter(place: Place): void {
    if (this.name !== 'circle') this.click(place)
    else if (this.scene.draft?.tool !== 'circle') this.press(place)
    else {
      this.move(place)
      this.release()
    }
  }

  /** Close the polygon, if it has three corners. */
  close(): void {
    const { draft } = this.scene
    if (draft?.tool !== 'polygon' || draft.corners.length < 3) return
    const ring = draft.corners.map(([lat, lon]) => [round(lon), round(lat)])
    this.finish({ type: 'Polygon', coordinates: [[...ring, ring[0]!]] })
  }

  private corner(place: Place): void {
    const { draft } = this.scene
    if (draft?.tool !== 'polygon') {
      this.scene.draft = { tool: 'polygon', corners: [place], cursor: null }
      return
    }
    const first = this.camera.toScreen(...draft.corners[0]!)
    const here = this.camera.toScreen(...place)
    const near = first && here && Math.hypot(first[0] - here[0], first[1] - here[1]) < CLOSE_PX
    if (near && draft.corners.length >= 3) this.close()
    else if (!near) draft.corners.push(place)
  }

  private finish(fence: Fence): void {
    this.scene.draft = null
    this.use('look')
    this.listener.fenceDrawn(fence)
  }
}

const round = (degrees: number) => Math.round(degrees * 1e5) / 1e5
