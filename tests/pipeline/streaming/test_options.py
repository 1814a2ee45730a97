"""Options of source and sink: what is accepted, and one clear line for what is not."""

from pathlib import Path

import pytest

from geomq.errors import UsageError
from geomq.mqtt.codec.types import V311
from geomq.pipeline.streaming.options import archive_options, parse_addresses, sink_options, source_options

GOOD = {"brokers": "a", "topic": "t"}


def test_what_is_not_said_has_a_default() -> None:
    options = source_options(GOOD)
    assert (options.qos, options.sessions, options.acknowledge, options.events_max) == (1, 1, None, None)
    assert options.session == source_options(dict(GOOD)).session
    assert options.session != source_options(GOOD | {"topic": "u"}).session
    assert options.session != source_options(GOOD | {"fence": "geo:1,2;u=3"}).session


def test_options_are_read_without_regard_to_case(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    options = source_options(
        {
            "BROKERS": "a",
            "Topic": "t",
            "maxeventspertrigger": "7",
            "username": "u",
            "passwordfile": f"{tmp_path}/secret",
        }
    )
    assert options.events_max == 7
    assert options.login.password == "hush"
    assert source_options(GOOD | {"version": "3.1.1"}).login.version == V311


def test_brokers_are_hosts_with_or_without_port_and_tls() -> None:
    one, two, three = parse_addresses("one, mqtts://two ,[::1]:99")
    assert (one.host, one.port, one.tls) == ("one", 1883, False)
    assert (two.host, two.port, two.tls) == ("two", 8883, True)
    assert (three.host, three.port) == ("::1", 99)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "option brokers is missing"),
        ({"brokers": "a"}, "option topic is missing"),
        (GOOD | {"brokers": "http://a"}, "is not host:port or"),
        (GOOD | {"brokers": "a:0"}, "is not host:port or"),
        (GOOD | {"brokers": "a,a"}, "lists a broker twice"),
        (GOOD | {"topic": "a/#/b"}, "option topic:"),
        (GOOD | {"topic": "$share/g/a"}, r"leave out \$share"),
        (GOOD | {"fence": "POINT (1 2)"}, "option fence: a POINT has no area"),
        (GOOD | {"fence": "geo:1,2;u=3", "version": "3.1.1"}, "options fence and location need MQTT 5"),
        (GOOD | {"location": "1,2", "version": "3.1.1"}, "options fence and location need MQTT 5"),
        (GOOD | {"location": "91,0"}, "option location: "),
        (GOOD | {"qos": "2"}, "option qos must be between 0 and 1"),
        (GOOD | {"qos": "one"}, "must be a whole number"),
        (GOOD | {"acknowledge": "never"}, "option acknowledge must be commit or spool"),
        (GOOD | {"session": "a/b"}, "option session must be"),
        (GOOD | {"version": "4"}, "option version must be 5 or 3.1.1"),
        (GOOD | {"password": "x"}, "option password needs option username"),
        (GOOD | {"passwordFile": "missing"}, "cannot read missing"),
        (GOOD | {"cafile": "missing"}, "missing is not a file"),
        (GOOD | {"colour": "red"}, "option colour is unknown; known are brokers, topic"),
    ],
)
def test_bad_options_of_the_source_give_one_clear_line(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        source_options(options)
    assert "\n" not in str(caught.value)


def test_the_sink_and_the_archive_have_options_of_their_own() -> None:
    assert sink_options({"brokers": "a", "checkpointLocation": "c", "name": "n"}).name == "n"
    with pytest.raises(UsageError, match="option topic is unknown"):
        sink_options(GOOD)
    with pytest.raises(UsageError, match="option name must be"):
        sink_options({"brokers": "a", "name": "n/n"})
    assert archive_options({"path": "p", "topic": "t/#"}).topic == "t/#"
    with pytest.raises(UsageError, match="use readStream"):
        archive_options({"path": "p", "brokers": "a"})
    with pytest.raises(UsageError, match="option path is missing"):
        archive_options({})
