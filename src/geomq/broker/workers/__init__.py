"""Processes that carry the sockets of clients for one broker, which stays one process with one node and one store.

See docs/decisions/016-workers-carry-sockets.md.
"""
