"""A federation of real processes on one machine: emulated links, brokers, replayed workloads, records of it all."""
