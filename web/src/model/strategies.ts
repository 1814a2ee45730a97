/** One sentence per strategy, for people who meet its name for the first time. */
const SENTENCES: Record<string, string> = {
  flood_events: 'Every event goes to every broker; subscriptions stay at home.',
  flood_subscriptions: 'Every subscription goes to every broker; events go only where one matched.',
  disgb_events: 'Events go to the brokers whose coverage meets the event’s fence; subscriptions stay at home.',
  disgb_subscriptions:
    'Subscriptions go to the brokers whose coverage meets their fence; events go only where one matched.',
  dht: 'Each topic belongs to one broker on a hash ring; events and subscriptions meet there.',
  grid_quorum: 'Brokers form a grid; events and subscriptions go to the home’s row and column, which always cross.',
  broadcast_groups: 'Near brokers form groups that share everything; leaders exchange the rest through a cloud broker.',
  mesh: 'Each topic group has a mesh of interested brokers; events travel along it, or towards its core from outside.',
  georendezvous: 'Topics are hashed to places; the brokers owning those places are where events meet subscriptions.',
  adaptive: 'Each broker chooses, per topic group, whether events or subscriptions travel, by what is cheaper now.',
  digests:
    'Brokers send each other roughly what their clients want, where that costs less than events that come in vain.',
  clairvoyant: 'The least for one who knows the future and is told of interest, pair by pair and topic by topic.',
  oracle: 'What no strategy can beat: one message per event and remote broker where somebody wants it.',
  single: 'One broker; nothing has to travel.',
}

export const strategySentence = (name: string): string => SENTENCES[name] ?? 'A strategy of your own.'
export const strategyTitle = (name: string): string => name.replaceAll('_', ' ')
