"""The page's files and recorded views, compressed for browsers that take it.

Each is compressed once, in a thread: brokers of this process do not wait for it.
"""

import asyncio
import gzip
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

SMALL_BYTES: Final = 1_000
"""What is smaller goes out as it is."""
SUFFIXES: Final = frozenset({".css", ".html", ".js", ".json", ".md", ".svg"})
LEVEL: Final = 9


class Packer:
    """Compresses what never changes, once; `key` names it."""

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}
        self._working = asyncio.Lock()

    async def pack(self, key: str, body: bytes) -> bytes:
        async with self._working:
            packed = self._packed.get(key)
            if packed is None:
                packed = self._packed[key] = await asyncio.to_thread(gzip.compress, body, LEVEL, mtime=0)
        return packed

    async def answer(self, key: str, body: bytes, media_type: str, asked: Headers) -> Response:
        """The body, compressed if it is worth it and the browser takes it."""
        headers = {"Vary": "Accept-Encoding"}
        if len(body) >= SMALL_BYTES and takes_gzip(asked):
            body = await self.pack(key, body)
            headers["Content-Encoding"] = "gzip"
        return Response(body, headers=headers, media_type=media_type)


class PackedFiles(StaticFiles):
    """Static files that do not change while they are served."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory=directory, html=True, check_dir=False)
        self._packer = Packer()

    async def get_response(self, path: str, scope: Scope) -> Response:
        found = await super().get_response(path, scope)
        if not isinstance(found, FileResponse) or scope["method"] != "GET" or found.status_code != 200:
            return found
        file = Path(found.path)
        if file.suffix not in SUFFIXES:
            return found
        body = await asyncio.to_thread(file.read_bytes)
        answer = await self._packer.answer(str(file), body, found.media_type or "text/plain", Headers(scope=scope))
        answer.headers["Last-Modified"] = found.headers["Last-Modified"]
        answer.headers["ETag"] = f"W/{found.headers['ETag']}"
        return answer


def takes_gzip(asked: Headers) -> bool:
    """Whether who asks takes gzip."""
    offers = (offer.strip().partition(";") for offer in asked.get("accept-encoding", "").lower().split(","))
    return any(name.strip() == "gzip" and not _refused(weight) for name, _, weight in offers)


def _refused(weight: str) -> bool:
    """Whether an offer has the weight zero, which takes it back."""
    name, _, value = weight.replace(" ", "").partition("=")
    return name == "q" and value.strip("0.") == ""
