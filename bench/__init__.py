"""Benchmarks: GeoMQ beside other brokers, on the same machine and in the same run. `python -m bench --help`."""
