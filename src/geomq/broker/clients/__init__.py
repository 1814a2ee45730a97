"""What clients do, in MQTT and in routing: publishing, subscribing, delivery, sessions, retained events.

Knows a client's connection as something to send on, and the driver as something to feed.
"""
