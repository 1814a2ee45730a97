"""Who may ask the dashboard for what, over real HTTP."""

import asyncio
import contextlib
import ssl
import urllib.request
from pathlib import Path

import pytest
from tests.broker.certificates import make_authority, make_certificate
from tests.dashboard.pages import OURS, dashboard, message
from websockets.exceptions import ConnectionClosed, InvalidStatus

from geomq.broker.local_federation import THREE_REGIONS, LocalFederation, local_configs
from geomq.broker.operations.http_server import WEBSOCKET_MESSAGE_BYTES_MAX, Certificate
from geomq.dashboard import access
from geomq.dashboard.access import LOGIN_BURST
from geomq.dashboard.guard import BODY_BYTES_MAX, HEADERS
from geomq.dashboard.local_feed import LocalFeed
from geomq.dashboard.server import Doors

pytestmark = pytest.mark.anyio

TOKEN = "a-token-nobody-guesses"
BAD_BODIES = (b"", b"{", b"[]", b'{"token": 5}', b'{"token": "\xff"}', b'{"token": "\\ud800"}', b"[" * 5_000)
LOCKED = Doors(token=TOKEN, admin=True)


async def test_on_loopback_nobody_logs_in() -> None:
    async with dashboard() as page:
        assert page.dashboard.token is None
        session = (await page.ask("/api/session")).body
        assert (session["login_required"], session["admin"]) == (False, True)
        assert (await page.ask("/api/views")).status == 200


async def test_a_loopback_dashboard_answers_to_a_loopback_name_only() -> None:
    async with dashboard() as page:
        for path in ("/", "/api/session", "/api/views"):
            for host in ("rebound.example", "{}.rebound.example", "127.0.0.1`.rebound.example", "127.0.0.1/?", ""):
                assert (await page.ask(path, headers={"Host": host})).status == 403
        assert (await page.ask("/api/views", headers={"Host": "LOCALHOST:1"})).status == 200


async def test_with_a_token_nothing_is_told_before_login() -> None:
    async with dashboard(doors=LOCKED) as page:
        session = (await page.ask("/api/session")).body
        assert (session["login_required"], session["admin"]) == (True, False)
        assert (await page.ask("/api/views")).body == {"error": "log in first"}
        assert (await page.post("/api/login", {"token": "wrong"})).status == 401
        answer = await page.post("/api/login", {"token": TOKEN})
        assert answer.status == 204
        cookie = answer.headers["set-cookie"]
        assert TOKEN not in cookie
        assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in cookie.split(";")}
        mine = {"Cookie": cookie.partition(";")[0]}
        assert (await page.ask("/api/views", headers=mine)).status == 200
        session = (await page.ask("/api/session", headers=mine)).body
        assert (session["login_required"], session["admin"]) == (False, True)
        assert (session["logged_in"], session["reason"]) == (True, None)
        assert (await page.post("/api/logout", headers=mine)).status == 204
        assert (await page.ask("/api/views", headers=mine)).status == 401


async def test_guessing_tokens_is_slow() -> None:
    async with dashboard(doors=LOCKED) as page:
        tries = [(await page.post("/api/login", {"token": str(guess)})).status for guess in range(LOGIN_BURST + 1)]
        assert tries == [401] * LOGIN_BURST + [429]
        assert (await page.post("/api/login", {"token": TOKEN})).status == 429


async def test_a_dashboard_without_admin_rights_only_shows() -> None:
    async with dashboard(doors=Doors(admin=False)) as page:
        assert (await page.ask("/api/session")).body["admin"] is False
        answer = await page.post("/api/strategy", {"strategy": "dht"})
        assert (answer.status, answer.body["error"][:27]) == (403, "this dashboard is read-only")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_pages_of_other_sites_are_refused(headers: dict[str, str]) -> None:
    async with dashboard() as page:
        assert (await page.ask("/api/session", headers=headers)).status == 403
        assert (await page.post("/api/logout", headers=headers)).status == 403
        with pytest.raises(InvalidStatus) as refused:
            async with page.live(**headers):
                pass
        assert refused.value.response.status_code == 403


async def test_our_own_page_is_let_in() -> None:
    async with dashboard() as page:
        own = {"Origin": f"http://{page.netloc}", "Sec-Fetch-Site": "same-origin"}
        assert (await page.post("/api/logout", headers=own)).status == 204


