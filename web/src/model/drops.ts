/** Clients that a person put somewhere: shown there at once, then where their broker says. */
import type { Place } from '../wire/messages'

/** Ticks after the server's answer in which the broker should have said where the client is now. */
const PATIENCE_TICKS = 12

interface Drop {
  /** Where the broker last said it was. */
  said: Place | null
  /** Null until the server has answered. */
  ticksLeft: number | null
}

export class Drops {
  private readonly waiting = new Map<string, Drop>()

  begin(id: string, said: Place | null): void {
    this.waiting.set(id, { said: this.waiting.get(id)?.said ?? said, ticksLeft: null })
  }

  /** The server passed it on: what the broker says from now on holds. */
  accepted(id: string): void {
    const drop = this.waiting.get(id)
    if (drop) drop.ticksLeft = PATIENCE_TICKS
  }

  /** Nothing came of it: where the client is after all; undefined if it was not dropped. */
  refused(id: string): Place | null | undefined {
    const said = this.waiting.get(id)?.said
    this.waiting.delete(id)
    return said
  }

  /** The broker says where a client is: whether to show it there, or rather where it was dropped a moment ago. */
  holds(id: string, said: Place | null): boolean {
    const drop = this.waiting.get(id)
    if (!drop) return true
    drop.said = said
    if (drop.ticksLeft === null) return false
    this.waiting.delete(id)
    return true
  }

  /** A tick has passed: drops that no broker confirmed, with where their clients are after all. */
  tick(): [id: string, said: Place | null][] {
    const expired: [string, Place | null][] = []
    for (const [id, drop] of this.waiting) {
      if (drop.ticksLeft === null || (drop.ticksLeft -= 1) > 0) continue
      this.waiting.delete(id)
      expired.push([id, drop.said])
    }
    return expired
  }

  clear(): void {
    this.waiting.clear()
  }
}
