"""GeoMQ pipeline."""
