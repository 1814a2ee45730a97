"""Which topics have subscriptions with a fence; an answer about those depends on the publisher's place."""

from geomq.mqtt.codec.topics import TopicTrie


class FencedFilters:
    """Which filters have a fenced subscription: on their topics the publisher's place matters."""

    def __init__(self) -> None:
        self._filters: TopicTrie[set[str]] = TopicTrie()

    def note(self, key: str, plain: str, *, fenced: bool) -> None:
        keys = self._filters.get(plain)
        if fenced:
            if keys is None:
                self._filters.put(plain, {key})
            else:
                keys.add(key)
        elif keys is not None:
            keys.discard(key)
            if not keys:
                self._filters.remove(plain)

    def concern(self, topic: str) -> bool:
        return bool(self._filters.match(topic))
