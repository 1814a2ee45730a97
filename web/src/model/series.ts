/** A bounded run of the latest values, oldest first. */
export class Series {
  private readonly values: Float64Array
  private next = 0
  length = 0

  constructor(readonly capacity: number) {
    this.values = new Float64Array(capacity)
  }

  push(value: number): void {
    this.values[this.next] = value
    this.next = (this.next + 1) % this.capacity
    this.length = Math.min(this.length + 1, this.capacity)
  }

  clear(): void {
    this.next = 0
    this.length = 0
  }

  at(index: number): number {
    const start = this.length < this.capacity ? 0 : this.next
    return this.values[(start + index) % this.capacity] ?? NaN
  }

  get last(): number {
    return this.length ? this.at(this.length - 1) : NaN
  }

  toArray(): number[] {
    return Array.from({ length: this.length }, (_, index) => this.at(index))
  }

  /** The mean of the latest `count` values that are numbers. */
  mean(count: number): number {
    let sum = 0
    let numbers = 0
    for (let index = Math.max(0, this.length - count); index < this.length; index += 1) {
      const value = this.at(index)
      if (Number.isNaN(value)) continue
      sum += value
      numbers += 1
    }
    return numbers ? sum / numbers : NaN
  }
}
