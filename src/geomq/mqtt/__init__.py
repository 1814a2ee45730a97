"""MQTT 3.1.1 and 5.0 without input or output: bytes in, packets out; nothing here awaits."""
