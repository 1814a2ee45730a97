"""Whole brokers under virtual time: the code that runs live, on a loop that owns the clock, the network and the disk.

Nothing of a broker is replaced but what `geomq.broker.platform` names and the event loop itself. Everything that may go
wrong comes from one seed, and the same seed gives the same run, byte for byte, on every machine. What was promised is
judged by `ledger`, from the records of the clients alone.

`loop`, `transports`, `network`, `processes` and `disk` are the machines; `device` is a client; `scenario` and `faults`
say what happens; `run` makes it happen. Sockets of the system, TLS, WebSockets, threads and RocksDB itself are left to
the tests that use real ones.
"""
