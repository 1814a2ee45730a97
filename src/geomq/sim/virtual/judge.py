"""What must hold of a run, from its ledger alone.

An event that was acknowledged must reach everybody who wanted it all the time that it may have taken to find out;
nobody may get it who did not want it at any moment of that time. Between the two either is right. With QoS 2 nobody
gets it twice; nobody gets the events of one publisher on one topic in another order than they were published in.

In the midst of trouble only what is forbidden is judged. Once it has ended (`healed`), what was promised must be there.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from geomq.sim.virtual.ledger import CLOCK_S, Ledger, Violation
from geomq.sim.virtual.records import INFINITY, Circle, Client, Event, Held, Place, Receipt, matches

_matches = cache(matches)


def judge(ledger: Ledger, *, healed: bool) -> list[Violation]:
    """Everything that is wrong; `healed` asks for what was promised, too."""
    found = list(ledger.violations)
    for client in ledger.clients.values():
        found += _judge_receipts(ledger, client)
        found += _judge_repeats(ledger, client)
        found += _judge_order(ledger, client)
    found += _judge_groups(ledger)
    if healed:
        found += _judge_promises(ledger)
        found += _judge_connections(ledger)
        found += _judge_wills(ledger)
    return found


# What nobody may get.


def _judge_receipts(ledger: Ledger, client: Client) -> Iterator[Violation]:
    for receipt in client.receipts:
        if receipt.event.startswith("will:"):
            yield from _judge_will(ledger, client, receipt)
            continue
        event = ledger.events.get(receipt.event)
        where = f"{receipt.event or 'an empty event'} on {receipt.topic} at {client.name}"
        if event is None:
            if receipt.event or not receipt.topic.startswith("ret/"):
                yield Violation("unexpected", f"{where}, which nobody published")
            continue
        wanted = [held for held in client.wishes if _may_match(ledger, event, client, held, receipt.at_s)]
        if event.topic != receipt.topic or not event.sends:
            yield Violation("unexpected", f"{where}, published on {event.topic}")
        elif event.declined and event.sends == 1 and event.acknowledged_s is None:
            yield Violation("unexpected", f"{where}, which was declined: {event.declined}")
        elif not wanted:
            yield Violation("unexpected", f"{where}, which it did not want")
        elif receipt.qos not in _qualities(event, client, wanted, receipt.at_s):
            yield Violation("quality", f"{where} came with QoS {receipt.qos}")
        elif event.expiry_s is not None and event.sends == 1 and not receipt.dup:  # that may be sent again at any time
            late_s = receipt.at_s - (event.sent_s if event.acknowledged_s is None else event.acknowledged_s)
            if late_s > event.expiry_s + CLOCK_S and not (event.acknowledged_s is None and event.qos):
                yield Violation("expired", f"{where} came after {late_s:.1f} s, of {event.expiry_s} it had")


def _qualities(event: Event, client: Client, wanted: list[Held], at_s: float) -> set[int]:
    """The QoS it may come with: that of a subscription it matched, or of the one that has replaced that since."""
    filters = {held.wish.plain for held in wanted}
    stood = [held for held in client.wishes if held.wish.plain in filters and held.asked_s <= at_s]
    return {min(event.qos, held.wish.qos) for held in stood}


def _may_match(ledger: Ledger, event: Event, client: Client, held: Held, at_s: float) -> bool:
    """Whether this wish can explain that the client got the event at that time."""
    wish = held.wish
    if not _matches(wish.plain, event.topic) or held.asked_s > at_s:
        return False
    if event.sent_s > ledger.settled(held.gone_s):
        return False
    if wish.fence is not None and all(_is_inside(wish.fence, place) is False for place in event.places):
        return False
    if event.fence is None:
        return True
    return any(_is_inside(event.fence, place) is not False for place in _places(ledger, client, event.sent_s, at_s))


def _is_inside(fence: Circle, place: Place | None) -> bool | None:
    """A client without a place is inside no fence."""
    return False if place is None else fence.contains(place)


def _places(ledger: Ledger, client: Client, from_s: float, until_s: float) -> list[Place | None]:
    """Where a client may have been in the eyes of any broker in that time."""
    found: list[Place | None] = []
    stays = client.stays
    for position, stay in enumerate(stays):
        over_s = min((ledger.settled(later.confirmed_s) for later in stays[position + 1 :]), default=INFINITY)
        if stay.said_s <= until_s and over_s >= from_s:
            found.append(stay.place)
    if not stays or min(ledger.settled(stay.confirmed_s) for stay in stays) > from_s:
        found.append(None)
    return found


def _judge_will(ledger: Ledger, client: Client, receipt: Receipt) -> Iterator[Violation]:
    _, owner, number = receipt.event.split(":")
    connection = next((each for each in ledger.clients[owner].connections if each.number == int(number)), None)
    if connection is None:
        return  # the broker had let it in, but the client never heard of it
    if connection.closed_s is None or receipt.at_s < connection.opened_s:
        if not ledger.in_trouble(receipt.at_s):
            yield Violation("will", f"{receipt.event} at {client.name} while its client is connected")
    elif connection.said_goodbye and not ledger.in_trouble(connection.closed_s):
        yield Violation("will", f"{receipt.event} at {client.name} although its client said goodbye")


# Twice.


def _judge_repeats(ledger: Ledger, client: Client) -> Iterator[Violation]:
    seen: dict[str, list[Receipt]] = defaultdict(list)
    for receipt in client.receipts:
        if not receipt.retain and receipt.event in ledger.events:
            seen[receipt.event].append(receipt)
    for name, receipts in seen.items():
        event = ledger.events[name]
        if len(receipts) == 1 or event.ambiguous:
            continue
        first, last = receipts[0], receipts[-1]
        times = f"{name} at {client.name} {len(receipts)} times: " + ", ".join(
            f"{each.at_s - 1000:.3f}{' dup' * each.dup}" for each in receipts
        )
        if first.qos == 2:
            anew = _was_sent_anew(event) or all(_began_anew(client, first, each) for each in receipts[1:])
            if ledger.refuses or not anew:
                yield Violation("duplicate", f"QoS 2 {times}")
        elif event.qos == 0 and not (ledger.reroutes and ledger.in_trouble(last.at_s)):
            yield Violation("duplicate", f"QoS 0 {times}")
        elif first.qos and event.sends == 1 and not ledger.in_trouble(last.at_s) and _on_one_connection(receipts):
            yield Violation("duplicate", f"QoS 1 {times} on one connection")


def _was_sent_anew(event: Event) -> bool:
    """Whether its publisher may have repeated it in another of two sessions that it had."""
    return event.sends > 1 and len(event.brokers) > 1


def _began_anew(client: Client, first: Receipt, again: Receipt) -> bool:
    """Whether the client may have had two sessions by then: what came in one may come once more in the other."""
    return again.connection != first.connection and any(anew_s <= again.at_s for anew_s in client.anew_s)


def _on_one_connection(receipts: list[Receipt]) -> bool:
    return len({each.connection for each in receipts}) < len(receipts)


# In which order.


def _judge_order(ledger: Ledger, client: Client) -> Iterator[Violation]:
    latest: dict[tuple[str, str], Event] = {}
    had: set[str] = set()
    newest = 0
    for receipt in client.receipts:
        event = ledger.events.get(receipt.event)
        if event is None or receipt.retain or receipt.event in had:
            continue
        had.add(receipt.event)
        if receipt.connection < newest:
            continue  # a connection that has been replaced may be slower than the new one
        newest = receipt.connection
        before = latest.get((event.publisher, event.topic))
        if event.ambiguous or _may_overtake(ledger, client, event, before, receipt) or not _was_wanted(client, event):
            continue
        if before is None or event.number > before.number:
            latest[event.publisher, event.topic] = event
        elif len(before.brokers | event.brokers) == 1 and event.sends == before.sends == 1:
            yield Violation("inversion", f"{event.name} after {before.name} at {client.name} on {event.topic}")


def _may_overtake(ledger: Ledger, client: Client, event: Event, before: Event | None, receipt: Receipt) -> bool:
    """Whether the client may get events in another order just then."""
    if ledger.in_change(receipt.at_s):
        return True
    if not ledger.in_trouble(receipt.at_s):
        return False
    may_have_two_sessions = not ledger.refuses and len({each.broker for each in client.connections}) > 1
    return (
        receipt.qos == 0
        or ledger.reroutes
        or client.moves
        or may_have_two_sessions
        or not _steady(client, event, before, receipt)
    )


def _was_wanted(client: Client, event: Event) -> bool:
    """Whether the client had asked for an event before it was published; what comes of earlier ones is not promised."""
    return any(held.asked_s <= event.sent_s for held in client.wishes if _matches(held.wish.plain, event.topic))


def _steady(client: Client, event: Event, before: Event | None, receipt: Receipt) -> bool:
    """Whether the client wanted both events for the same reasons: for another, they may have gone another way."""
    since_s = event.sent_s if before is None else min(event.sent_s, before.sent_s)
    return not any(
        moment is not None and since_s <= moment <= receipt.at_s
        for held in client.wishes
        if _matches(held.wish.plain, event.topic)
        for moment in (held.asked_s, held.taken_back_s)
    )


# What was promised.


def _judge_promises(ledger: Ledger) -> Iterator[Violation]:
    had = {client.name: {receipt.event for receipt in client.receipts} for client in ledger.clients.values()}
    for event in ledger.events.values():
        if not event.sends or event.declined or event.expiry_s is not None or event.deletes:
            continue
        until_s = _promised_until(ledger, event)
        if until_s is None:
            continue
        for client in ledger.clients.values():
            if event.name in had[client.name]:
                continue
            for held in client.wishes:
                if held.wish.share is None and _must_match(ledger, event, client, held, until_s):
                    yield Violation("lost", f"{event.name} on {event.topic} never came to {client.name}")
                    break


def _promised_until(ledger: Ledger, event: Event) -> float | None:
    """Until when what others want and where they are decides about an event; None if nothing was promised."""
    if event.qos:
        return None if event.acknowledged_s is None else ledger.settled(event.acknowledged_s)
    until_s = event.sent_s + 1.0
    publisher = ledger.clients[event.publisher]
    calm = not (ledger.in_trouble(event.sent_s) or ledger.in_trouble(until_s))
    return until_s if calm and publisher.connected_through(event.sent_s, until_s) else None


def _must_match(ledger: Ledger, event: Event, client: Client, held: Held, until_s: float) -> bool:
    """Whether this wish stood all the time, and whatever is uncertain speaks for the event."""
    wish = held.wish
    if not _matches(wish.plain, event.topic) or ledger.settled(held.granted_s) > event.sent_s:
        return False
    if held.taken_back_s is not None and held.taken_back_s <= until_s:
        return False
    if client.ended_s is not None and client.ended_s <= until_s:
        return False
    plain = min(event.qos, wish.qos) == 0 or not client.kept
    if plain and (ledger.in_trouble(until_s) or not client.connected_through(event.sent_s, until_s)):
        return False
    if wish.fence is not None and not all(_is_inside(wish.fence, place) for place in event.places):
        return False
    if event.fence is None:
        return True
    return all(_is_inside(event.fence, place) for place in _places(ledger, client, event.sent_s, until_s))


# Share groups.


def _judge_groups(ledger: Ledger) -> Iterator[Violation]:
    groups: dict[str, list[Client]] = defaultdict(list)
    for client in ledger.clients.values():
        for share in dict.fromkeys(held.wish.share for held in client.wishes if held.wish.share):
            groups[share].append(client)
    for share, members in groups.items():
        counts: dict[str, list[tuple[str, Receipt]]] = defaultdict(list)
        for member in members:
            for receipt in member.receipts:
                counts[receipt.event].append((member.name, receipt))
        for event in ledger.events.values():
            got = counts.get(event.name, [])
            servers = dict.fromkeys(name for name, receipt in got if receipt.qos == 2)
            if len(servers) > 1 and event.qos == 2 and not event.ambiguous and event.sends == 1:
                yield Violation("duplicate", f"{event.name} went to {', '.join(servers)} of {share}")
            if not got and _promised_to_group(ledger, event, members, share):
                yield Violation("lost", f"{event.name} on {event.topic} came to nobody of {share}")


def _promised_to_group(ledger: Ledger, event: Event, members: list[Client], share: str) -> bool:
    if not event.qos or event.declined or event.expiry_s is not None or ledger.trouble_until_s is INFINITY:
        return False
    until_s = _promised_until(ledger, event)
    if until_s is None:
        return False
    return any(
        held.wish.share == share and _must_match(ledger, event, member, held, until_s)
        for member in members
        for held in member.wishes
    )


# Clients, wills.


def _judge_connections(ledger: Ledger) -> Iterator[Violation]:
    for client in ledger.clients.values():
        if len(client.open) > 1:
            where = ", ".join(each.broker for each in client.open)
            yield Violation("twin", f"{client.name} is connected at {where} at the same time")


def _judge_wills(ledger: Ledger) -> Iterator[Violation]:
    """In quiet times a will reaches whoever wants it, once."""
    for name, (topic, died_s) in ledger.wills.items():
        for client in ledger.clients.values():
            stood = any(
                _matches(held.wish.plain, topic)
                and held.wish.qos
                and ledger.settled(held.granted_s) < died_s
                and held.taken_back_s is None
                for held in client.wishes
            )
            times = sum(receipt.event == name for receipt in client.receipts)
            if stood and times != 1:
                yield Violation("will", f"{name} came to {client.name} {times} times")
