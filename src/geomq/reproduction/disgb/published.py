"""The published numbers of the DisGB simulation, and ours beside them.

Owns Table III as printed, the statements its figures make, and the comparison of both with an evaluation.
"""

from collections.abc import Sequence
from typing import Any

from geomq.reproduction.claims import Claim, claims_table
from geomq.reproduction.tables import table
from geomq.workload.evaluation.results import Outcome
from geomq.workload.generation.presets import Request

# Mean and standard deviation of the event delivery latency in milliseconds, per round.
TABLE_III: dict[str, tuple[tuple[int, int], ...]] = {
    "broadcast_groups": ((22, 63), (27, 75), (24, 69)),
    "dht": ((353, 188), (348, 184), (355, 195)),
    "disgb_events": ((16, 26), (19, 31), (16, 8)),
    "disgb_subscriptions": ((16, 26), (19, 31), (16, 8)),
    "flood_events": ((16, 26), (19, 31), (16, 8)),
    "flood_subscriptions": ((16, 26), (19, 31), (16, 8)),
    "grid_quorum": ((31, 85), (39, 98), (105, 145)),
}
ROUNDS = ((25, 100_000), (25, 1_000_000), (256, 100_000))


def requests(rounds: Sequence[int], *, seed: int, scale: float = 1.0) -> list[Request]:
    """The published rounds, first as published, then as GeoMQ runs them; a scale below 1 takes that share of the
    clients."""
    chosen = [(variant, *ROUNDS[number]) for variant in ("paper", "default") for number in rounds]
    return [
        Request("paper", variant, brokers=brokers, clients=max(1, round(clients * scale)), seed=seed)
        for variant, brokers, clients in chosen
    ]


def compare(outcome: Outcome, number: int) -> list[tuple[Any, ...]]:
    """Rows of strategy, published mean and std, ours, and the deviation of the means in percent."""
    rows = []
    for name, published in TABLE_III.items():
        if name in outcome.strategies:
            ours = outcome.as_json()["strategies"][name]["latency_ms"]
            mean, std = published[number]
            off = 100 * (ours["mean"] / mean - 1)
            rows.append((name, mean, std, round(ours["mean"], 1), round(ours["std"], 1), f"{off:+.1f} %"))
    return rows


def claims(outcomes: dict[int, Outcome]) -> list[Claim]:
    """What the figures show, checked on the rounds that were run."""
    found: list[Claim] = []
    if 0 in outcomes:
        found += _claims_25(outcomes[0])
    if 0 in outcomes and 1 in outcomes:
        found.append(_tenfold(outcomes[0], outcomes[1]))
    if 2 in outcomes:
        found += _claims_256(outcomes[2])
    return found


def totals(outcome: Outcome) -> dict[str, int]:
    """Messages per published strategy."""
    return {name: sum(outcome.strategies[name].messages.values()) for name in TABLE_III if name in outcome.strategies}


def _means(outcome: Outcome) -> dict[str, float]:
    data = outcome.as_json()["strategies"]
    return {name: data[name]["latency_ms"]["mean"] for name in TABLE_III if name in data}


def _claims_25(outcome: Outcome) -> list[Claim]:
    total, mean = totals(outcome), _means(outcome)
    fewest = sorted(total, key=lambda name: total[name])
    by_ten = outcome.strategies["disgb_events"].latency
    share = float(by_ten[10] / by_ten.sum())
    spread = (
        abs(mean["disgb_events"] - mean["flood_events"]),
        abs(mean["disgb_subscriptions"] - mean["flood_subscriptions"]),
    )
    factor = mean["dht"] / mean["disgb_events"]
    between = mean["disgb_events"] < mean["broadcast_groups"] < mean["grid_quorum"] < mean["dht"]
    return [
        Claim(
            "at 25 brokers both DisGB strategies send the fewest messages (Figure 9)",
            set(fewest[:2]) == {"disgb_events", "disgb_subscriptions"},
            ", ".join(f"{name} {total[name]:,}" for name in fewest[:3]),
        ),
        Claim(
            "more subscriptions than events are flooded (Figure 9)",
            total["flood_subscriptions"] > total["flood_events"],
            f"{total['flood_subscriptions']:,} and {total['flood_events']:,}",
        ),
        Claim(
            "disgb_events sends fewer messages than disgb_subscriptions (Figure 9)",
            total["disgb_events"] < total["disgb_subscriptions"],
            f"{total['disgb_events']:,} and {total['disgb_subscriptions']:,}",
        ),
        Claim("more than 75 % of deliveries take 10 ms (Figure 11)", share > 0.75, f"{100 * share:.1f} %"),
        Claim("DisGB is as fast as flooding, within 1 ms", max(spread) < 1, f"{spread[0]:.2f} and {spread[1]:.2f} ms"),
        Claim("DHT is up to 22 times slower than DisGB", 15 < factor < 25, f"{factor:.1f} times"),
        Claim(
            "groups and grid quorum are between", between, f"{mean['broadcast_groups']:.1f}, {mean['grid_quorum']:.1f}"
        ),
    ]


