"""The examples of the client's page run, and its tables name what exists."""

import asyncio
import inspect
import re
from pathlib import Path

import pytest

from geomq.broker.config import Config, Listener, Persistence
from geomq.broker.server import Broker
from geomq.client import Client, Message

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "client.md").read_text()


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    compile(second, "client.md", "exec")

    async def main() -> None:
        config = Config(listeners=(Listener(host="127.0.0.1", port=0),), persistence=Persistence(enabled=False))
        async with asyncio.timeout(10), Broker(config) as broker:
            code = first.replace("asyncio.run(main())\n", "").replace('"localhost",', f'"127.0.0.1", {broker.port},')
            names: dict[str, object] = {}
            exec(compile(code, "client.md", "exec"), names)
            example = names["main"]
            assert inspect.iscoroutinefunction(example)
            await example()

    asyncio.run(main())
    assert capsys.readouterr().out.startswith("alarm/test hello Circle(")


def test_every_argument_of_the_client_is_on_the_page() -> None:
    arguments = list(inspect.signature(Client.__init__).parameters)[1:]
    for name in (
        *arguments,
        *inspect.signature(Client.publish).parameters,
        *inspect.signature(Client.subscribe).parameters,
    ):
        if name not in ("self", "host", "topic_filter"):
            assert re.search(rf"\b{name}\b", PAGE), name
    for name in Message.__dataclass_fields__:
        assert f"`{name}`" in PAGE
