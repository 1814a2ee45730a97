/** Dark or light: what the system says, until the person says otherwise. */
const KEY = 'geomq-theme'

export class Theme {
  private readonly system = matchMedia('(prefers-color-scheme: dark)')

  constructor(private readonly changed: () => void) {
    this.apply(localStorage.getItem(KEY))
    this.system.addEventListener('change', () => changed())
  }

  get dark(): boolean {
    const chosen = document.documentElement.dataset['theme']
    return chosen ? chosen === 'dark' : this.system.matches
  }

  toggle(): void {
    const theme = this.dark ? 'light' : 'dark'
    localStorage.setItem(KEY, theme)
    this.apply(theme)
    this.changed()
  }

  private apply(theme: string | null): void {
    if (theme === 'dark' || theme === 'light') document.documentElement.dataset['theme'] = theme
  }
}