def _tenfold(small: Outcome, large: Outcome) -> Claim:
    ratios = {name: totals(large)[name] / count for name, count in totals(small).items()}
    low, high = min(ratios.values()), max(ratios.values())
    return Claim(
        "ten times the clients send about ten times the messages",
        low > 9 and high < 12,
        f"{low:.2f} to {high:.2f} times",
    )


def _claims_256(outcome: Outcome) -> list[Claim]:
    total = totals(outcome)
    fewest = sorted(total, key=lambda name: total[name])
    quartile = outcome.as_json()["strategies"]["disgb_events"]["latency_ms"]["p75"]
    return [
        Claim(
            "at 256 brokers DHT sends the fewest messages (Figure 10)",
            fewest[0] == "dht",
            ", ".join(f"{name} {total[name]:,}" for name in fewest[:3]),
        ),
        Claim("at 256 brokers the third quartile is above 10 ms (Figure 12)", quartile > 10, f"{quartile} ms"),
    ]


def own_rows(outcome: Outcome) -> list[tuple[str, float, float, int, int]]:
    """Rows of strategy, mean and std of latency, messages but for moves, and moves, fewest messages first."""
    data = outcome.as_json()["strategies"]
    rows = []
    for name, result in data.items():
        latency, sent = result["latency_ms"], result["messages"]
        rows.append((name, latency["mean"], latency["std"], sent["total"] - sent["location"], sent["location"]))
    return sorted(rows, key=lambda row: row[3] + row[4])


def _heading(number: int, outcome: Outcome) -> str:
    """The round, and its true size if only a share of the clients acted; rounding alone leaves out a few."""
    brokers, clients = ROUNDS[number]
    size, scaled = f"{clients:,} clients", ""
    if outcome.run.clients < 0.99 * clients:
        size, scaled = f"{outcome.run.clients:,} of {size}", " (scaled, not comparable)"
    return f"Round {number + 1}: {brokers} brokers, {size}{scaled}"


def own_markdown(outcomes: dict[int, Outcome]) -> str:
    """The same rounds with all strategies as GeoMQ runs them, as Markdown."""
    parts = ["### All strategies as GeoMQ runs them\n"]
    for number, outcome in outcomes.items():
        parts.append(f"{_heading(number, outcome)}\n")
        rows = [
            (name, f"{mean:.1f} ({std:.1f})", f"{sent + moves:,}", f"{moves:,}")
            for name, mean, std, sent, moves in own_rows(outcome)
        ]
        parts.append(table(("strategy", "latency, mean (std)", "messages", "of moves"), rows))
    return "\n".join(parts)


def markdown(outcomes: dict[int, Outcome]) -> str:
    """Table III and the claims as Markdown."""
    parts = []
    for number, outcome in outcomes.items():
        parts.append(f"### {_heading(number, outcome)}\n")
        total = totals(outcome)
        rows = [
            (name, f"{mean} ({std})", f"{ours} ({ours_std})", off, f"{total[name]:,}")
            for name, mean, std, ours, ours_std, off in compare(outcome, number)
        ]
        parts.append(table(("strategy", "published mean (std)", "here", "deviation of the mean", "messages"), rows))
        oracle = outcome.strategies["oracle"].messages["event"]
        parts.append(f"Lower bound (one message per event and remote home with a match): {oracle:,} messages.\n")
    parts.append("### What the figures say\n\n" + claims_table(claims(outcomes)))
    return "\n".join(parts)
