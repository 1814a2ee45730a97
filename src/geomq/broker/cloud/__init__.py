"""The link of broadcast groups to a cloud broker that speaks plain MQTT."""
