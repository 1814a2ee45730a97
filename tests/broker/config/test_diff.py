"""A running broker takes over what it may and names what needs a restart."""

from pathlib import Path

from geomq.broker.config.diff import config_changes, reloaded
from geomq.broker.config.load import parse_config
from geomq.broker.config.settings import Config


def parse(text: str) -> Config:
    return parse_config(text, name="t", base=Path("/"))


OLD = parse("[limits]\nqueue_messages_max = 5")
NEW = parse(
    "[limits]\nqueue_messages_max = 6\n[persistence]\nsync = false\nfree_bytes_min = 7\n"
    "[log]\nlevel = 'debug'\n[[listeners]]\nport = 5\n[[peers]]\nname = 'b'\naddress = 'h:1'"
)


def test_equal_configs_have_no_changes() -> None:
    assert config_changes(OLD, OLD) == []
    assert reloaded(OLD, OLD) is OLD


def test_changes_name_section_key_and_whether_a_restart_is_needed() -> None:
    assert [(str(change), change.reloadable) for change in config_changes(OLD, NEW)] == [
        ("[[listeners]]", False),
        ("[limits] queue_messages_max", True),
        ("[persistence] sync", False),
        ("[persistence] free_bytes_min", True),
        ("[[peers]]", False),
        ("[log] level", True),
    ]


def test_reloading_takes_only_what_a_running_broker_may_take() -> None:
    taken = reloaded(OLD, NEW)
    assert taken.limits == NEW.limits
    assert taken.peers == OLD.peers
    assert taken.log == NEW.log
    assert taken.persistence.free_bytes_min == 7
    assert taken.persistence.sync
    assert taken.listeners == OLD.listeners
