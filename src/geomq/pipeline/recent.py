"""Recent traffic of running brokers, asked for over their admin APIs.

Owns the questions: who is there, what is subscribed, and what happens while we listen. The answer is the same traffic
that a trace on disk becomes.
"""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from geomq.broker.operations.admin_address import check_address
from geomq.errors import DataError, GeomqError, UsageError
from geomq.geo import parse_location
from geomq.routing.federation.outline import Outline, OutlinedBroker
from geomq.workload.traffic.recorded_traffic import STEPS, Traffic, traffic_of

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT_S = 10
POLL_S = 1.0
PAGE = 1000


def _understood(question: Callable[P, T]) -> Callable[P, T]:
    """For requests to an admin API: an invalid answer is a DataError, too."""

    @wraps(question)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return question(*args, **kwargs)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise DataError(f"{args[0]} is not the admin API of a broker") from None

    return asked


class Admin:
    """One broker's admin API."""

    def __init__(self, address: str, token: str | None) -> None:
        self._base = check_address(address, token).rstrip("/")
        self._token = token
        self._since = 0
        self.missed = 0

    def __str__(self) -> str:
        return self._base

    def ask(self, path: str, **query: object) -> Any:
        text = urllib.parse.urlencode({name: value for name, value in query.items() if value is not None})
        request = urllib.request.Request(f"{self._base}/api/v1/{path}?{text}")
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise DataError(f"{self._base} answered {error.code} {error.reason} to {path}") from None
        except OSError as error:
            raise DataError(f"{self._base} did not answer: {getattr(error, 'reason', None) or error}") from None

    @_understood
    def outline(self) -> Outline:
        """The federation as this broker's config says, itself first."""
        config = self.ask("config")
        me = config["broker"] | {"area": config["federation"].get("area")}
        brokers = [_outlined(broker) for broker in (me, *config.get("peers", []))]
        return Outline(tuple(brokers), config["routing"]["strategy"])

    @_understood
    def state(self, broker: str) -> list[dict[str, Any]]:
        """Who is there and what is subscribed, as if it happened now."""
        now_ms = time.time() * 1000
        rows: list[dict[str, Any]] = []
        for session in self._pages("sessions"):
            place = session.get("location")
            if place is not None:
                lat, lon = place if isinstance(place, list) else parse_location(place)
                rows.append(_row(now_ms, broker, "moved", session["client_id"], lat=lat, lon=lon))
        for held in self._pages("subscriptions"):
            name, wanted = held["topic_filter"], held["client_id"]
            rows.append(_row(now_ms, broker, "subscribed", wanted, topic=name, fence=held.get("fence")))
        return rows

    def _pages(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = None
        while True:
            page = self.ask(path, limit=PAGE, after=after)
            found += page["items"]
            after = page.get("next")
            if after is None:
                return found

    @_understood
    def trace(self) -> list[dict[str, Any]]:
        """What clients did since the last question."""
        rows: list[dict[str, Any]] = []
        while True:
            page = self.ask("trace", since=self._since, limit=PAGE)
            self.missed += page["missed"]
            self._since = page["next"]
            rows += [row for row in page["items"] if row["step"] in STEPS]
            if len(page["items"]) < PAGE:
                return rows


def read_token(file: Path | None) -> str | None:
    """What a token file holds."""
    if file is None:
        return None
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}") from None


def _outlined(broker: dict[str, Any]) -> OutlinedBroker:
    try:
        place = None if broker.get("location") is None else parse_location(broker["location"])
    except GeomqError as error:
        raise DataError(f"broker {broker['name']}: {error}") from None
    return OutlinedBroker(broker["name"], place, broker.get("area"))


def _row(t_ms: float, broker: str, step: str, client: str, **more: Any) -> dict[str, Any]:
    return {"t_ms": t_ms, "broker": broker, "step": step, "client": client, **more}


def listen(
    addresses: Sequence[str], *, seconds: float, token: str | None, said: Callable[[float], None] = lambda _: None
) -> Traffic:
    """The traffic of some brokers over the next seconds; `said` hears how many are left."""
    admins = [Admin(address, token) for address in addresses]
    outline = admins[0].outline()
    names = [admin.outline().brokers[0].name for admin in admins]
    if any(broker.location is None for broker in outline.brokers) and len(outline.brokers) > 1:
        raise DataError("a broker of the federation has no location in its config: distances are unknown")
    for admin in admins:
        admin.trace()
    rows = [row for admin, name in zip(admins, names, strict=True) for row in admin.state(name)]
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        said(max(left, 0.0))
        time.sleep(max(0.0, min(POLL_S, left)))
        for admin in admins:
            rows += admin.trace()
        if left <= 0:
            break
    rows.sort(key=lambda row: float(row["t_ms"]))
    traffic = traffic_of(outline, rows)
    missed = sum(admin.missed for admin in admins)
    silent = [broker.name for broker in outline.brokers if broker.name not in names]
    notes = [f"{missed:,} records missed: the brokers write records faster than they are read"] if missed else []
    notes += [f"not reached: {', '.join(silent)}"] if silent else []
    return Traffic(traffic.outline, traffic.topics, traffic.homes, traffic.actions, (*traffic.notes, *notes))
