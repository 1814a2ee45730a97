"""What a broker holds in memory for all its rooms: its clients, its totals, its trace.

It decides nothing: rooms above read it, and change it through its methods.
"""
