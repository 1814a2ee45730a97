"""GeoMQ client."""
