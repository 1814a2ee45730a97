"""Plain events, many at a time: along plans that the routing node gave out, without asking it for each."""
