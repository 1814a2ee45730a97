"""The diagrams of the strategy pages: one subscription, one event, and every message they cause, drawn on a map.

The messages are those of a simulation on the 25 published brokers, so a diagram cannot say what the code does not do.
`python -m geomq.dashboard.diagram docs/topics/strategies/images` draws them anew.
"""

import sys
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from geomq.geo import Circle, Location, destination
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim.engine import Observer, Origin, Simulation
from geomq.sim.network import CLOUD, CLOUD_LOCATION
from geomq.sim.overlay import geographic_links
from geomq.sim.script import Step
from geomq.workload.world import GROUP_MS, World

SUBSCRIBER, PUBLISHER = BrokerId("Munich"), BrokerId("Athens")
FENCE_M = 2_000_000.0
TOPIC = "news"
WIDTH, HEIGHT, NORTH, SOUTH = 840.0, 350.0, 70.0, -40.0
COLOURS = {"subscription": "#0072b2", "event": "#d55e00", "delivery": "#009e73", "location": "#56b4e9"}
"""Those of Okabe and Ito, which everybody can tell apart."""
BENDS = {"subscription": 1.6, "event": 1.0, "delivery": 2.2, "location": 0.4}
"""Messages of different kinds between the same brokers keep apart."""
STEPS_MS = (1_000, 30_000, 60_000, 90_000)


class Arrow(NamedTuple):
    """A message between two brokers."""

    source: BrokerId
    target: BrokerId
    kind: str


class _Arrows(Observer):
    """Collects who sent what to whom; messages about routes are left out."""

    def __init__(self) -> None:
        self.sent_arrows: dict[Arrow, int] = {}

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        if message.kind in COLOURS and origin.client is not None:
            arrow = Arrow(source, target, message.kind)
            self.sent_arrows[arrow] = self.sent_arrows.get(arrow, 0) + 1


def arrows_of(strategy: str) -> dict[Arrow, int]:
    """What one subscription in Munich and one event in Athens make the brokers send."""
    world = World.published()
    federation = world.federation
    options: dict[str, object] = {}
    if strategy == "mesh":
        options = {"links": geographic_links(federation), "groups": {TOPIC: TOPIC}}
    if strategy == "broadcast_groups":
        weights = {place.name: float(place.population) for place in world.places}
        options = {"formation": "fixed", "join_ms": GROUP_MS, "lcm": weights}
    simulation = Simulation(federation, strategy, options=options)
    simulation.connect_all()
    simulation.advance(STEPS_MS[0])
    arrows = _Arrows()
    simulation.observers.append(arrows)
    subscriber, publisher = ClientId("subscriber"), ClientId("publisher")
    here, there = federation.location(SUBSCRIBER), federation.location(PUBLISHER)
    steps = [
        Step(STEPS_MS[0], SUBSCRIBER, ClientMoved(subscriber, here)),
        Step(STEPS_MS[0], PUBLISHER, ClientMoved(publisher, there)),
        Step(STEPS_MS[1], SUBSCRIBER, ClientSubscribed(subscriber, TOPIC, Circle(here, FENCE_M))),
        Step(STEPS_MS[2], PUBLISHER, ClientPublished(publisher, TOPIC, Circle(there, FENCE_M))),
    ]
    simulation.run(steps, until_ms=STEPS_MS[3])
    return arrows.sent_arrows


def diagram(strategy: str) -> str:
    """The SVG of one strategy."""
    places = {broker.id: broker.location for broker in World.published().federation.brokers}
    arrows = arrows_of(strategy)
    if any(CLOUD in arrow[:2] for arrow in arrows):
        places[CLOUD] = CLOUD_LOCATION
    parts = [*_head(strategy), *_fences(places)]
    parts += [_arrow(arrow, places) for arrow in sorted(arrows)]
    parts += [_broker(name, place) for name, place in sorted(places.items())]
    return "\n".join([*parts, *_legend(arrows), "</svg>", ""])


def _point(place: Location) -> tuple[float, float]:
    return (place.lon + 180.0) / 360.0 * WIDTH, (NORTH - place.lat) / (NORTH - SOUTH) * HEIGHT


