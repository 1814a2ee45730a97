/** Where the page starts: who am I, may I look, then the dashboard. */
import './style/tokens.css'
import './style/page.css'
import './style/map.css'
import './style/panels.css'
import './style/charts.css'
import { Dashboard } from './page/dashboard'
import { fill, h } from './page/dom'
import { loginForm } from './page/login'
import { Theme } from './page/theme'
import { ApiError, getSession } from './wire/requests'

const root = document.querySelector<HTMLElement>('#root')!

async function start(): Promise<void> {
  try {
    const session = await getSession()
    if (session.login_required)
      return fill(
        root,
        h(
          'main',
          { class: 'alone' },
          loginForm(() => void start()),
        ),
      )
    new Dashboard(session, root)
  } catch (error) {
    const again = h('button', { type: 'button', class: 'primary', onclick: () => void start() }, 'Try again')
    const words = error instanceof ApiError ? error.message : String(error)
    fill(
      root,
      h('main', { class: 'alone' }, h('div', { class: 'box login' }, h('h1', {}, 'GeoMQ'), h('p', {}, words), again)),
    )
  }
}

new Theme(() => undefined)
void start()
