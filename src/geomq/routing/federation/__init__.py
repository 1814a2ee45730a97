"""Which brokers there are, who owns which area, and how a running federation changes that.

Owns descriptions and their editions, and keeps the routings of live editions side by side.
"""
