"""Sessions that follow their clients from broker to broker."""
