"""Mount points: what stands before the topics of clients that came in by a listener which has one.

Puts it before what they say. Taking it off what they are sent is their session's affair.
"""

import msgspec

from geomq.broker.clients.geotopics import ToTopic, is_geo, parse_geo_topic, read_filter
from geomq.mqtt.codec.packets import Will
from geomq.mqtt.codec.topics import check_filter, check_topic
from geomq.vocabulary import TO_PREFIX


def mounted_topic(mount: str, topic: str) -> str:
    """The topic as the broker knows it; orders to the broker are not events and stay. TopicError if it is none."""
    if not mount:
        return topic
    if not is_geo(topic):
        return check_topic(mount + topic)
    meaning = parse_geo_topic(topic)
    if not isinstance(meaning, ToTopic):
        return topic
    return check_topic(f"{TO_PREFIX}{meaning.name}/{mount}{meaning.topic}")


def mounted_filter(mount: str, topic_filter: str) -> str:
    """The filter as the broker knows it, behind the name of a share group or fence; a client's own topics stay.
    TopicError if it is none."""
    if not mount:
        return topic_filter
    reading = read_filter(topic_filter)
    return topic_filter if reading.private else reading.prefix + check_filter(mount + reading.plain)


def mounted_will(mount: str, will: Will | None) -> Will | None:
    """What the broker publishes for a client that is gone. TopicError if its topic is none."""
    return will if will is None else msgspec.structs.replace(will, topic=mounted_topic(mount, will.topic))
