"""Packets of MQTT 3.1.1 and 5.0 as bytes, and the names of topics.

Knows no session: whether a packet is welcome is not asked here.
"""
