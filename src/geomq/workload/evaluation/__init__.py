"""The columnar evaluation: what every strategy sends and delivers on a workload, exact to the tick.

A second implementation of every strategy's rules, for scale; it drives no node. Parity tests tie it to the first: on
the same script the simulator's messages, deliveries and latencies are equal.
"""
