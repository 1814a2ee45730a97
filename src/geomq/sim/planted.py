"""Faults of one line that the simulations must find: a promise is tested only if breaking it is noticed.

`python -m geomq.sim.soak --planted` looks for each of them. Where a line has changed, a test says so.
"""

from geomq.sim.planted_broker import IN_BROKER
from geomq.sim.planted_routing import IN_ROUTING
from geomq.sim.planted_workers import IN_WORKERS

PLANTED = (*IN_ROUTING, *IN_BROKER, *IN_WORKERS)
