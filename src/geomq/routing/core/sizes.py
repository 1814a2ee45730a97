"""How many bytes an event takes on a link, roughly, and without encoding it: what queues and limits count."""

from geomq.geo import Circle
from geomq.routing.core.model import Event

EVENT_BYTES = 64
"""Its id, its place, its time and the like."""
VERTEX_BYTES = 16


def event_bytes(event: Event) -> int:
    """All of it that a client can make long."""
    size = EVENT_BYTES + len(event.payload) + len(event.topic) + len(event.publisher) + len(event.properties)
    fence = event.fence
    return size if fence is None or isinstance(fence, Circle) else size + VERTEX_BYTES * fence.vertices
