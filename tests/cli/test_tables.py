"""Tables never cut a name or a number, however narrow the terminal."""

import json
import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.cli.tables import Table, cells, lines_of

TABLE = Table(
    ("strategy", "event", "control", "total", "verdict"),
    [
        ["disgb_subscriptions", "1,234,567", "0", "1,234,567", "right"],
        ["дальний-東京", "12", "34", "46", "3 missed"],
    ],
    left=("strategy", "verdict"),
    spare=("control", "event"),
    title="two strategies",
    caption="messages by kind",
)


def test_a_table_that_fits_is_shown_whole_and_in_line() -> None:
    lines = lines_of(TABLE, 80)
    assert lines == [
        "two strategies",
        "strategy                 event  control      total  verdict",
        "───────────────────  ─────────  ───────  ─────────  ────────",
        "disgb_subscriptions  1,234,567        0  1,234,567  right",
        "дальний-東京                12       34         46  3 missed",
        "messages by kind",
    ]
    assert lines_of(TABLE, None) == lines


def test_a_narrower_terminal_gets_fewer_columns_and_is_told_which() -> None:
    lines = lines_of(TABLE, 45)
    assert lines[1].split() == ["strategy", "total", "verdict"]
    assert lines[3] == "disgb_subscriptions  1,234,567  right"
    assert lines[-1] == "Not shown on 45 columns: control, event; a wider terminal or --json has them."


def test_a_very_narrow_terminal_gets_records_with_everything() -> None:
    lines = lines_of(TABLE, 30)
    assert lines[1:6] == [
        "disgb_subscriptions",
        "  event    1,234,567",
        "  control  0",
        "  total    1,234,567",
        "  verdict  right",
    ]
    assert lines[-1] == "messages by kind"


def test_letters_take_the_columns_they_take_on_a_terminal() -> None:
    assert [cells(text) for text in ("abc", "東京", "e\u0301", "")] == [3, 4, 1, 0]


def test_a_name_cannot_steer_the_terminal() -> None:
    lines = lines_of(Table(("name", "n"), [["a\x1b[2J\nb", "1"]], ("name",), title="t\x07"), 80)
    assert [lines[0], lines[-1]] == ["t\\x07", "a\\x1b[2J\\nb  1"]


words = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=30)


@given(st.lists(st.lists(words, min_size=4, max_size=4), max_size=5), st.integers(1, 130), st.sets(st.integers(1, 3)))
def test_every_value_is_whole_or_its_column_is_said_to_be_left_out(
    rows: list[list[str]], width: int, spare: set[int]
) -> None:
    headers = ("first", "second", "third", "fourth")
    lines = lines_of(Table(headers, rows, ("first",), [headers[number] for number in sorted(spare)]), width)
    *_, last = lines or [""]
    gone = last.removeprefix("Not shown on ").partition(": ")[2].partition(";")[0] if "Not shown on " in last else ""
    kept = [number for number, name in enumerate(headers) if name not in gone.split(", ")]
    shown = "\n".join(lines)
    assert all(row[number] in shown for row in rows for number in kept)
    if gone:
        assert set(gone.split(", ")) <= {headers[number] for number in spare}
        assert all(cells(line) <= width for line in lines[:-1])


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_simulate_says_every_name_and_total_on_any_terminal(columns: int) -> None:
    command = [sys.executable, "-m", "geomq", "simulate", "-b", "5", "-c", "60", "--topics", "9", "-t", "100"]
    strategies = ["-s", "disgb_subscriptions,dht"]
    data = json.loads(subprocess.run([*command, *strategies, "--json"], capture_output=True, check=True).stdout)
    printed = on_a_terminal([*command, *strategies], columns)
    for name, found in data["strategies"].items():
        assert name in printed
        assert f"{found['messages']['total']:,}" in printed
    assert "…" not in printed


def on_a_terminal(command: list[str], columns: int) -> str:
    """What a command prints on a terminal so many columns wide."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "50"}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment) as running:
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            said += piece
    os.close(ours)
    assert running.returncode == 0
    return said.decode().replace("\r\n", "\n")
