/** The token form, when the server wants one. The token goes into the request's body and is kept nowhere here. */
import { ApiError, login } from '../wire/requests'
import { h, say } from './dom'

export function loginForm(done: () => void): HTMLElement {
  const token = h('input', { id: 'token', type: 'password', autocomplete: 'current-password', required: true })
  const wrong = h('p', { class: 'failed', role: 'alert' })
  const submit = async (event: Event) => {
    event.preventDefault()
    try {
      await login(token.value)
      done()
    } catch (error) {
      say(
        wrong,
        error instanceof ApiError && error.status === 401
          ? 'That token is not right.'
          : error instanceof Error
            ? error.message
            : String(error),
      )
      token.select()
    }
  }
  return h(
    'form',
    { class: 'login box', onsubmit: (event: Event) => void submit(event) },
    h('h1', {}, 'GeoMQ'),
    h('p', { class: 'quiet' }, 'This dashboard asks for the token that geomq printed when it started.'),
    h('label', { for: 'token' }, 'Token'),
    token,
    wrong,
    h('button', { type: 'submit', class: 'primary' }, 'Log in'),
  )
}
