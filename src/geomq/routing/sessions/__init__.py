"""Clients that change brokers: no event is missed on the way, and none comes twice.

What a session holds is the driver's affair; what happens to its events meanwhile is decided here.
"""
