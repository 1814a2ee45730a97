"""Lines about clients: each with its reason, so many in ten seconds, and one about the rest."""

import logging

import pytest

from geomq.broker.config.recording import Log
from geomq.broker.state.client_log import ID_CHARS_MAX, SPAN_S, ClientLog
from geomq.broker.state.counts import Counts


class Written:
    """A client log whose clock and settings a test turns."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="geomq.broker")
        self._caplog = caplog
        self.now, self.settings, self.counts = 0.0, Log(client_lines_max=2), Counts()
        self.log = ClientLog(self.counts, settings=lambda: self.settings, now_s=lambda: self.now)

    @property
    def lines(self) -> list[str]:
        names = ("client", "address", "user", "reason", "count")
        return [
            " ".join([each.getMessage(), *(f"{name}={each.__dict__[name]}" for name in names if name in each.__dict__)])
            for each in self._caplog.records
        ]


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> Written:
    return Written(caplog)


def test_each_kind_says_who_where_and_why(written: Written) -> None:
    written.log.connected("c", "::1", user="ann", session=None)
    written.log.disconnected("c", "::1", "keep alive timeout")
    written.log.refused(None, "::1", "too many connections")
    assert written.lines == [
        "client connected client=c address=::1 user=ann",
        "client disconnected client=c address=::1 reason=keep alive timeout",
        "client refused address=::1 reason=too many connections",
    ]
    assert (written.counts.clients_connected, written.counts.clients_disconnected) == (1, 1)


def test_too_many_of_a_kind_are_one_line_and_leave_room_for_the_others(written: Written) -> None:
    for number in range(50):
        written.log.refused(f"c{number}", "::1", "not authorized")
    written.log.connected("good", "::1")
    written.log.report()
    assert [line.split()[1] for line in written.lines] == ["refused", "refused", "connected"]
    written.now = SPAN_S
    written.log.report()
    written.log.report()
    assert written.lines[3:] == ["client refused, more of them count=48"]
    assert written.counts.client_lines_unlogged == 48
    written.log.refused("late", "::1", "not authorized")
    assert written.lines[-1].startswith("client refused client=late")


def test_the_rest_is_told_before_new_lines_also_when_nobody_asked(written: Written) -> None:
    for number in range(3):
        written.log.connected(f"c{number}", "::1")
    written.now = SPAN_S
    written.log.connected("next", "::1")
    assert written.lines[2:] == ["client connected, more of them count=1", "client connected client=next address=::1"]


@pytest.mark.parametrize(("clients", "kinds"), [("all", 3), ("refused", 1), ("none", 0)])
def test_the_settings_choose_and_all_are_counted(clients: str, kinds: int, written: Written) -> None:
    written.settings = Log(clients=clients)  # type: ignore[arg-type]
    written.log.connected("c", "::1")
    written.log.disconnected("c", "::1", "left")
    written.log.refused("d", "::1", "not authorized")
    assert len(written.lines) == kinds
    assert written.counts.clients_connected == written.counts.clients_disconnected == 1


def test_a_long_client_id_makes_no_long_line(written: Written) -> None:
    written.log.connected("x" * 65_535, "::1")
    assert len(written.lines[0]) < ID_CHARS_MAX + 60
