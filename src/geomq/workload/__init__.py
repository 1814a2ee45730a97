"""Workloads: worlds, clients and what they do, as columns; how they are made, evaluated and read back from traffic.

`model`, `world`, `cities` and `compiled` are what everything here is made of; `schema`, `files` and `dataset` are their
form on disk. `generation` makes workloads, `evaluation` computes what every strategy costs on them, `traffic` is what
running brokers recorded. Nothing here drives a routing node.
"""
