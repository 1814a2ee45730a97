"""What client and server agree on."""

import pytest

from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.packets import Connect, Disconnect, Will
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ALLOWED, ReasonCode
from geomq.mqtt.codec.types import NEVER_EXPIRES, PACKET_SIZE_MAX, V5, V311, PacketType
from geomq.mqtt.session.handshake import Policy, agree, expiry_after, refusal, welcome


def test_an_empty_client_id_gets_the_spare_one_and_is_told() -> None:
    connect = Connect("")
    agreement = agree(connect, Policy(), spare_id="auto-1")
    assert agreement.client_id == "auto-1"
    connack = welcome(connect, agreement, Policy(), session_present=False)
    assert connack.properties.assigned_client_identifier == "auto-1"


def test_an_empty_client_id_cannot_keep_a_session_in_3_1_1() -> None:
    with pytest.raises(ProtocolViolation) as caught:
        agree(Connect("", V311, clean_start=False), Policy(), spare_id="x")
    assert caught.value.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


def test_a_session_s_life_follows_the_version_s_rules_and_the_server_s_bound() -> None:
    hour = Policy(session_expiry_max_s=3_600)
    assert agree(Connect("c", V311, clean_start=True), hour, spare_id="").expiry_s == 0
    assert agree(Connect("c", V311, clean_start=False), hour, spare_id="").expiry_s == 3_600
    assert agree(Connect("c", V311, clean_start=False), Policy(), spare_id="").expiry_s == NEVER_EXPIRES
    connect = Connect("c", properties=Properties(session_expiry_interval=7_200))
    agreement = agree(connect, hour, spare_id="")
    assert agreement.expiry_s == 3_600
    assert welcome(connect, agreement, hour, session_present=True).properties.session_expiry_interval == 3_600


def test_the_server_s_keep_alive_binds_only_version_5() -> None:
    strict = Policy(keep_alive_max_s=30)
    connect = Connect("c", keep_alive=0)
    agreement = agree(connect, strict, spare_id="")
    assert agreement.keep_alive_s == 30
    assert welcome(connect, agreement, strict, session_present=False).properties.server_keep_alive == 30
    assert agree(Connect("c", V311, keep_alive=0), strict, spare_id="").keep_alive_s == 0
    assert agree(Connect("c", keep_alive=10), strict, spare_id="").keep_alive_s == 10


def test_limits_are_the_smaller_of_both_sides() -> None:
    properties = Properties(receive_maximum=5, topic_alias_maximum=100, maximum_packet_size=50)
    agreement = agree(Connect("c", properties=properties), Policy(), spare_id="")
    assert (agreement.window, agreement.alias_max, agreement.packet_size_max) == (5, 10, 50)
    plain = agree(Connect("c", V311), Policy(), spare_id="")
    assert (plain.window, plain.alias_max, plain.packet_size_max) == (20, 0, PACKET_SIZE_MAX)


def test_a_limited_server_says_so() -> None:
    policy = Policy(packet_size_max=1_000, qos_max=1, retain_available=False, alias_max=0)
    connect = Connect("c")
    connack = welcome(connect, agree(connect, policy, spare_id=""), policy, session_present=False)
    assert connack.properties == Properties(
        receive_maximum=20, maximum_packet_size=1_000, maximum_qos=1, retain_available=0
    )
    for will, reason in (
        (Will("w", qos=2), ReasonCode.QOS_NOT_SUPPORTED),
        (Will("w", retain=True), ReasonCode.RETAIN_NOT_SUPPORTED),
    ):
        with pytest.raises(ProtocolViolation) as caught:
            agree(Connect("c", will=will), policy, spare_id="")
        assert caught.value.reason == reason


def test_version_3_1_1_is_told_nothing_but_success() -> None:
    connect = Connect("c", V311)
    connack = welcome(connect, agree(connect, Policy(), spare_id=""), Policy(), session_present=True)
    assert connack.session_present
    assert connack.properties == Properties()


def test_a_refusal_may_name_a_reason_and_another_server() -> None:
    assert refusal(ReasonCode.BANNED).properties == Properties()
    moved = refusal(ReasonCode.USE_ANOTHER_SERVER, "go", server_reference="b:1883")
    assert moved.properties.server_reference == "b:1883"


@pytest.mark.parametrize("reason", ReasonCode)
def test_a_refusal_has_a_reason_that_connack_may_carry(reason: ReasonCode) -> None:
    allowed = ALLOWED[PacketType.CONNACK]
    assert refusal(reason).reason in allowed
    assert refusal(reason).reason == reason or reason not in allowed
    assert refusal(ReasonCode.SESSION_TAKEN_OVER, "why").reason == ReasonCode.SERVER_BUSY
    assert refusal(ReasonCode.SERVER_SHUTTING_DOWN).reason == ReasonCode.SERVER_UNAVAILABLE


def test_disconnect_may_shorten_a_session_but_not_create_one() -> None:
    def bye(seconds: int) -> Disconnect:
        return Disconnect(properties=Properties(session_expiry_interval=seconds))

    assert expiry_after(None, 10, Policy()) == 10
    assert expiry_after(Disconnect(), 10, Policy()) == 10
    assert expiry_after(bye(0), 10, Policy()) == 0
    assert expiry_after(bye(99), 10, Policy(session_expiry_max_s=50)) == 50
    assert expiry_after(bye(0), 0, Policy()) == 0
    with pytest.raises(ProtocolViolation):
        expiry_after(bye(5), 0, Policy())


def test_the_version_is_part_of_the_agreement() -> None:
    assert agree(Connect("c"), Policy(), spare_id="").version == V5
