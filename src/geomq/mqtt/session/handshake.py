"""What a CONNECT and the server's policy agree on, and the CONNACK that says so.

Knows nothing of passwords or stored sessions: the caller decides whether the client may come in.
"""

import msgspec

from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.packets import Connack, Connect, Disconnect, Publish
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.reasons import ReasonCode, to_connack
from geomq.mqtt.codec.types import NEVER_EXPIRES, PACKET_SIZE_MAX, V5
from geomq.mqtt.session.outbound import PACKET_IDS


class Policy(msgspec.Struct, frozen=True):
    """What the server offers to every client.

    `in_flight_max` is the window of clients that state no receive maximum; a `session_expiry_max_s` of NEVER_EXPIRES
    sets no bound. `packet_ids` are those of the messages it sends.
    """

    receive_max: int = 20
    in_flight_max: int = 20
    queue_max: int = 1_000
    queue_bytes_max: int = 64 * 1024 * 1024
    alias_max: int = 10
    packet_size_max: int = PACKET_SIZE_MAX
    keep_alive_max_s: int = 65_535
    session_expiry_max_s: int = NEVER_EXPIRES
    qos_max: int = 2
    retain_available: bool = True
    packet_ids: range = PACKET_IDS


class Agreement(msgspec.Struct, frozen=True):
    """The terms of one network connection. `keep_alive_s` 0 means no keep-alive."""

    client_id: str
    assigned: bool
    version: int
    keep_alive_s: int
    expiry_s: int
    window: int
    packet_size_max: int
    alias_max: int
    problem_information: bool


def agree(connect: Connect, policy: Policy, *, spare_id: str) -> Agreement:
    """The terms, or a violation if they cannot be; `spare_id` serves an empty client id."""
    properties = connect.properties
    if connect.version == V5:
        wanted_s = properties.session_expiry_interval or 0
    else:
        wanted_s = 0 if connect.clean_start else NEVER_EXPIRES
        if not connect.client_id and (connect.is_v31 or not connect.clean_start):
            raise ProtocolViolation("an empty client id needs a clean session", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
    will = connect.will
    if will is not None and will.qos > policy.qos_max:
        raise ProtocolViolation(f"wills above QoS {policy.qos_max}", ReasonCode.QOS_NOT_SUPPORTED)
    if will is not None and will.retain and not policy.retain_available:
        raise ProtocolViolation("retained wills are not supported", ReasonCode.RETAIN_NOT_SUPPORTED)
    return Agreement(
        client_id=connect.client_id or spare_id,
        assigned=not connect.client_id,
        version=connect.version,
        keep_alive_s=_keep_alive_s(connect, policy),
        expiry_s=min(wanted_s, policy.session_expiry_max_s),
        window=properties.receive_maximum or policy.in_flight_max,
        packet_size_max=properties.maximum_packet_size or PACKET_SIZE_MAX,
        alias_max=min(properties.topic_alias_maximum or 0, policy.alias_max),
        problem_information=properties.request_problem_information != 0,
    )


def _keep_alive_s(connect: Connect, policy: Policy) -> int:
    bounded = policy.keep_alive_max_s < 65_535
    # Only MQTT 5 can be told of another keep-alive than it asked for.
    if connect.version != V5 or not bounded:
        return connect.keep_alive
    return min(connect.keep_alive or 65_535, policy.keep_alive_max_s)


def welcome(connect: Connect, agreement: Agreement, policy: Policy, *, session_present: bool) -> Connack:
    """The CONNACK of a successful handshake, naming every term that differs from MQTT's defaults."""
    if connect.version != V5:
        return Connack(session_present and not connect.is_v31)  # a bit that MQTT 3.1 keeps at 0
    wanted_s = connect.properties.session_expiry_interval or 0
    changed = agreement.keep_alive_s != connect.keep_alive
    limited = policy.packet_size_max < PACKET_SIZE_MAX
    properties = Properties(
        assigned_client_identifier=agreement.client_id if agreement.assigned else None,
        server_keep_alive=agreement.keep_alive_s if changed else None,
        session_expiry_interval=agreement.expiry_s if agreement.expiry_s != wanted_s else None,
        receive_maximum=policy.receive_max,
        topic_alias_maximum=policy.alias_max or None,
        maximum_packet_size=policy.packet_size_max if limited else None,
        maximum_qos=policy.qos_max if policy.qos_max < 2 else None,
        retain_available=None if policy.retain_available else 0,
        authentication_method=connect.properties.authentication_method,
    )
    return Connack(session_present, ReasonCode.SUCCESS, properties)


def refusal(reason: ReasonCode, text: str | None = None, *, server_reference: str | None = None) -> Connack:
    """The CONNACK that turns a client away, for this reason or the nearest that it may carry."""
    if text is None and server_reference is None:
        return Connack(False, to_connack(reason), NO_PROPERTIES)
    return Connack(False, to_connack(reason), Properties(reason_string=text, server_reference=server_reference))


def check_offered(publish: Publish, policy: Policy) -> None:
    """A violation if the client publishes in a way that it was told is not to be had."""
    if publish.qos > policy.qos_max:
        raise ProtocolViolation(f"events above QoS {policy.qos_max}", ReasonCode.QOS_NOT_SUPPORTED)
    if publish.retain and not policy.retain_available:
        raise ProtocolViolation("retained events are not supported", ReasonCode.RETAIN_NOT_SUPPORTED)


def expiry_after(farewell: Disconnect | None, expiry_s: int, policy: Policy) -> int:
    """How long the session outlives the connection; DISCONNECT may change it, but not from nothing."""
    wanted_s = farewell.properties.session_expiry_interval if farewell is not None else None
    if wanted_s is None:
        return expiry_s
    if wanted_s and not expiry_s:
        raise ProtocolViolation("DISCONNECT with a session expiry, which CONNECT did not set")
    return min(wanted_s, policy.session_expiry_max_s)
