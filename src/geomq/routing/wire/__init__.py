"""Between brokers: a reliable link, and its frames as bytes. Sockets are the driver's affair."""
