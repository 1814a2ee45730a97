"""GeoMQ cli."""
