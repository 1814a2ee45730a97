"""Which event loop a process runs on: uvloop's, where `geomq[fast]` has installed it."""

import asyncio
import logging
from collections.abc import Callable

from geomq.extras import install_command

log = logging.getLogger("geomq.broker")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        log.info("uvloop is not installed; for a faster broker run: %s", install_command("fast"))
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
