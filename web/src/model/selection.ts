/** What the person looks at: one broker, client, topic or event, or nothing. */
export type Selection =
  | { what: 'broker'; name: string }
  | { what: 'client'; id: string }
  | { what: 'topic'; topic: string }
  | { what: 'event'; id: string }

export const same = (a: Selection | null, b: Selection | null): boolean => JSON.stringify(a) === JSON.stringify(b)
