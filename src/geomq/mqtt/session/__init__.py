"""The server's end of a session: QoS 0 to 2, flow control, wills, subscriptions, retained messages.

Packets in, packets out; it never waits, and time is an argument.
"""
