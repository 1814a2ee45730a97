"""The client's end of a session, which every MQTT client of GeoMQ is a face of.

Bytes in, events and bytes out; connecting is left to those who have sockets.
"""
