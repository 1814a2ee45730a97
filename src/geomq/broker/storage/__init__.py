"""What survives a crash, and when it is safe: the store, its records, and the one writer that syncs.

Knows records and bytes, not what they mean to clients or peers.
"""
