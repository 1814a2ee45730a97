"""The page goes out compressed, to those who take it, and is the same."""

import asyncio
import gzip
import http.client
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from tests.dashboard.pages import Page, dashboard

from geomq.dashboard.app import PAGE
from geomq.dashboard.packed import takes_gzip
from geomq.dashboard.recorded import View

pytestmark = pytest.mark.anyio

LARGEST = max((PAGE / "assets").iterdir(), key=lambda file: file.stat().st_size)
ASSET = f"/assets/{LARGEST.name}"


async def fetch(page: Page, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """The bytes as they come over the wire."""

    def ask() -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(page.netloc, timeout=60)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        body = answer.read()
        connection.close()
        return answer.status, found, body

    return await asyncio.to_thread(ask)


async def test_a_browser_gets_the_page_compressed_and_whole() -> None:
    async with dashboard() as page:
        for path, file in ((ASSET, LARGEST), ("/", PAGE / "index.html")):
            status, headers, body = await fetch(page, path, {"Accept-Encoding": "gzip, deflate, br"})
            plain = file.read_bytes()
            assert status == 200
            assert headers["vary"] == "Accept-Encoding"
            packed = len(plain) >= 1_000
            assert headers.get("content-encoding") == ("gzip" if packed else None)
            assert (gzip.decompress(body) if packed else body) == plain
            assert int(headers["content-length"]) == len(body)
            assert headers["content-security-policy"]


async def test_who_takes_no_compression_gets_none() -> None:
    async with dashboard() as page:
        for asked in ({}, {"Accept-Encoding": "gzip;q=0"}):
            _, headers, body = await fetch(page, ASSET, asked)
            assert "content-encoding" not in headers
            assert body == LARGEST.read_bytes()


async def test_what_the_browser_has_is_not_sent_again() -> None:
    async with dashboard() as page:
        gzipped = {"Accept-Encoding": "gzip"}
        _, headers, _ = await fetch(page, ASSET, gzipped)
        status, _, body = await fetch(page, ASSET, {**gzipped, "If-None-Match": headers["etag"]})
        assert (status, body) == (304, b"")


async def test_a_recorded_view_goes_out_compressed() -> None:
    view = View("v", "V", "setup", b'{"x": "' + b"y" * 10_000 + b'"}')
    async with dashboard(views=[view]) as page:
        _, headers, body = await fetch(page, "/api/views/v", {"Accept-Encoding": "gzip"})
        assert headers["content-encoding"] == "gzip"
        assert gzip.decompress(body) == view.body
        assert (await fetch(page, "/api/views/v", {}))[2] == view.body


def test_the_whole_page_is_small_on_the_wire() -> None:
    files = [file for file in PAGE.rglob("*") if file.is_file()]
    assert sum(len(gzip.compress(Path(file).read_bytes())) for file in files) < 400_000


@pytest.mark.parametrize(
    ("offer", "taken"),
    [
        ("gzip", True),
        ("br, GZIP ; q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("x-gzip", False),
        ("", False),
    ],
)
def test_offers_are_read_as_they_are_meant(offer: str, taken: bool) -> None:
    assert takes_gzip(Headers({"accept-encoding": offer})) is taken
