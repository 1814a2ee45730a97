"""The formats of `geomq sub -F`: what each prints, and what is none."""

import json
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from geomq.cli.message_format import Arrival, read_format
from geomq.client import Message
from geomq.errors import UsageError

MESSAGE = Message(
    "a/ä",
    b'{"x": 1}',
    1,
    True,
    (("k", "v"), ("k2", "v2")),
    "text/plain",
    "r/t",
    b"cd",
    60,
    (3, 4),
    1,
    7,
)
AT_NS = 1_700_000_000_123_456_789


def shown(text: str, message: Message = MESSAGE) -> str:
    return read_format(text)(Arrival(message, AT_NS)).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain ä", "plain ä"),
        ("%t|%p|%l|%q|%r|%m", 'a/ä|{"x": 1}|8|1|1|7'),
        ("%x %X", "7b2278223a20317d 7B2278223A20317D"),
        ("%C|%D|%E|%F|%P|%R|%S|%A", "text/plain|cd|60|1|k:v k2:v2|r/t|3 4|"),
        ("%%@@\\\\", "%@\\"),
        ("\\t\\n\\e", "\t\n\x1b"),
        ("%U|@N", "1700000000.123456789|123456789"),
        ("[%5q][%-5q][%05q]", "[    1][1    ][00001]"),
        ("[%.2p][%10.3p][%-10.3p][%05.3p]", '[{"][       {"x][{"x       ][  {"x]'),
    ],
)
def test_events_are_printed_as_asked(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_times_are_local() -> None:
    when = datetime.fromtimestamp(AT_NS / 1e9).astimezone()
    assert shown("%I") == f"{when:%Y-%m-%dT%H:%M:%S%z}"
    assert shown("@Y-@m-@d @H:@M:@S") == f"{when:%Y-%m-%d %H:%M:%S}"


def test_what_an_event_does_not_have_is_empty() -> None:
    plain = Message("t", b"\xff")
    assert shown("[%C%D%E%F%P%R%S]%m%q%r", plain) == "[]000"
    assert read_format("%p")(Arrival(plain, AT_NS)) == b"\xff"
    told = json.loads(shown("%j", plain))
    del told["tst"]
    assert told == {"topic": "t", "qos": 0, "retain": 0, "payloadlen": 1, "payload": "\ufffd"}


def test_json_holds_all_and_parses_the_payload_if_asked() -> None:
    text, parsed = json.loads(shown("%j")), json.loads(shown("%J"))
    assert (text["payload"], parsed["payload"]) == ('{"x": 1}', {"x": 1})
    assert (text["mid"], text["properties"]["user-properties"]) == (7, {"k": "v", "k2": "v2"})
    assert json.loads(shown("%J", Message("t", b"no json")))["payload"] == "no json"


@pytest.mark.parametrize("text", ["%z", "x%", "%5", "%9999t", "\\x", "\\", "@!", "@"])
def test_what_is_no_format_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--format: ") as caught:
        read_format(text)
    assert "\n" not in str(caught.value)


FORMATS = [
    "%t|%p|%x|%X|%l|%m|%q|%r|%%",
    "%A|%C|%D|%E|%F|%P|%R|%S",
    "a\\tb\\nc\\\\d",
    "%20t|%05l|%10p",
    "@@ %j",
    "%J",
]


@pytest.mark.parametrize("text", FORMATS)
def test_mosquitto_sub_prints_the_same(text: str, mosquitto_port: int) -> None:
    binary = shutil.which("mosquitto_sub")
    if binary is None:
        pytest.skip("mosquitto-clients is not installed: there is nothing to compare with")
    where, topic = ["-h", "127.0.0.1", "-p", str(mosquitto_port)], f"format/{FORMATS.index(text)}"
    properties = ["-D", "publish", "user-property", "k", "v", "-D", "publish", "content-type", "text/plain"]
    given = [*properties, "-D", "publish", "response-topic", "r/t", "-D", "publish", "correlation-data", "cd"]
    publish = ["mosquitto_pub", "-V", "5", *where, "-t", topic, "-r", "-q", "1", "-m", '{"x":1}', *given]
    subprocess.run(publish, check=True, timeout=60)
    printed = []
    for command in ([binary, "-V", "5"], [str(Path(sys.executable).parent / "geomq"), "sub"]):
        whole = [*command, *where, "-q", "1", "-t", topic, "-C", "1", "-F", text]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=60, check=True)
        printed.append(done.stdout)
    if "j" in text.lower():
        theirs, ours = (json.loads(each.removeprefix("@ ")) for each in printed)
        assert {**ours, "tst": None} == {**theirs, "tst": None}
    else:
        assert printed[0] == printed[1]
