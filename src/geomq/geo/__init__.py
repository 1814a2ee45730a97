"""GeoMQ geo."""
