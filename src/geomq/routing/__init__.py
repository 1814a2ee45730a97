"""The routing core: events in, actions out. Every strategy lives here; nothing awaits, reads a clock or rolls dice.

Start with `strategy.py` (the contract), then `rendezvous.py` (what most strategies share), then any strategy.
"""
