"""Moves that several topics of a client send to the same broker: sent once, so counted once.

Owns the rows in which topics record who is sent a move, and how rows of many topics become messages. A row is the
client, the number of the move among the client's locations, the home, and the brokers as bits.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from geomq.workload.evaluation.topic import TopicData, mask_words

Rows = NDArray[np.uint64]
CLIENT, MOVE, HOME, MASK = 0, 1, 2, 3
# Clients whose rows are brought together in one place.
CLIENTS_TOGETHER = 50_000


def rows_of(topic: TopicData, clients: NDArray[np.int32], told: NDArray[np.uint64]) -> Rows:
    """The rows of a topic; `told` are the brokers that are sent each location version."""
    versions = np.flatnonzero(told.any(axis=1))
    client = topic.loc_client[versions]
    rows = np.empty((len(versions), MASK + told.shape[1]), np.uint64)
    rows[:, CLIENT] = clients[client]
    rows[:, MOVE] = versions - topic.loc_start[client]
    rows[:, HOME] = topic.home[client]
    rows[:, MASK:] = told[versions]
    return rows


def add_rows(parts: Sequence[Rows], links: NDArray[np.int64]) -> None:
    """Add one message per move and broker to the links, whichever topics asked for it."""
    rows = np.concatenate(parts) if parts else np.empty((0, MASK), np.uint64)
    if not len(rows):
        return
    rows = rows[np.lexsort((rows[:, MOVE], rows[:, CLIENT]))]
    starts = np.ones(len(rows), np.bool_)
    starts[1:] = (rows[1:, CLIENT] != rows[:-1, CLIENT]) | (rows[1:, MOVE] != rows[:-1, MOVE])
    first = np.flatnonzero(starts)
    masks = np.bitwise_or.reduceat(rows[:, MASK:], first, axis=0)
    home = rows[first, HOME].astype(np.int64)
    for broker in range(links.shape[1]):
        told = (masks[:, broker >> 6] >> np.uint64(broker & 63)) & np.uint64(1) != 0
        links[:, broker] += np.bincount(home[told], minlength=len(links))


def by_clients(parts: Sequence[Rows]) -> Iterator[tuple[int, bytes]]:
    """The rows as bytes, cut by numbered ranges of clients: rows of the same move are in the same range."""
    if not parts:
        return
    rows = np.concatenate(parts)
    number = rows[:, CLIENT] // np.uint64(CLIENTS_TOGETHER)
    for each in np.unique(number).tolist():
        yield each, rows[number == each].astype("<u8").tobytes()


def rows_from(data: bytes, brokers: int) -> Rows:
    """The rows whose bytes these are."""
    return np.frombuffer(data, "<u8").reshape(-1, MASK + mask_words(brokers))
