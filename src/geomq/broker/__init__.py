"""GeoMQ broker."""
