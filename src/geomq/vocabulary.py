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
ONCE_PROPERTY: Final = "geo-once"
"""On PUBLISH: a writer and its number, so that a repeat is recognised on another connection."""
DETAILS_PROPERTY: Final = "geo-details"
"""On CONNECT: the client asks for details of each event; on CONNACK: those it will get."""
WAITING_PROPERTY: Final = "geo-waiting"
"""On CONNACK: how many messages wait for the session."""
DROPPED_PROPERTY: Final = "geo-dropped"
"""On CONNACK: how many events for the session were dropped since its client last connected."""

# Details of an event, for those who asked, and between brokers by way of a cloud.
EVENT_PROPERTY: Final = "geo-event"
TIME_PROPERTY: Final = "geo-time"
BROKER_PROPERTY: Final = "geo-broker"
PUBLISHER_PROPERTY: Final = "geo-publisher"

# Between brokers by way of a cloud only.
EVENT_LOCATION_PROPERTY: Final = "geo-event-location"
EVENT_FENCE_PROPERTY: Final = "geo-event-fence"
PROOF_PROPERTY: Final = "geo-proof"
LEADER_PROPERTY: Final = "geo-leader"

GEO_PREFIX: Final = "$geo/"
LOCATION_TOPIC: Final = "$geo/location"
ERROR_TOPIC: Final = "$geo/error"
FENCE_PREFIX: Final = "$geo/fence/"
TO_PREFIX: Final = "$geo/to/"
FROM_PREFIX: Final = "$geo/from/"
ENTER_PREFIX: Final = "$geo/enter/"
LEAVE_PREFIX: Final = "$geo/leave/"
