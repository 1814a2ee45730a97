"""What a scrape shows."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from prometheus_client.parser import text_string_to_metric_families

from geomq.broker.config.settings import Config
from geomq.broker.operations.admin_view import ClientView, SubscriptionView
from geomq.broker.operations.metrics import make_registry, metrics_text
from geomq.broker.state.drops import Drop, Reason
from geomq.broker.state.tracer import RingPage


class Numbers:
    """A broker that is nothing but numbers."""

    membership: Any = None

    config = Config()
    started_at = 5.0
    listeners: ClassVar[list[tuple[str, str, int]]] = []

    def __init__(self) -> None:
        self.events = 0

    def unwell(self) -> str | None:
        return None

    def counts(self) -> Mapping[str, int]:
        return {"events_received": self.events, "odd_thing": 2}

    def drops(self) -> Iterable[tuple[Drop, int]]:
        return [(Drop(Reason.QUEUE_FULL, "peer", "b"), 3)]

    def gauges(self) -> Mapping[str, float]:
        return {"connections": 1.5}

    def client_ids(self) -> Iterable[str]:
        return ()

    def client(self, client_id: str) -> ClientView | None:
        return None

    def subscriptions(self, client_id: str) -> Iterable[SubscriptionView]:
        return ()

    def kick(self, client_id: str, *, discard: bool) -> bool:
        return False

    def trace(self, since: int, limit: int) -> RingPage:
        return RingPage([], 0, 0)


def test_every_scrape_reads_the_numbers_anew() -> None:
    numbers = Numbers()
    registry = make_registry(numbers)

    def scrape() -> dict[str, float]:
        families = text_string_to_metric_families(metrics_text(registry).decode())
        return {sample.name: sample.value for family in families for sample in family.samples}

    assert scrape()["geomq_events_received_total"] == 0
    numbers.events = 10**15
    values = scrape()
    assert values["geomq_events_received_total"] == 10**15
    assert values["geomq_odd_thing_total"] == 2
    assert values["geomq_connections"] == 1.5
    assert values["geomq_start_time_seconds"] == 5.0
    assert values["process_resident_memory_bytes"] > 0


def test_drops_are_shown_by_reason_and_receiver() -> None:
    text = metrics_text(make_registry(Numbers())).decode()
    assert 'geomq_dropped_events_total{peer="b",reason="queue_full",receiver="peer"} 3.0' in text


def test_two_brokers_in_one_process_do_not_share_metrics() -> None:
    first, second = Numbers(), Numbers()
    registries = make_registry(first), make_registry(second)
    first.events = 3
    assert b"geomq_events_received_total 3.0" in metrics_text(registries[0])
    assert b"geomq_events_received_total 0.0" in metrics_text(registries[1])
