"""GeoMQ sim."""
