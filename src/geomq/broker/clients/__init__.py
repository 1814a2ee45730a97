"""What clients do, in MQTT and in routing: publishing, subscribing, delivery, sessions, retained events."""
