"""GeoMQ workload."""
