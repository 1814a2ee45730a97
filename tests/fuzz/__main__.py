"""Coverage-guided fuzzing of everything that reads bytes from strangers: `python -m tests.fuzz`.

The first byte of the input chooses the target.
"""

import sys

import atheris

with atheris.instrument_imports(include=["geomq"]):
    from tests.fuzz.targets import TARGETS

FEEDS = list(TARGETS.values())


def one_input(data: bytes) -> None:
    if data:
        FEEDS[data[0] % len(FEEDS)](data[1:])


atheris.Setup(sys.argv, one_input)
atheris.Fuzz()
