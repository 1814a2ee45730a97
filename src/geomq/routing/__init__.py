"""GeoMQ routing."""
