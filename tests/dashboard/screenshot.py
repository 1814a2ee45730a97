"""The picture in the README, from a real federation: `python -m tests.dashboard.screenshot`."""

from pathlib import Path

from tests.dashboard.browser import Tab, launched, serving

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SETTLE_MS = 25_000


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with launched() as browser, serving("up", "--brokers", "25", "--port", "0", "--page-port", "0", "--json") as url:
        for scheme in ("dark", "light"):
            tab = Tab(browser, url, color_scheme=scheme, viewport={"width": 1280, "height": 760})
            page = tab.live()
            page.wait_for_timeout(SETTLE_MS)
            page.screenshot(path=IMAGES / f"dashboard{'' if scheme == 'dark' else '-light'}.png")
            tab.close()


if __name__ == "__main__":
    main()
