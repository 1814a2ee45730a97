"""The words of routing: what happened, what to do, the messages of brokers, and the contract that strategies keep.

Knows no strategy and nothing of how brokers find their peers; everything else in `routing` stands on it.
"""
