"""What brokers still keep once every client has ended its session: nothing, but what is retained.

The one part of the judgement that looks into brokers, because no client can see what stays behind there.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from geomq.broker.server import Broker
from geomq.sim.virtual.ledger import Violation
from geomq.sim.virtual.scenario import CLOUD


def leftovers(name: str, broker: Broker, retained: int, served: int = 0) -> Iterator[Violation]:
    """Everything of one broker that has no reason to be there; `retained` topics have a message, and the sessions of
    `served` other brokers may be at the cloud."""
    core = broker.core
    clients = [client for client in core.node.clients if not client.startswith("\0")]  # the others are its own
    names = ", ".join(clients[:5])
    counts = {
        "sessions": max(0, len(core.clients) - served),
        "connections": max(0, len(broker.parts.handlers.connections) - served),
        "clients in its routing": max(0, len(clients) - served),
        "members of share groups": len(core.node.shared),
        "messages of links": _waiting_for_peers(broker),
        "writes": int(broker._store.dirty),
        "acknowledgements": len(core.outbox.journal),
    }
    for what, count in counts.items():
        if count:
            yield Violation("left over", f"{name} keeps {count} {what}: {names}")
    messages = broker._store.messages
    if messages > retained:
        yield Violation("left over", f"{name} keeps {messages} messages on disk, {retained} of them retained")


def _waiting_for_peers(broker: Broker) -> int:
    if broker.peering is None:
        return 0
    return sum(len(peer.link._outbox) for peer in broker.peering._peers.values())


def twins(brokers: Iterable[Broker | None]) -> Iterator[Violation]:
    """No client has its session at two brokers."""
    homes: dict[str, list[str]] = defaultdict(list)
    for broker in brokers:
        if broker is not None:
            for client in broker.core.clients:
                homes[client].append(broker.core.config.broker.name)
    for client, names in homes.items():
        if len(names) > 1 and CLOUD not in names:
            yield Violation("twin", f"{client} has a session at {', '.join(names)}")


def disagreement(brokers: Sequence[Broker | None]) -> Iterator[Violation]:
    """All brokers must follow one edition of their federation in the end."""
    editions = [broker.core.node.editions for broker in brokers if broker is not None]
    if any(each.changing for each in editions) or len({each.edition for each in editions}) > 1:
        where = ", ".join(f"{each.edition} {each.phase.name.lower()}" for each in editions)
        yield Violation("not converged", f"the brokers follow {where}")
