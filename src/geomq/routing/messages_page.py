"""The reference page of the messages between brokers, made from their registry.

`python -m geomq.routing.messages_page > docs/reference/messages.md` writes it anew.
"""

from geomq.routing.core.message_registry import declared
from geomq.routing.core.messages import Message
from geomq.routing.parts import PARTS
from geomq.routing.strategies.registry import STRATEGIES

HEAD = """# Messages between brokers

On a link a message is an array: its number, then its fields in this order (see the [peer protocol](peer-protocol.md)).
One of a [strategy of your own](../how-to/write-a-strategy.md#messages-of-its-own) has a name in place of the number.
A message is declared by one of the parts that work the same under every strategy (`members` of share groups, `sessions`
that move, `retained` events, `editions` of the federation description) or by a class of strategies: `Strategy` is the
base of all, `RendezvousStrategy` and `CoverageStrategy` are those of families.

*Survives* says whether the sender keeps the message on disk until the peer has it: always, or if its event is of QoS 1
or 2. *Kept* says whether the receiver keeps, replaces or drops something on disk because of it.

| number | message | fields | kind | declared by | survives | kept | meaning |
|---|---|---|---|---|---|---|---|
"""


def messages_page() -> str:
    """The whole page."""
    numbered = {number: kind for number, kind in declared().items() if isinstance(number, int)}
    rows = "\n".join(_row(number, kind) for number, kind in sorted(numbered.items()))
    return f"{HEAD}{rows}\n"


def _row(number: int, kind: type[Message]) -> str:
    survives = "always" if kind.durable else "QoS 1, 2" if "event" in kind.__struct_fields__ else ""
    words = (
        str(number),
        kind.__name__,
        ", ".join(kind.__struct_fields__),
        kind.kind,
        _declared_by(kind),
        survives,
        "yes" if kind.keeps else "",
        _meaning(kind),
    )
    return f"| {' | '.join(words)} |"


def _declared_by(kind: type[Message]) -> str:
    """The part, or the one class of all strategies."""
    for part, messages in PARTS.items():
        if kind in messages:
            return part
    classes = dict.fromkeys(each for strategy in STRATEGIES.values() for each in strategy.__mro__)
    (declaring,) = [each.__name__ for each in classes if kind in vars(each).get("messages", ())]
    return declaring


def _meaning(kind: type[Message]) -> str:
    """The first paragraph of what the class says of itself."""
    words = (vars(kind).get("__doc__") or "").partition("\n\n")[0].split()
    return " ".join(words).replace("|", "\\|")


if __name__ == "__main__":
    print(messages_page(), end="")
