/** Puts a client somewhere: shown at once, taken back with a word if it may not go there. */
import type { Place } from '../wire/messages'
import { ApiError, moveClient } from '../wire/requests'
import type { App } from './app'

/** Whether it went. */
export async function putClient(app: App, id: string, at: Place): Promise<boolean> {
  const { federation, map } = app
  federation.drop(id, at)
  map.wake()
  try {
    await moveClient(id, at)
    federation.dropAccepted(id)
    return true
  } catch (error) {
    federation.dropRefused(id)
    map.wake()
    app.tell(error instanceof ApiError ? error.message : String(error), 'failed')
    return false
  }
}
