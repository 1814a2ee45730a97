"""Settings: what may stand in a config file, how it is read and checked, and what changes between two.

Frozen, checked once where it comes in, and passed down.
"""
