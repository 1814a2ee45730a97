"""One target, fuzzed by libFuzzer with the coverage of our code: `python -m tests.fuzz.guided TARGET [OPTIONS]`.

`tests.fuzz` runs it once for each target.
"""

import sys

import atheris

with atheris.instrument_imports(include=["geomq"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    program, target, *options = sys.argv
    feed = TARGETS[target]

    def one_input(data: bytes) -> None:
        feed(data)

    atheris.Setup([program, *options], one_input)
    atheris.Fuzz()


main()
