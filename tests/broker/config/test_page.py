"""The reference pages say what the code does."""

import re
import tomllib
from pathlib import Path

from geomq.broker.config.keys import sections
from geomq.broker.config.page import HEAD, config_page
from geomq.broker.security.acl import parse_acl

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_config_reference_is_up_to_date() -> None:
    """If not: python -m geomq.broker.config.page > docs/reference/config.md"""
    assert (DOCS / "reference" / "config.md").read_text() == config_page()


def test_the_example_config_uses_only_keys_that_exist() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", HEAD, re.DOTALL)
    known = {section.name: {key.name for key in section.keys} for section in sections().values()}
    for name, tables in tomllib.loads(example).items():
        for table in tables if isinstance(tables, list) else [tables]:
            assert table.keys() <= known[name]


def test_the_examples_of_the_acl_page_load() -> None:
    examples = [block for block in blocks("reference/acl.md", "acl") if "FILTER" not in block]
    assert len(examples) == 3
    alice = parse_acl(examples[0], name="acl").rights(user="alice", client_id="c")
    assert alice.may_write("sensors/1")
    assert not alice.may_read("sensors/secret/1")
    assert alice.may_write("devices/alice/state")
    car = parse_acl(examples[1], name="acl").rights(user="car", client_id="c")
    assert car.fenced
