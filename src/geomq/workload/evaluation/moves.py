"""The moves of a block's clients laid out for the kernel: locations and subscriptions, client by client.

Owns nothing but that layout. Counting is `kernel_messages.count_moves`.
"""

import numpy as np
from numpy.typing import NDArray

from geomq.workload.evaluation.kernel_messages import Moves
from geomq.workload.evaluation.topic import everyone_mask, home_bits
from geomq.workload.model import DEGREE, NO_FENCE, Block, Kind
from geomq.workload.world import World


def moves_of(block: Block, world: World, topic_owners: NDArray[np.int32], near: NDArray[np.int32]) -> Moves:
    """All location and subscription updates of a block, sorted by client, time and kind.

    `near` are the brokers that hold a home's subscriptions by topic and home under `georendezvous`; empty: nobody does.
    """
    updates = block.actions.take(block.actions.kind != Kind.EVENT)
    updates = updates.take(np.lexsort((updates.kind, updates.t_ms, updates.client)))
    is_subscription = updates.kind == Kind.SUBSCRIPTION
    index = updates.client - block.clients.client[0]
    slot = np.argmax(block.clients.topics[index] == updates.topic[:, None], axis=1).astype(np.int32)
    masks = np.zeros((len(updates), len(everyone_mask(len(world)))), np.uint64)
    radius_cm = updates.radius_cm[is_subscription]
    touched = world.areas.touched_masks(
        updates.lat_e7[is_subscription] / DEGREE,
        updates.lon_e7[is_subscription] / DEGREE,
        np.maximum(radius_cm, 0) / 100.0,
    )
    touched[radius_cm == NO_FENCE] = everyone_mask(len(world))
    masks[is_subscription] = touched
    home = block.clients.home[index]
    holders = np.zeros_like(masks)
    if len(near):
        rows = np.flatnonzero(is_subscription)
        for place in range(near.shape[2]):
            holder = near[updates.topic[rows], home[rows], place]
            held = rows[holder >= 0]
            holders[held] |= home_bits(holder[holder >= 0], masks.shape[1])
    return Moves(
        updates.client,
        home,
        np.where(is_subscription, slot, -1).astype(np.int32),
        updates.lat_e7,
        updates.lon_e7,
        masks,
        topic_owners[np.maximum(updates.topic, 0)],
        holders,
        block.clients.topics.shape[1],
    )
