"""PUBLISH packets made for one receiver alone: with its aliases and subscription identifiers, or sent once more."""

from geomq.mqtt.codec.aliases import OutboundAliases
from geomq.mqtt.codec.encode import publish_parts
from geomq.mqtt.session.message import Fanout
from geomq.mqtt.session.subscriptions import Terms


def own_packet(
    fanout: Fanout,
    version: int,
    terms: Terms,
    packet_id: int,
    aliases: OutboundAliases | None,
    mount: str,
    size_max: int,
    *,
    again: bool,
) -> bytes:
    """The packet, without the mount that the receiver does not see. An alias is introduced if that is not too long."""
    topic, waits = fanout.message.topic, terms.qos > 0
    alias, known = (None, False) if aliases is None else aliases.alias(topic, waits=waits)
    text = "" if known else topic.removeprefix(mount)
    publish = fanout.publish(
        version, terms.qos, retain=terms.retain, identifiers=terms.identifiers, alias=alias, topic=text
    )
    head, tail = publish_parts(publish, version)
    if again:
        head = bytes((head[0] | 8,)) + head[1:]
    data = head + (packet_id.to_bytes(2) if waits else b"") + tail
    if aliases is not None and alias is not None and not known and len(data) <= size_max:
        aliases.introduced(topic, waits=waits)
    return data
