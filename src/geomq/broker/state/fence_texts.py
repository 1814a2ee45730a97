"""The fences that clients write as text, parsed once under the limits of the config."""

from geomq.errors import GeometryError
from geomq.geo import WRITTEN_LIMITS, Fence, FenceLimits, parse_fence


class FenceTexts(dict[str, Fence]):
    """Fences by their text, parsed once: clients repeat the same text with every publish."""

    COUNT_MAX = 4_096
    CACHED_CHARS_MAX = 4_096

    def __init__(self, limits: FenceLimits) -> None:
        super().__init__()
        self.limits = limits

    def __missing__(self, text: str) -> Fence:
        fence = parse_fence(text, self.limits)
        if len(text) <= self.CACHED_CHARS_MAX:
            if len(self) >= self.COUNT_MAX:
                self.clear()
            self[text] = fence
        return fence

    def written(self, text: str) -> Fence:
        """A fence that was taken in before, here or at another broker, maybe as another text or under other limits."""
        try:
            return self[text]
        except GeometryError:
            return parse_fence(text, WRITTEN_LIMITS)
