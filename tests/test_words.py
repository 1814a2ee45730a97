"""No phrase that a reader stumbles over is in the code, its messages or the documentation.

Left out are the published results and what they say (`docs/reproduction`), and the tests.
"""

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
GENERATED = TOP / "docs" / "reproduction"
FILES = (
    *sorted((TOP / "src").rglob("*.py")),
    *(page for page in sorted((TOP / "docs").rglob("*.md")) if GENERATED not in page.parents),
    *(TOP / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
)
THINGS = "fence|location|circle|number|client|peer|filter|packet|file|directory|day|time such|radius"

BETTER = {
    r"\b(that|which|who) (is|are|was|were) none\b": "invalid, malformed",
    r"\b(is|are) none of (the|our|its|his|their|them|us|ours)\b": "is not one of, another part handles it",
    rf"(?<!there )\b(is|are) no ({THINGS})s?\b": "is not a",
    r"\bhas no place here\b": "is not expected now",
    r"\bwhat stands there\b": "the rest, what it contains",
    r"\bstands there twice\b": "is listed twice",
    r"\bdoes not read \w+[:=,]\w+": "is not of the form",
    r"\bis of no client\b": "invalid session record",
    r"\bthat nobody (asked|can make)\b": "not requested, invalid",
    r"\bmade trouble\b": "failed",
    r"\bsay what (it|he) wants\b": "make one request",
    r"\bfell silent\b": "stopped sending",
    r"\bhung up\b": "disconnected",
    r"\bfor ever\b": "forever",
    r"\b(visitors?|strangers?)\b": "unknown brokers, page clients",
    r"\b(brokers|peers) (say|tell|hear)\b": "send, announce, receive",
    r"\b(tells?|told) (a |the |all |every |other )*(brokers?|peers?|homes?)\b": "sends, notifies",
}
CAUGHT = (
    "a location or fence that is none",
    "are none of the peers",
    "x is no number",
    "AUTH has no place here",
    "what stands there is left to the ordinary way",
    "user alice stands there twice",
    "'x' does not read user:hash",
    "it is of no client",
    "a session that nobody asked for",
    "a message of a peer made trouble",
    "each may say what it wants, and soon",
    "the peer fell silent",
    "the broker hung up",
    "they would be turned away for ever",
    "too many strangers at once",
    "what brokers say to each other",
    "each broker tells all other brokers",
)


def found(text: str) -> list[str]:
    """What stumbles, with what to write instead; phrases may run over the end of a line."""
    line = " ".join(text.split())
    return [
        f"{hit[0]!r}: better {better}"
        for phrase, better in BETTER.items()
        for hit in re.finditer(phrase, line, re.IGNORECASE)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TOP)))
def test_no_phrase_makes_a_reader_stumble(path: Path) -> None:
    assert found(path.read_text()) == []


@pytest.mark.parametrize(("phrase", "text"), [*zip(BETTER, CAUGHT, strict=True)])
def test_each_phrase_is_caught(phrase: str, text: str) -> None:
    assert re.search(phrase, text, re.IGNORECASE)
    assert found(text.replace(" ", "\n    ")) != []


def test_what_the_field_says_is_let_through() -> None:
    assert found("invalid fence; there is no file; the broker disconnected; is not listed twice") == []