def _head(strategy: str) -> list[str]:
    title = f"What a subscription in Munich and an event in Athens cost under {strategy}"
    markers = [
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'
        for kind, colour in COLOURS.items()
    ]
    lines = [f"M{x * WIDTH / 12:.0f} 0v{HEIGHT:.0f}" for x in range(1, 12)]
    lines += [f"M0 {y * HEIGHT / 5.5:.0f}h{WIDTH:.0f}" for y in range(1, 6)]
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {HEIGHT + 26:.0f}" role="img" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        f"<defs>{''.join(markers)}</defs>",
        f'<rect width="{WIDTH:.0f}" height="{HEIGHT + 26:.0f}" fill="#fff"/>',
        f'<path d="{"".join(lines)}" stroke="#e6e6e6" fill="none"/>',
    ]


def _fences(places: dict[BrokerId, Location]) -> list[str]:
    """The fences of the subscription and of the event, as their outlines."""
    drawn = []
    for centre, kind in ((places[SUBSCRIBER], "subscription"), (places[PUBLISHER], "event")):
        around = [_point(destination(centre, bearing, FENCE_M)) for bearing in range(0, 360, 6)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in around)
        drawn.append(f'<path d="M{path}z" fill="{COLOURS[kind]}" fill-opacity=".07" stroke="{COLOURS[kind]}" '
                     'stroke-dasharray="4 3"/>')  # fmt: skip
    return drawn


def _arrow(arrow: Arrow, places: dict[BrokerId, Location]) -> str:
    """A curve, bent to one side so that there and back do not hide each other; it ends before the broker's dot."""
    (x1, y1), (x2, y2) = _point(places[arrow.source]), _point(places[arrow.target])
    length = max(1.0, ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5)
    bend = min(30.0, length / 6) * BENDS[arrow.kind]
    xm, ym = (x1 + x2) / 2 - (y2 - y1) / length * bend, (y1 + y2) / 2 + (x2 - x1) / length * bend
    xe, ye = x2 - (x2 - xm) / length * 8, y2 - (y2 - ym) / length * 8
    return (
        f'<path d="M{x1:.1f} {y1:.1f}Q{xm:.1f} {ym:.1f} {xe:.1f} {ye:.1f}" fill="none" stroke="{COLOURS[arrow.kind]}" '
        f'stroke-width="1.4" marker-end="url(#{arrow.kind})"/>'
    )


def _broker(name: BrokerId, place: Location) -> str:
    x, y = _point(place)
    chosen = {SUBSCRIBER: "subscription", PUBLISHER: "event"}.get(name)
    colour = COLOURS[chosen] if chosen else "#333"
    label = f"{name}: {'subscriber' if chosen == 'subscription' else 'publisher'}" if chosen else str(name)
    weight = ' font-weight="bold"' if chosen or name == CLOUD else ""
    above = -8 if name in (SUBSCRIBER, CLOUD) else 14
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if chosen else 3.5}" fill="{colour}"/>'
        f'<text x="{x:.1f}" y="{y + above:.1f}" text-anchor="middle" fill="#222"{weight}>{escape(label)}</text>'
    )


def _legend(arrows: dict[Arrow, int]) -> list[str]:
    """How many messages of each kind; none is worth saying too."""
    counts = {kind: sum(count for arrow, count in arrows.items() if arrow.kind == kind) for kind in COLOURS}
    words = [f"{count} {kind}" for kind, count in counts.items() if count]
    total = sum(counts.values())
    parts, x, y = [], 10.0, HEIGHT + 17
    for kind, count in counts.items():
        if count:
            text = f"{count} {kind} message{'' if count == 1 else 's'}"
            parts.append(f'<path d="M{x:.0f} {y - 4:.0f}h22" stroke="{COLOURS[kind]}" stroke-width="2"/>')
            parts.append(f'<text x="{x + 28:.0f}" y="{y:.0f}" fill="#222">{text}</text>')
            x += 40 + 6.2 * len(text)
    total_text = "no messages between brokers" if not words else f"{total} in all; dashed: the two fences"
    parts.append(f'<text x="{x:.0f}" y="{y:.0f}" fill="#222">{total_text}</text>')
    return parts


def draw_all(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for strategy in STRATEGIES:
        if strategy != "single":
            (directory / f"{strategy}.svg").write_text(diagram(strategy))


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]))
