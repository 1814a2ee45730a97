"""Other brokers: links, what crosses them, and what is kept until it has arrived."""
