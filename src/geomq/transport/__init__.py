"""Carries the bytes of client sessions over TCP, TLS or WebSocket: on an asyncio loop (`channel`, `link`) or blocking.

Everything MQTT is the session's, in `geomq.mqtt`; who uses a session decides what its events mean.
"""
