"""Topics whose events say something about their sender: `$` topics, and those that OwnTracks publishes places on."""

from typing import Final

from geomq.broker.core import Core
from geomq.mqtt.codec.topics import REMEMBERED_CHARS_MAX, topic_matches

_REMEMBERED_MAX: Final = 10_000


class Following:
    """Remembers which topics are OwnTracks' under the config of now."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._owntracks: dict[str, bool] = {}

    def is_owntracks(self, topic: str) -> bool:
        known = self._owntracks.get(topic)
        if known is None:
            known = any(topic_matches(each, topic) for each in self._core.config.geo.owntracks_topics)
            if len(topic) <= REMEMBERED_CHARS_MAX:
                if len(self._owntracks) >= _REMEMBERED_MAX:
                    self._owntracks.clear()
                self._owntracks[topic] = known
        return known

    def watches(self, topic: str) -> bool:
        """Whether events on this topic say something about their sender."""
        return topic.startswith("$") or self.is_owntracks(topic)

    def forget_topics(self) -> None:
        """The settings changed."""
        self._owntracks.clear()