async def test_the_websocket_needs_a_login_too() -> None:
    async with dashboard(doors=LOCKED) as page:
        with pytest.raises(InvalidStatus) as refused:
            async with page.live():
                pass
        assert refused.value.response.status_code == 401


async def test_who_logs_out_is_shown_nothing_more() -> None:
    async with (
        LocalFederation(local_configs(THREE_REGIONS[:1], "single")) as running,
        dashboard([LocalFeed(running.brokers["paris"])], doors=LOCKED) as page,
    ):
        cookie = (await page.post("/api/login", {"token": TOKEN})).headers["set-cookie"].partition(";")[0]
        async with page.live(Cookie=cookie) as socket:
            assert (await message(socket))["type"] == "world"
            assert (await page.post("/api/logout", headers={"Cookie": cookie})).status == 204
            with contextlib.suppress(ConnectionClosed):
                async with asyncio.timeout(60):
                    async for _ in socket:
                        pass
            assert socket.close_code == 1008


async def test_what_changes_things_needs_the_header_that_only_our_page_sends() -> None:
    async with dashboard() as page:
        answer = await page.ask("/api/logout", "POST", {})
        assert (answer.status, answer.body["error"]) == (403, "the header X-GeoMQ: 1 is missing")


async def test_large_bodies_are_refused_before_they_are_read() -> None:
    async with dashboard(doors=LOCKED) as page:
        assert (await page.post("/api/login", b"x" * (BODY_BYTES_MAX + 1))).status == 413
        chunked = {"Transfer-Encoding": "chunked", **OURS}
        body = b"".join(b"8000\r\n" + b"x" * 0x8000 + b"\r\n" for _ in range(5)) + b"0\r\n\r\n"
        assert (await page.ask("/api/login", "POST", body, chunked)).status == 400


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"token": 5}', b'{"token": "\xff"}', b'{"token": "\\ud800"}', b"[" * 5_000]
)
async def test_bad_bodies_are_one_line(body: bytes) -> None:
    async with dashboard(doors=LOCKED) as page:
        answer = await page.post("/api/login", body)
        assert answer.status == 400
        assert answer.body["error"].startswith("invalid request")


async def test_too_many_requests_have_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "REQUESTS_PER_S", 0.001)
    monkeypatch.setattr(access, "REQUEST_BURST", 5)
    async with dashboard() as page:
        answers = [(await page.ask("/api/session")).status for _ in range(7)]
        assert answers == [200] * 5 + [429] * 2
        assert (await page.ask("/")).status != 429, "the page itself is not counted"


async def test_every_answer_says_what_the_page_may_load() -> None:
    async with dashboard() as page:
        for path in ("/", "/api/session", "/api/nothing", "/../../etc/passwd"):
            headers = (await page.ask(path)).headers
            for name, value in HEADERS.items():
                assert headers[name.lower()] == value
            assert "server" not in headers
        assert (await page.ask("/api/session")).headers["cache-control"] == "no-store"


async def test_over_https_the_cookie_is_for_https_only(tmp_path: Path) -> None:
    make_authority(tmp_path)
    made = make_certificate(tmp_path, "localhost", "/CN=localhost")
    async with dashboard(doors=LOCKED._replace(certificate=Certificate(*made))) as page:
        assert page.dashboard.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        trusting.check_hostname = False

        def log_in() -> str:
            request = urllib.request.Request(
                f"{page.dashboard.url}api/login", b'{"token": "%s"}' % TOKEN.encode(), OURS
            )
            with urllib.request.urlopen(request, context=trusting, timeout=60) as answer:
                assert answer.status == 204
                return str(answer.headers["set-cookie"])

        assert "Secure" in await asyncio.to_thread(log_in)


async def test_a_page_that_says_too_much_on_its_socket_is_cut_off() -> None:
    async with LocalFederation(local_configs(THREE_REGIONS[:1], "single")) as running:
        async with dashboard([LocalFeed(running.brokers["paris"])]) as page, page.live() as socket:
            await socket.send("x" * 100)
            await message(socket)
            await socket.send("x" * (WEBSOCKET_MESSAGE_BYTES_MAX + 1))
            with contextlib.suppress(ConnectionClosed):
                async with asyncio.timeout(60):
                    while True:
                        await message(socket)
            assert socket.close_code == 1009
        assert running.brokers["paris"].view.unwell() is None
