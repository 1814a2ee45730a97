"""The published formation runs of broadcast groups, and ours beside them.

Owns the published numbers, the statements the paper makes of its Figures 2 and 3, and their comparison with the rows
of a study, as data and as Markdown.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from geomq.reproduction.claims import Claim, claims_table, deviation
from geomq.reproduction.groups.cities import LISTS
from geomq.reproduction.groups.study import CHANGES, WATCH_TICKS, FormationRow
from geomq.reproduction.tables import titled_table


class Published(NamedTuple):
    """A run as printed; None where nothing is known."""

    groups: float
    ticks: int | None = None
    leader_joins: int | None = None
    member_joins: int | None = None
    notifications: int | None = None


# By threshold in milliseconds and number of brokers. A group count in halves is the middle of a printed range.
PUBLISHED: dict[tuple[int, int], Published] = {
    (10, 1200): Published(260, 40, 1070, 868, 998),
    (10, 2400): Published(337, 48, 2493, 2555, 2985),
    (10, 3600): Published(369, 55, 3763, 4565, 5097),
    (10, 4800): Published(399, 65, 5716, 7682, 8997),
    (10, 6000): Published(403, 63, 6823, 9311, 10537),
    (70, 9600): Published(22, 100, 11325, 37612, 39359),
    (10, 12000): Published(480),
    (30, 12000): Published(89),
    (100, 12000): Published(13),
    (200, 12000): Published(4),
    (250, 12000): Published(2),
    (300, 12000): Published(2),
    (350, 12000): Published(2),
    (400, 12000): Published(1),
}
GROUPS_WITHIN = 0.15


def formed(rows: Sequence[FormationRow]) -> list[FormationRow]:
    """The rows of the sweep, in order: those of the first row's list and seed."""
    mine = [row for row in rows if row.kind == "form"]
    if not mine:
        return []
    leading = (mine[0].cities, mine[0].seed)
    unique = {(row.join_ms, row.brokers): row for row in mine if (row.cities, row.seed) == leading}
    return [unique[key] for key in sorted(unique)]


def compare(rows: Sequence[FormationRow]) -> list[dict[str, Any]]:
    """Each published number that a row of the sweep answers."""
    found = []
    for row in formed(rows):
        published = PUBLISHED.get((int(row.join_ms), row.brokers))
        if published is not None:
            for name, value in published._asdict().items():
                if value is not None:
                    ours = getattr(row, name)
                    given = {"join_ms": row.join_ms, "brokers": row.brokers, "what": name}
                    off = round(100 * deviation(ours, value), 1)
                    found.append({**given, "published": value, "here": ours, "deviation_percent": off})
    return found


