"""The admin API over real HTTP: what it shows, what it does, and whom it refuses."""

import asyncio
import http.client
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests import patience

from geomq.broker.config.settings import Admin, Config, Metrics
from geomq.broker.operations.admin import make_app
from geomq.broker.operations.admin_server import AdminServer, load_token
from geomq.broker.operations.admin_view import ClientView, SubscriptionView
from geomq.broker.state.drops import Drop
from geomq.broker.state.tracer import Ring, RingPage
from geomq.errors import ConfigError
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.routing.trace.records import TraceRecord

TOKEN = "t" * 20


class FakeBroker:
    """A broker with a handful of clients."""

    membership: Any = None

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.started_at = 1_700_000_000.0
        self.listeners = [("tcp", "127.0.0.1", 1883)]
        self.illness: str | None = None
        self.kicked: list[tuple[str, bool]] = []
        self.ring = Ring(3)
        self.known = {
            name: ClientView(
                client_id=name, connected=name != "c", location=(52.5, 13.4), fences={"home": "geo:1,2;u=3"}
            )
            for name in ("b", "a", "c", "x/y z")
        }

    def unwell(self) -> str | None:
        return self.illness

    def counts(self) -> Mapping[str, int]:
        return {"events_received": 7, "something_new": 1}

    def drops(self) -> Iterable[tuple[Drop, int]]:
        return ()

    def gauges(self) -> Mapping[str, float]:
        return {"connections": 3}

    def client_ids(self) -> Iterable[str]:
        return self.known

    def client(self, client_id: str) -> ClientView | None:
        return self.known.get(client_id)

    def subscriptions(self, client_id: str) -> Iterable[SubscriptionView]:
        yield SubscriptionView(client_id=client_id, topic_filter="a/#", qos=1, fence="geo:1,2;u=3")

    def kick(self, client_id: str, *, discard: bool) -> bool:
        self.kicked.append((client_id, discard))
        return client_id in self.known

    def trace(self, since: int, limit: int) -> RingPage:
        return self.ring.since(since, limit=limit)


Ask = Callable[..., tuple[int, Any]]


