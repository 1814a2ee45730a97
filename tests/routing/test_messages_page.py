"""The reference page of the messages names all of them, with what they say of themselves."""

import subprocess
import sys
from pathlib import Path

from geomq.routing.core.message_registry import declared
from geomq.routing.messages_page import messages_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "messages.md"


def test_the_page_is_up_to_date() -> None:
    """If not: python -m geomq.routing.messages_page > docs/reference/messages.md"""
    assert PAGE.read_text() == messages_page()


def test_the_command_that_writes_the_page_writes_all_of_it() -> None:
    command = (sys.executable, "-m", "geomq.routing.messages_page")
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == PAGE.read_text()


def test_every_message_of_geomq_says_what_it_means() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line[2:3].isdigit()]
    assert {int(row[0]) for row in rows} == {wire_id for wire_id in declared() if isinstance(wire_id, int)}
    assert all(len(row) == 8 and row[-1] for row in rows)
