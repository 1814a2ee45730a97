"""GeoRendezvous in its own world: rendezvous cells in a wireless network, routed by position.

Owns the unit-disk network, its cells, greedy and perimeter routing, the rendezvous protocol and the study of all of
these. It shares nothing with the federation form of GeoRendezvous but the idea.
"""
