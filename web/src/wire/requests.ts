/** The one place that talks HTTP to the server. Every failure is an `ApiError` with a sentence for a person. */
import type { ClientDetails, Fence, Place, RecordedView, Session, ViewEntry, Why } from './messages'

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message)
  }
}

export const getSession = () => get<Session>('session')
export const getViews = () => get<ViewEntry[]>('views')
export const getView = (id: string) => get<RecordedView>(`views/${encodeURIComponent(id)}`)
export const getWhy = (event: string, asked: { client?: string; view?: string }) =>
  get<Why>(`why/${encodeURIComponent(event)}?${new URLSearchParams(asked).toString()}`)
export const getClient = (id: string) => get<ClientDetails>(`clients/${encodeURIComponent(id)}`)

export const login = (token: string) => post('login', { token })
export const logout = () => post('logout', {})
export const setStrategy = (strategy: string) => post('strategy', { strategy })
export const moveClient = (id: string, at: Place) => post(`clients/${encodeURIComponent(id)}/move`, { at })
export const unsubscribe = (filter: string, broker: string) => post('unsubscribe', { filter, broker })

export interface Publication {
  broker: string | null
  topic: string
  payload: string
  qos: 0 | 1
  at: Place | null
  fence: Fence | null
}
export const publish = (publication: Publication) => post<{ id: string | null }>('publish', publication)

export interface Subscription {
  broker: string | null
  filter: string
  fence: Fence | null
  at: Place | null
}
export const subscribe = (subscription: Subscription) => post<{ broker: string }>('subscribe', subscription)

const get = <T>(path: string) => call<T>(path, {})

const post = <T = void>(path: string, body: unknown) =>
  call<T>(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-GeoMQ': '1' },
    body: JSON.stringify(body),
  })

async function call<T>(path: string, init: RequestInit): Promise<T> {
  const response = await fetch(`api/${path}`, { ...init, credentials: 'same-origin' }).catch(() => {
    throw new ApiError('The server does not answer.', 0)
  })
  const text = await response.text()
  if (!response.ok) throw new ApiError(reason(text) ?? `The server answered ${response.status}.`, response.status)
  return (text ? JSON.parse(text) : undefined) as T
}

function reason(text: string): string | null {
  try {
    const { error } = JSON.parse(text) as { error?: unknown }
    return typeof error === 'string' ? error : null
  } catch {
    return null
  }
}
