/** MQTT topic filters: `+` is one level, `#` the rest, and neither meets a topic that starts with `$`. */
export function topicMatches(filter: string, topic: string): boolean {
  const wanted = unshared(filter).split('/')
  const levels = topic.split('/')
  if (topic.startsWith('$') && (wanted[0] === '+' || wanted[0] === '#')) return false
  for (let index = 0; index < wanted.length; index += 1) {
    if (wanted[index] === '#') return true
    if (index >= levels.length) return false
    if (wanted[index] !== '+' && wanted[index] !== levels[index]) return false
  }
  return wanted.length === levels.length
}

/** What a person types to look for events: a filter with wildcards, or any part of a topic. */
export function topicSearch(text: string): (topic: string) => boolean {
  const wanted = text.trim()
  if (!wanted) return () => true
  if (/[+#]/.test(wanted)) return (topic) => topicMatches(wanted, topic)
  const lower = wanted.toLowerCase()
  return (topic) => topic.toLowerCase().includes(lower)
}

function unshared(filter: string): string {
  return filter.startsWith('$share/') ? filter.split('/').slice(2).join('/') : filter
}
