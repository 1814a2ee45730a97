"""The names by which geo-context travels in plain MQTT: user properties and `$geo/` topics. Each stands here only."""

from typing import Final

LOCATION_PROPERTY: Final = "geo-location"
"""On CONNECT and PUBLISH: where the client is."""
FENCE_PROPERTY: Final = "geo-fence"
"""On SUBSCRIBE and PUBLISH: the area it relates to."""
ROAM_PROPERTY: Final = "geo-roam"
"""On CONNECT: the client goes to another broker if it is sent there."""
STAY_PROPERTY: Final = "geo-stay"
"""On CONNECT: the client does not."""
DETAILS_PROPERTY: Final = "geo-details"
"""On CONNECT: the client asks for details of each event; on CONNACK: those it will get."""
WAITING_PROPERTY: Final = "geo-waiting"
"""On CONNACK: how many messages wait for the session."""
EVENT_PROPERTY: Final = "geo-event"
"""On PUBLISH: which event it is."""
TIME_PROPERTY: Final = "geo-time"
BROKER_PROPERTY: Final = "geo-broker"
PUBLISHER_PROPERTY: Final = "geo-publisher"

LOCATION_TOPIC: Final = "$geo/location"
