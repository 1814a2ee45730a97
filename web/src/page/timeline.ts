/** Play, pause, speed and the slider of a replay. */
import { clock } from '../model/numbers'
import type { Replay } from '../model/replay'
import type { Tick } from '../wire/messages'
import { h, say } from './dom'

const SPEEDS = [0.5, 1, 2, 4, 8, 16]

export class Timeline {
  readonly element: HTMLElement
  private readonly button = h('button', { type: 'button', class: 'round', onclick: () => this.toggle() })
  private readonly slider: HTMLInputElement
  private readonly speed = h(
    'select',
    { 'aria-label': 'Speed' },
    ...SPEEDS.map((speed) => h('option', { value: speed, selected: speed === 1 }, `${speed}×`)),
  )
  private readonly label = h('output', { class: 'number' })
  private t: number
  private playing = false
  private last = 0
  private closed = false

  constructor(
    private readonly replay: Replay,
    private readonly seen: (tick: Tick, now: number) => void,
    private readonly jumped: () => void,
  ) {
    this.t = replay.start
    this.slider = h('input', {
      type: 'range',
      'aria-label': 'Time',
      min: 0,
      max: Math.ceil(replay.end - replay.start),
      step: 250,
      value: 0,
      oninput: () => this.seek(),
    })
    this.element = h(
      'div',
      { class: 'timeline', role: 'group', 'aria-label': 'Replay' },
      this.button,
      this.slider,
      this.label,
      this.speed,
    )
    this.play(!matchMedia('(prefers-reduced-motion: reduce)').matches)
    this.show()
  }

  close(): void {
    this.closed = true
  }

  private toggle(): void {
    if (this.replay.over && !this.playing) this.jump(this.replay.start)
    this.play(!this.playing)
  }

  private play(playing: boolean): void {
    this.playing = playing
    this.button.textContent = playing ? '❚❚' : '▶'
    this.button.setAttribute('aria-label', playing ? 'Pause' : 'Play')
    if (!playing) return
    this.last = performance.now()
    requestAnimationFrame((now) => this.step(now))
  }

  private step(now: number): void {
    if (!this.playing || this.closed) return
    this.t = Math.min(this.replay.end, this.t + Math.max(0, Math.min(500, now - this.last)) * Number(this.speed.value))
    this.last = now
    this.replay.advance(this.t, now, (tick) => this.seen(tick, now))
    this.show()
    if (this.t >= this.replay.end) this.play(false)
    else requestAnimationFrame((next) => this.step(next))
  }

  private seek(): void {
    this.jump(this.replay.start + Number(this.slider.value))
  }

  private jump(t: number): void {
    this.t = t
    this.replay.seek(t, performance.now())
    this.jumped()
    this.show()
  }

  private show(): void {
    const at = String(Math.round(this.t - this.replay.start))
    if (document.activeElement !== this.slider || this.playing) this.slider.value = at
    const passed = `${((this.t - this.replay.start) / 1000).toFixed(1)} s`
    const text = this.replay.start > 1e11 ? `${clock(this.t)} · ${passed}` : passed
    say(this.label, text)
    this.slider.setAttribute('aria-valuetext', text)
  }
}
