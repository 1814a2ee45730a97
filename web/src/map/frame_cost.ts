/** What a frame costs, as data attributes of the map: `data-frame-ms` (work per frame) and `data-frames`. */
const WINDOW_MS = 1000

export class FrameCost {
  private spent = 0
  private frames = 0
  private since = 0

  constructor(private readonly shownOn: HTMLElement) {}

  add(ms: number, now: number): void {
    this.spent += ms
    this.frames += 1
    if (now - this.since < WINDOW_MS) return
    this.shownOn.dataset['frameMs'] = (this.spent / this.frames).toFixed(2)
    this.shownOn.dataset['frames'] = String(this.frames)
    this.spent = 0
    this.frames = 0
    this.since = now
  }
}
