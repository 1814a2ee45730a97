"""The committed bundle of the dashboard's page: built from the sources beside it, and light."""

import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
PAGE = ROOT / "src" / "geomq" / "dashboard" / "page"
SOURCES = ("index.html", "package.json", "package-lock.json", "vite.config.ts", "fingerprint.ts", "src")
BYTES_MAX = 1_500_000

BUILD = json.loads((PAGE / "build.json").read_text())


def files_of(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for name in sorted(path.iterdir()) for file in files_of(name)]


def digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def test_the_bundle_was_built_from_these_sources() -> None:
    sources = digest([file for name in SOURCES for file in files_of(WEB / name)])
    assert sources == BUILD["sources"], "web/ changed since the page was built: run make web"


def test_nobody_edited_the_bundle_by_hand() -> None:
    found = {file.relative_to(PAGE).as_posix(): digest([file]) for file in files_of(PAGE) if file.name != "build.json"}
    assert found == BUILD["files"]


def test_the_page_weighs_less_than_one_and_a_half_megabytes() -> None:
    assert sum(file.stat().st_size for file in files_of(PAGE)) < BYTES_MAX


def test_the_page_asks_nobody_else_and_holds_nothing_inline() -> None:
    page = (PAGE / "index.html").read_text()
    assert not re.search(r"https?://", page)
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)
    assert re.search(r'src="\./assets/[\w.-]+\.js"', page)
