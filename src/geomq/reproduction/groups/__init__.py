"""Broadcast groups: how they form among thousands of brokers, Figures 2 and 3."""
