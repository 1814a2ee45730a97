"""The papers' live experiments: real brokers, real clients, emulated links."""
