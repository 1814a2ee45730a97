"""Every name of the geo vocabulary stands in one place."""

import re
from pathlib import Path

from geomq import vocabulary

SOURCES = Path(vocabulary.__file__).parent
ELSEWHERE = {"vocabulary.py", "sim/virtual/profile.py", "sim/virtual/device.py"}
"""The simulated devices are written independently of the product on purpose."""


def test_names_are_not_written_twice() -> None:
    values = {value for name, value in vars(vocabulary).items() if name.isupper()}
    assert len(values) == len([name for name in vars(vocabulary) if name.isupper()])
    written = re.compile("|".join(rf'b?"{re.escape(value)}"' for value in values))
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if name not in ELSEWHERE:
            found = written.search(path.read_text())
            assert found is None, f"{name} writes {found[0]}"
