"""`geomq up`: a whole federation with one command."""

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from geomq.cli.dashboard import read_all_views
from geomq.cli.own_strategies import look_here
from geomq.errors import ConfigError, UsageError
from geomq.routing.strategies.registry import STRATEGIES

if TYPE_CHECKING:
    from geomq.broker.local_federation import Site
    from geomq.dashboard.recorded import View

CROWD = 150
SYS_INTERVAL_S = 10


class UpOptions(NamedTuple):
    """What was asked for."""

    brokers: int
    strategy: str
    first_port: int | None
    page_port: int
    views: "list[View]"
    demo: bool
    as_json: bool
    workers: int = 1


@click.command(short_help="Start a federation on this machine, with a dashboard and demo clients.")
@click.option(
    "--brokers", "-b", default=3, show_default=True, help="Number of brokers; 3 are regions, 25 the published cities."
)
@click.option(
    "--strategy",
    "-s",
    default="adaptive",
    show_default=True,
    help=f"How events find subscribers: {', '.join(STRATEGIES)}.",
)
@click.option("--port", "-p", default=1883, show_default=True, help="Port of the first broker; 0 picks free ports.")
@click.option("--page-port", default=9884, show_default=True, help="Port of the dashboard; 0 picks a free one.")
@click.option("--view", "views", multiple=True, type=click.Path(path_type=Path), help="Show a recorded directory too.")
@click.option("--demo/--no-demo", default=True, show_default=True, help="Start demo clients that move and publish.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that carry the clients of each broker; 1 is none beside this one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as JSON.")
def up(port: int, views: tuple[Path, ...], **wishes: Any) -> None:
    """Start several brokers in this process, linked into one service, and keep them running until Ctrl-C.

    Everything is kept in memory, and only loopback is used. The command prints the MQTT address of every broker, the
    of the page that shows them all, and what to try.

    \b
    geomq up
    geomq up --brokers 25 --strategy disgb_subscriptions --no-demo
    """
    plan = UpOptions(first_port=port or None, views=read_all_views(views, ()) if views else [], **wishes)
    look_here([plan.strategy])
    if not 1 <= plan.brokers <= 256:
        raise UsageError(f"brokers must be between 1 and 256, not {plan.brokers}")
    if not 0 <= port <= 65_535 - plan.brokers:
        raise UsageError(f"port must be between 0 and {65_535 - plan.brokers}, not {port}")
    if not 0 <= plan.page_port <= 65_535:
        raise UsageError(f"page-port must be between 0 and 65535, not {plan.page_port}")
    try:
        asyncio.run(_run(plan))
    except ConfigError as error:
        hint = "; --port 0 and --page-port 0 take free ones" if "cannot listen" in str(error) else ""
        raise ConfigError(f"{error}{hint}") from None
    except KeyboardInterrupt:
        pass


async def _run(plan: UpOptions) -> None:
    from geomq.broker.local_federation import LocalFederation, local_configs
    from geomq.client.demo import Demo
    from geomq.dashboard.local_feed import LocalFeed
    from geomq.dashboard.server import Dashboard, Doors

    sites = _sites(plan.brokers)
    strategy = "single" if plan.brokers == 1 else plan.strategy
    async with contextlib.AsyncExitStack() as stack:
        federation = await stack.enter_async_context(
            LocalFederation(
                local_configs(
                    sites, strategy, first_port=plan.first_port, workers=plan.workers, sys_interval_s=SYS_INTERVAL_S
                )
            )
        )
        ports = {site.name: federation.brokers[site.name].port for site in sites}
        crowd = (
            Demo(ports, {site.name: site.location for site in sites}, each=_crowd(plan.brokers)) if plan.demo else None
        )
        feeds = [LocalFeed(federation.brokers[site.name]) for site in sites]
        doors = Doors(port=plan.page_port, admin=True)
        page = await stack.enter_async_context(Dashboard(feeds, doors, views=plan.views, movers=crowd))
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        _announce(sites, ports, strategy, page.url, plan)
        living = asyncio.create_task(crowd.run()) if crowd is not None else None
        await stop.wait()
        if living is not None:
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)


def _crowd(brokers: int) -> int:
    """Demo clients of each broker: enough to see, few enough for a laptop."""
    return max(2, min(12, CROWD // brokers))


def _sites(count: int) -> "list[Site]":
    from geomq.broker.local_federation import THREE_REGIONS, Site
    from geomq.geo import Location
    from geomq.workload.world import World

    if count <= len(THREE_REGIONS):
        return list(THREE_REGIONS[:count])
    world = World.published() if count == 25 else World.of_cities(count, seed=1)
    return [Site(place.name.lower().replace(" ", "-"), Location(place.lat, place.lon)) for place in world.places]


def _announce(sites: "list[Site]", ports: dict[str, int], strategy: str, url: str, plan: UpOptions) -> None:
    if plan.as_json:
        click.echo(json.dumps({"strategy": strategy, "brokers": ports, "page": url}))
        return
    click.echo(f"{len(ports)} broker{'' if len(ports) == 1 else 's'}, strategy {strategy}; Ctrl-C stops them all.")
    for site in sites:
        click.echo(
            f"  {site.name:<24} mqtt://127.0.0.1:{ports[site.name]}  at {site.location.lat:g},{site.location.lon:g}"
        )
    click.echo(f"Dashboard: {url}")
    first, last = sites[0], sites[-1]
    near = f"{first.location.lat:.3f},{first.location.lon:.3f}"
    geomq = sys.argv[0] if sys.argv[0].endswith("geomq") else "geomq"
    click.echo("Try, in other terminals:")
    click.echo(f"  {geomq} sub -p {ports[first.name]} --at {near} -t 'news/#'")
    click.echo(f"  {geomq} pub -p {ports[last.name]} --to {near},5km -t news/here -m 'for those near {first.name}'")
    if plan.demo:
        click.echo(f"  {geomq} sub -p {ports[first.name]} --at {near} -t 'warning/#' --json")
