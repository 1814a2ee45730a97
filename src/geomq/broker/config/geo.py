"""The settings of how the broker learns where clients are, and what it tells of events."""

from typing import Annotated, Literal

from geomq.broker.config.section import Section, about


class Geo(Section, frozen=True):
    """How the broker learns where clients are."""

    owntracks_topics: Annotated[
        tuple[str, ...],
        about("Topics whose OwnTracks location messages update the sender's location.", reload=True),
    ] = ("owntracks/+/+",)
    details: Annotated[
        tuple[Literal["event", "time", "broker", "publisher", "location", "fence"], ...],
        about(
            "Details of each event, for subscribers that ask for them: event (its id), time, broker, location,"
            " fence, and, only if named here, publisher.",
            reload=True,
        ),
    ] = ("event", "time", "broker", "location", "fence")
