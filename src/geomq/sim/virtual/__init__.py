"""Whole brokers under virtual time: the code that runs live, on a loop that owns the clock, the network and the disk.

Nothing of a broker is replaced but what `geomq.broker.platform` names and the event loop itself. Everything that may go
wrong comes from one seed, and the same seed gives the same run, byte for byte, on every machine. What was promised is
judged by `ledger`, from the records of the clients alone.

`loop`, `transports`, `network`, `processes`, `disk` and `machine` are the machines; `device` is a client, `profile` who
it is, `client_link` one connection of it; `scenario`, `habits` and `faults` say what happens in a `world`, `run` makes
it happen; `ledger` and `records` hold what was seen, `judge` and `census` say what is wrong with it. Sockets of the
system, TLS, WebSockets, threads and RocksDB itself are left to the tests that use real ones.
"""