def line_fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and coefficient of determination of the best line."""
    slope, offset = np.polyfit(np.asarray(x, float), np.asarray(y, float), 1)
    residual = np.asarray(y) - (slope * np.asarray(x) + offset)
    spread = np.asarray(y, float) - np.mean(y)
    total = float((spread * spread).sum())
    return float(slope), 1.0 - float((residual * residual).sum()) / total if total else 1.0


def join_fits(rows: Sequence[FormationRow]) -> dict[float, tuple[float, float, float]]:
    """Per threshold: leader joins per broker, member joins per broker, and the lesser of the two R^2 values of all
    joins and of leader joins against brokers."""
    fits = {}
    for threshold in sorted({row.join_ms for row in formed(rows)}):
        mine = [row for row in formed(rows) if row.join_ms == threshold]
        if len(mine) > 2:
            brokers = [row.brokers for row in mine]
            leader, leader_fit = line_fit(brokers, [row.leader_joins for row in mine])
            member, _ = line_fit(brokers, [row.member_joins for row in mine])
            _, fit = line_fit(brokers, [row.leader_joins + row.member_joins for row in mine])
            fits[threshold] = (leader, member, min(leader_fit, fit))
    return fits


def claims(rows: Sequence[FormationRow]) -> list[Claim]:
    """What the paper says, checked on the sweep."""
    mine = formed(rows)
    compared = [row for row in compare(mine) if row["what"] == "groups" and row["join_ms"] == 10]
    near = [row for row in compared if row["brokers"] <= 6000]
    worst = max((abs(row["deviation_percent"]) for row in near), default=0.0)
    slope = threshold_slope(_groups_by_threshold(mine, max(row.brokers for row in mine)))
    fits = join_fits(mine)
    lowest = min((fit for _, _, fit in fits.values()), default=1.0)
    ratio = float(np.median([row.notifications / row.member_joins for row in mine if row.member_joins]))
    per_broker = [row.messages / row.brokers for row in mine]
    found = [
        Claim(
            "groups at 10 ms within 15 % of the published number up to 6,000 brokers",
            worst <= 100 * GROUPS_WITHIN,
            f"off by {worst:.1f} % at most",
        ),
        Claim(
            "a higher threshold means fewer groups (Figure 2)",
            all(_never_rises(_groups_by_threshold(mine, count)) for count in {row.brokers for row in mine}),
            ", ".join(f"{ms:g} ms: {groups}" for ms, groups in _groups_by_threshold(mine, mine[-1].brokers)),
        ),
        Claim(
            "groups fall with a power of the threshold as in the published numbers (Figure 2)",
            abs(slope - PUBLISHED_SLOPE) < 0.2,
            f"exponent {slope:.2f}, published {PUBLISHED_SLOPE:.2f}, both from 10 to 200 ms",
        ),
        Claim("joins are linear in brokers (Figure 3)", lowest > 0.98, f"R^2 at least {lowest:.4f}"),
        Claim(
            "notifications per member join are 1.04 in the median",
            abs(ratio - 1.04) < 0.1,
            f"{ratio:.3f} in the median",
        ),
        Claim(
            "messages per broker stay bounded as brokers grow",
            max(per_broker) < 25,
            f"{min(per_broker):.1f} to {max(per_broker):.1f} messages a broker",
        ),
    ]
    largest = [row for row in mine if row.brokers == max(r.brokers for r in mine) and row.join_ms == 20]
    if largest and len({row.brokers for row in mine}) > 2:
        found.append(_density(mine))
    return found


def _density(rows: Sequence[FormationRow]) -> Claim:
    """Figure 2's second statement, on thresholds that leave more than a handful of groups."""
    top = max(row.brokers for row in rows)
    halves = min((row.brokers for row in rows if row.brokers >= top / 2), default=top)
    changes = []
    for threshold in sorted({row.join_ms for row in rows if 20 <= row.join_ms <= 100}):
        groups = {row.brokers: row.groups for row in rows if row.join_ms == threshold}
        changes.append(abs(groups[top] / groups[halves] - 1))
    return Claim(
        "from many brokers on, more brokers do not change the number of groups (Figure 2)",
        max(changes) < 0.25,
        f"from {halves:,} to {top:,} brokers by {100 * max(changes):.0f} % at most, 20 to 100 ms",
    )


def threshold_slope(points: Sequence[tuple[float, float]]) -> float:
    """The exponent with which groups fall with the threshold from 10 to 200 ms."""
    near = [(math.log(ms), math.log(groups)) for ms, groups in points if 10 <= ms <= 200]
    return line_fit([x for x, _ in near], [y for _, y in near])[0]


PUBLISHED_SLOPE = threshold_slope([(ms, run.groups) for (ms, count), run in PUBLISHED.items() if count == 12000])


def _groups_by_threshold(rows: Sequence[FormationRow], brokers: int) -> list[tuple[float, int]]:
    return [(row.join_ms, row.groups) for row in rows if row.brokers == brokers]


def _never_rises(points: Sequence[tuple[float, int]]) -> bool:
    """Chance may add a group where only a handful are left."""
    return all(after <= before + 1 for (_, before), (_, after) in pairwise(points))


def markdown(rows: Sequence[FormationRow]) -> str:
    """Everything as Markdown tables."""
    parts = [_published_table(rows), _figure_2_table(rows), _figure_3_table(rows), _list_table(rows)]
    parts += [_change_table(rows), _watch_table(rows), "### What the paper says\n\n" + claims_table(claims(rows))]
    return "\n".join(part for part in parts if part)


def _published_table(rows: Sequence[FormationRow]) -> str:
    body = [
        (
            f"{row['join_ms']:g}",
            f"{row['brokers']:,}",
            row["what"].replace("_", " "),
            f"{row['published']:,}",
            f"{row['here']:,}",
            f"{row['deviation_percent']:+.1f} %",
        )
        for row in compare(rows)
    ]
    return titled_table(
        "Beside the published runs", ("threshold ms", "brokers", "", "published", "here", "off by"), body
    )


