"""Walks through the code are counted call by call."""

import sys
from types import CodeType, FrameType

from bench.walks import SOURCE, Follower

from geomq.geo import Location, distance_m


def test_calls_files_and_changes_of_file_are_counted() -> None:
    follower = Follower()
    sys.setprofile(follower)
    try:
        distance_m(Location(0.0, 0.0), Location(0.0, 1.0))
    finally:
        sys.setprofile(None)
    walk = follower.walk
    assert walk.calls >= 1
    assert 1 <= walk.files <= walk.calls
    assert walk.changes < walk.calls


def test_only_calls_of_the_product_count() -> None:
    follower = Follower()

    def frame(file: str) -> FrameType:
        code: CodeType = compile("frame()", file, "eval")
        found: list[FrameType] = []
        eval(code, {"frame": lambda: found.append(sys._getframe(1))})
        return found[0]

    for file in (f"{SOURCE}/a.py", f"{SOURCE}/a.py", "elsewhere.py", f"{SOURCE}/b.py", f"{SOURCE}/a.py"):
        follower(frame(file), "call", None)
        follower(frame(file), "return", None)
    assert follower.walk == (4, 2, 2)
