"""The asyncio shell around the pure core: listeners, sessions, store, security, metrics, admin API.

It decides nothing about routing and invents no bytes: `mqtt` does the protocol, `routing` the choice.
"""
