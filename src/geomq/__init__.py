"""GeoMQ: a geo-aware, federated MQTT broker with a simulator and a Spark data pipeline."""

__version__ = "0.1.0"
