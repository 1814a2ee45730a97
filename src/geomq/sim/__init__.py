"""The simulator: drives the real routing nodes in virtual time and judges what they did.

`engine.py` is the event loop, `network.py` the links, `faults.py` what goes wrong, `checkers.py` what must hold,
`oracle.py` who should have received what.
"""
