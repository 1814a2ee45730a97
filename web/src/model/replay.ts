/** A recording played into a federation: forwards tick by tick, backwards by starting again from a kept state. */
import type { RecordedView, Tick } from '../wire/messages'
import { Federation } from './federation'

export class Replay {
  readonly federation = new Federation()
  readonly start: number
  readonly end: number
  private next = 0

  constructor(private readonly view: RecordedView & { frames: Tick[] }) {
    this.start = view.start ?? view.frames[0]?.t ?? 0
    this.end = view.end ?? view.frames.at(-1)?.t ?? 0
    this.federation.applyWorld(view.world)
  }

  get t(): number {
    return this.next ? (this.view.frames[this.next - 1]?.t ?? this.start) : this.start
  }

  get over(): boolean {
    return this.next >= this.view.frames.length
  }

  /** Play up to `t`; each tick on the way is shown to `seen`. */
  advance(t: number, now: number, seen: (tick: Tick) => void = () => undefined): void {
    for (;;) {
      const frame = this.view.frames[this.next]
      if (!frame || frame.t > t) return
      this.next += 1
      this.federation.applyTick(frame, now)
      seen(frame)
    }
  }

  /** Jump to `t`; going back starts again, for ticks only say what changed. */
  seek(t: number, now: number): void {
    if (t < this.t) {
      this.federation.restart(this.view.world)
      this.next = 0
    }
    this.advance(t, now - 10_000)
  }
}
