"""Strategies of the user's own, named `module:Class`: where commands look for their modules."""

import sys
from collections.abc import Iterable
from pathlib import Path


def look_here(names: Iterable[str]) -> None:
    """Let `module:Class` name a module of the working directory; what is installed or on PYTHONPATH comes first."""
    here = str(Path.cwd())
    if any(":" in name for name in names) and here not in sys.path:
        sys.path.append(here)
