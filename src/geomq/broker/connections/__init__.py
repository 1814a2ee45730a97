"""Clients at the door: listeners, connections, and the desk that serves their packets.

Bytes become packets here, and packets find who deals with them.
"""
