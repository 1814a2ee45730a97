"""The Python client: plain MQTT 5 with locations and fences, asynchronous and typed.

Works with any MQTT 5 broker as long as no place is involved; places need a GeoMQ broker.
"""

from geomq.client.client import Client
from geomq.client.errors import BrokenProtocolError, ClientError, NoAnswerError, NotLetInError, RefusedError
from geomq.client.message import Message
from geomq.client.packets import Will
from geomq.client.places import FenceLike, LocationLike

__all__ = [
    "BrokenProtocolError",
    "Client",
    "ClientError",
    "FenceLike",
    "LocationLike",
    "Message",
    "NoAnswerError",
    "NotLetInError",
    "RefusedError",
    "Will",
]
