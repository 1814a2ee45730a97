"""What happened, as records and as readable text. Observes; nothing in `routing` waits for it."""