def serve(broker: FakeBroker, token: str | None, use: Callable[[Ask], None]) -> None:
    """Run `use` in a thread against a live server."""

    async def main() -> None:
        server = AdminServer(make_app(broker, lambda: token), Admin(port=0))
        await server.start()

        def ask(path: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            try:
                connection.request(method, path, headers=headers)
                response = connection.getresponse()
                body = response.read()
                is_json = (response.getheader("content-type") or "").startswith("application/json")
                return response.status, json.loads(body) if is_json else body.decode()
            finally:
                connection.close()

        try:
            await asyncio.to_thread(use, ask)
        finally:
            await server.stop()

    patience.run(main())


def test_health_tells_whether_the_broker_is_well() -> None:
    broker = FakeBroker()

    def use(ask: Ask) -> None:
        assert ask("/health") == (200, {"status": "ok"})
        broker.illness = "the disk is full"
        assert ask("/health") == (503, {"status": "the disk is full"})

    serve(broker, TOKEN, use)


def test_sessions_are_listed_in_pages() -> None:
    def use(ask: Ask) -> None:
        status, page = ask("/api/v1/sessions?limit=3")
        assert (status, [one["client_id"] for one in page["items"]], page["next"]) == (200, ["a", "b", "c"], "c")
        assert page["items"][0]["location"] == [52.5, 13.4]
        assert page["items"][0]["fences"] == {"home": "geo:1,2;u=3"}
        _, rest = ask("/api/v1/sessions?limit=3&after=c")
        assert ([one["client_id"] for one in rest["items"]], rest["next"]) == (["x/y z"], None)
        _, clients = ask("/api/v1/clients")
        assert [one["client_id"] for one in clients["items"]] == ["a", "b", "x/y z"]
        for bad in ("0", "1001", "x", "-1", "%C2%B2"):
            assert ask(f"/api/v1/sessions?limit={bad}")[0] == 400

    serve(FakeBroker(), None, use)


def test_one_session_comes_with_its_subscriptions_and_fences() -> None:
    def use(ask: Ask) -> None:
        status, one = ask("/api/v1/sessions/x/y%20z")
        assert status == 200
        assert one["client"]["client_id"] == "x/y z"
        assert one["subscriptions"][0]["fence"] == "geo:1,2;u=3"
        assert ask("/api/v1/sessions/nobody") == (404, {"error": "no such session"})

    serve(FakeBroker(), None, use)


def test_subscriptions_are_listed_in_pages() -> None:
    def use(ask: Ask) -> None:
        _, page = ask("/api/v1/subscriptions?limit=2")
        assert [one["client_id"] for one in page["items"]] == ["a", "b"]
        _, rest = ask(f"/api/v1/subscriptions?after={page['next']}")
        assert [one["client_id"] for one in rest["items"]] == ["c", "x/y z"]
        assert rest["next"] is None

    serve(FakeBroker(), None, use)


def test_kicking_disconnects_and_may_forget() -> None:
    broker = FakeBroker()

    def use(ask: Ask) -> None:
        assert ask("/api/v1/sessions/a", "DELETE") == (204, "")
        assert ask("/api/v1/sessions/b?discard=true", "DELETE")[0] == 204
        assert ask("/api/v1/sessions/b?discard=maybe", "DELETE")[0] == 400
        assert ask("/api/v1/sessions/nobody", "DELETE")[0] == 404
        assert ask("/api/v1/sessions/a", "PUT") == (405, {"error": "method not allowed"})
        assert ask("/api/v1/nothing")[0] == 404

    serve(broker, None, use)
    assert broker.kicked == [("a", False), ("b", True), ("nobody", False)]


def test_config_and_totals_are_shown() -> None:
    def use(ask: Ask) -> None:
        _, config = ask("/api/v1/config")
        assert config["limits"]["receive_maximum"] == 20
        _, about = ask("/api/v1/broker")
        assert about["name"] == "geomq"
        assert about["counts"]["events_received"] == 7
        assert about["gauges"] == {"connections": 3}

    serve(FakeBroker(), None, use)


def test_with_a_token_only_its_holder_is_served() -> None:
    def use(ask: Ask) -> None:
        assert ask("/api/v1/clients")[0] == 401
        assert ask("/api/v1/clients", Authorization="Bearer wrong")[0] == 401
        assert ask("/api/v1/clients", Authorization="Bearer tö")[0] == 401
        assert ask("/metrics")[0] == 401
        assert ask("/api/v1/clients", Authorization=f"Bearer {TOKEN}", Origin="https://x.example")[0] == 200
        assert ask("/health")[0] == 200

    serve(FakeBroker(), TOKEN, use)


def test_without_a_token_no_web_page_is_served() -> None:
    def use(ask: Ask) -> None:
        assert ask("/api/v1/clients")[0] == 200
        assert ask("/api/v1/clients", Origin="http://localhost")[0] == 403
        for host in ("evil.example", "{}.evil.example", "127.0.0.1/health?"):
            assert ask("/api/v1/clients", Host=host)[0] == 403
        assert ask("/api/v1/clients", Host="localhost:1")[0] == 200
        assert ask("/health", Host="evil.example")[0] == 200

    serve(FakeBroker(), None, use)


def test_metrics_may_be_public() -> None:
    config = msgspec.structs.replace(Config(), metrics=Metrics(public=True))

    def use(ask: Ask) -> None:
        status, text = ask("/metrics")
        assert status == 200
        assert "geomq_events_received_total 7.0" in text

    serve(FakeBroker(config), TOKEN, use)


def test_a_taken_port_is_one_clear_line() -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            server = AdminServer(make_app(FakeBroker(), lambda: None), Admin(port=taken.getsockname()[1]))
            with pytest.raises(
                ConfigError, match=r"\[admin\] cannot listen on 127\.0\.0\.1:\d+: Address already in use"
            ):
                await server.start()
            await server.stop()

    patience.run(main())


def test_the_token_file_holds_one_good_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert load_token(Admin(token_file=str(file))) == TOKEN
    assert load_token(Admin()) is None
    for bad in (b"short", b"two words of some length", b"\xff" * 20, b""):
        file.write_bytes(bad)
        with pytest.raises(ConfigError, match="one line with a token"):
            load_token(Admin(token_file=str(file)))
    with pytest.raises(ConfigError, match="cannot read it"):
        load_token(Admin(token_file=str(tmp_path / "none")))


def test_the_trace_is_read_on_from_where_one_was() -> None:
    broker = FakeBroker()
    paris = BrokerId("paris")
    for sequence in range(5):
        event_id = EventId(paris, 1, sequence)
        broker.ring(TraceRecord(sequence, paris, "published", "event", event_id, client=ClientId("c"), topic="t"))

    def use(ask: Ask) -> None:
        status, page = ask("/api/v1/trace?limit=2")
        assert (status, page["next"], page["missed"]) == (200, 4, 2)
        assert page["items"][0] == {
            "t_ms": 2,
            "broker": "paris",
            "step": "published",
            "kind": "event",
            "event_id": "paris:1:2",
            "client": "c",
            "topic": "t",
        }
        assert [one["event_id"] for one in ask("/api/v1/trace?since=4")[1]["items"]] == ["paris:1:4"]
        assert ask("/api/v1/trace?since=5")[1] == {"items": [], "next": 5, "missed": 0}
        for bad in ("-1", "x", "1" * 20):
            assert ask(f"/api/v1/trace?since={bad}")[0] == 400

    serve(broker, None, use)
