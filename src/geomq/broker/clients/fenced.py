"""Which topics have subscriptions with a fence; an answer about those depends on the publisher's place."""

from geomq.mqtt.codec.topics import TopicTrie


class FencedFilters:
    """Which filters have a fenced subscription: on their topics the publisher's place matters."""

    def __init__(self) -> None:
        self._filters: TopicTrie[set[str]] = TopicTrie()

    def note(self, voice: str, plain: str, *, fenced: bool) -> None:
        voices = self._filters.get(plain)
        if fenced:
            if voices is None:
                self._filters.put(plain, {voice})
            else:
                voices.add(voice)
        elif voices is not None:
            voices.discard(voice)
            if not voices:
                self._filters.remove(plain)

    def concern(self, topic: str) -> bool:
        return bool(self._filters.match(topic))
