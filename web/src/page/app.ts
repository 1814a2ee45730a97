/** What the panels may ask of the page. */
import type { EarthMap } from '../map/map'
import type { Federation } from '../model/federation'
import type { Selection } from '../model/selection'
import type { Fence, Place, Session } from '../wire/messages'

export type TabName = 'overview' | 'events' | 'try' | 'layers' | 'results' | 'details'

export interface App {
  readonly session: Session
  readonly map: EarthMap
  readonly live: boolean
  /** The recorded view that is shown; undefined when it is the running federation. */
  readonly view: string | undefined
  readonly federation: Federation
  readonly selection: Selection | null
  select(selection: Selection | null): void
  open(tab: TabName): void
  /** Say something to the person, on screen and to a screen reader. */
  tell(text: string, kind?: 'done' | 'failed'): void
}

/** One tab's content. */
export interface Panel {
  readonly element: HTMLElement
  /** The data may have changed; called a few times a second while the panel is shown. */
  update(): void
  selectionChanged?(): void
  fenceDrawn?(fence: Fence): void
  placeChosen?(place: Place): void
}

/** Why a control is disabled, or null when it may be used. */
export function whyNot(app: App): string | null {
  if (!app.live) return 'This is a recording.'
  if (app.session.admin) return null
  return app.session.reason ?? 'Read-only: log in as an administrator to change things.'
}
