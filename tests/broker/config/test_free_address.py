"""Addresses are tried before anything is written for a broker that could not serve."""

import socket

import pytest

from geomq.broker.config.free_address import check_free
from geomq.broker.config.settings import Listener
from geomq.errors import ConfigError

pytestmark = pytest.mark.anyio


async def test_an_address_that_another_program_has_is_refused_by_name() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: .*in use"):
            await check_free(Listener(host="127.0.0.1", port=port))
    await check_free(Listener(host="127.0.0.1", port=port))
