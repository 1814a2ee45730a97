/** A word for "make this element", and little else. */
type Attributes = Record<string, unknown>
export type Child = Node | string | null | undefined | false

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag)
  assign(element, attributes)
  add(element, children)
  return element
}

export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag)
  assign(element, attributes)
  add(element, children)
  return element
}

export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren()
  add(element, children)
}

/** Change a text only when it differs, so that nothing is laid out or announced for nothing. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text
}

function add(element: Element, children: Child[]): void {
  element.append(
    ...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false),
  )
}

function assign(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue
    if (typeof value === 'function') element.addEventListener(name.replace(/^on/, ''), value as EventListener)
    else element.setAttribute(name, value === true ? '' : String(value))
  }
}
