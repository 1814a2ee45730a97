"""Clients at the door: listeners, connections, and who is let in.

Bytes become packets here; what they mean is decided by the handlers a connection is given.
"""
