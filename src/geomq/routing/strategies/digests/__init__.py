"""`digests`: brokers send each other what they want, all at once and a little more than that.

`units` is the geometry, `digest` what one broker wants of another, `outlook` when it tells, `strategy` the strategy.
"""
