"""The moves of a block's clients laid out for the kernel: locations and subscriptions, client by client.

Owns nothing but that layout. Counting is `kernel_messages.count_moves`.
"""

import numpy as np
from numpy.typing import NDArray

from geomq.workload.kernel_messages import Moves
from geomq.workload.model import DEGREE, NO_FENCE, Block, Kind
from geomq.workload.topic import everyone_mask
from geomq.workload.world import World


def moves_of(block: Block, world: World, topic_owners: NDArray[np.int32]) -> Moves:
    """All location and subscription updates of a block, sorted by client, time and kind."""
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
    return Moves(
        updates.client,
        block.clients.home[index],
        np.where(is_subscription, slot, -1).astype(np.int32),
        updates.lat_e7,
        updates.lon_e7,
        masks,
        topic_owners[np.maximum(updates.topic, 0)],
        block.clients.topics.shape[1],
    )
