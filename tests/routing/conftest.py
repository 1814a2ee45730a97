"""Golden transcripts: text files a person can read, compared with what the strategies do now.

`GEOMQ_UPDATE_GOLDENS=1 pytest tests/routing` writes them anew, and with them the copies in the documentation.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDENS = Path(__file__).parent / "goldens"
UPDATE = os.environ.get("GEOMQ_UPDATE_GOLDENS") == "1"


@pytest.fixture
def check_golden() -> Callable[[str, str], None]:
    """Compares a text with the golden file of that name."""

    def compare(name: str, text: str) -> None:
        path = GOLDENS / f"{name}.txt"
        if UPDATE:
            path.write_text(text)
        assert text == path.read_text(), f"{path.name} has changed; if that is right, set GEOMQ_UPDATE_GOLDENS=1"

    return compare