def _figure_2_table(rows: Sequence[FormationRow]) -> str:
    mine = formed(rows)
    counts = sorted({row.brokers for row in mine})
    groups = {(row.join_ms, row.brokers): row.groups for row in mine}
    body = [
        (f"{ms:g}", *(f"{groups[ms, count]:,}" for count in counts)) for ms in sorted({row.join_ms for row in mine})
    ]
    return titled_table("Groups by threshold and brokers (Figure 2)", ("ms", *(f"{c:,}" for c in counts)), body)


def _figure_3_table(rows: Sequence[FormationRow]) -> str:
    mine = formed(rows)
    top = max((row.brokers for row in mine), default=0)
    at_top = {row.join_ms: row for row in mine if row.brokers == top}
    body = [
        (
            f"{ms:g}",
            f"{leader:.2f}",
            f"{member:.2f}",
            f"{fit:.4f}",
            at_top[ms].ticks,
            f"{at_top[ms].messages / top:.1f}",
            f"{at_top[ms].stable_measurements:,}",
        )
        for ms, (leader, member, fit) in join_fits(mine).items()
    ]
    head = ("ms", "leader joins a broker", "member joins a broker", "R^2", "ticks", "messages a broker", "measurements")
    return titled_table(f"Joins against brokers (Figure 3); the last three at {top:,} brokers", head, body)


def _list_table(rows: Sequence[FormationRow]) -> str:
    body = []
    mine = [row for row in rows if row.kind == "form" and row.join_ms == 10]
    for name in LISTS:
        for count in sorted({row.brokers for row in mine if row.cities == name}):
            group = [row for row in mine if row.cities == name and row.brokers == count]
            published = PUBLISHED.get((10, count))
            if published is not None and len(group) > 1:
                off = deviation(float(np.mean([row.groups for row in group])), published.groups)
                ranges = [_range([getattr(row, what) for row in group]) for what in _SPREAD]
                body.append(
                    (name, f"{count:,}", f"{published.groups:g}", ranges[0], f"{100 * off:+.1f} %", *ranges[1:])
                )
    head = (
        "list",
        "brokers",
        "published groups",
        "groups",
        "off by",
        *(what.replace("_", " ") for what in _SPREAD[1:]),
    )
    return titled_table("City lists at 10 ms, ranges over seeds", head, body)


_SPREAD = ("groups", "ticks", "leader_joins", "member_joins", "notifications")


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _change_table(rows: Sequence[FormationRow]) -> str:
    body = [
        (
            CHANGES[row.change],
            f"{row.changed:,}",
            row.ticks,
            f"{row.moves:,}",
            f"{row.messages:,}",
            f"{100 * row.messages / row.first_messages:.2f} %",
        )
        for row in rows
        if row.kind == "change"
    ]
    first = next((row for row in rows if row.kind == "change"), None)
    title = "" if first is None else f"Re-forming {first.brokers:,} brokers at {first.join_ms:g} ms"
    head = ("change", "brokers it hits", "ticks", "new leaders", "messages", "of the first formation's")
    return titled_table(title, head, body)


def _watch_table(rows: Sequence[FormationRow]) -> str:
    body = []
    mine = [row for row in rows if row.kind == "watch"]
    for key in dict.fromkeys((row.join_ms, row.noise) for row in mine):
        by_remedy = {_remedy(row): row for row in mine if (row.join_ms, row.noise) == key}
        cells = [f"{moves_per_broker(by_remedy[name]):.2f}" if name in by_remedy else "" for name in REMEDIES]
        body.append((f"{key[0]:g}", f"{100 * key[1]:g} %", *cells))
    brokers = mine[0].brokers if mine else 0
    title = f"Changes of leader per broker in 100 ticks, {brokers:,} brokers with noisy probes"
    return titled_table(title, ("ms", "noise", *REMEDIES), body)


REMEDIES = ("one threshold", "two thresholds", "moving mean", "both")


def _remedy(row: FormationRow) -> str:
    return REMEDIES[(row.leave_ms > row.join_ms) + 2 * (row.probes > 1)]


def moves_per_broker(row: FormationRow) -> float:
    """Changes of leader per broker in 100 ticks of watching."""
    return row.moves / row.brokers / WATCH_TICKS * 100
