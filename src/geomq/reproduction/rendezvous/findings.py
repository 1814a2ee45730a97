"""What the samples say, beside what the GeoRendezvous paper says.

Owns the sums over networks, the paper's statements with the test of each, and the tables. The paper prints curves
without values, so its side of the comparison is sentences; `plane` supplies the numbers that geometry alone would give.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from geomq.reproduction.rendezvous.plane import kept_in_plane, overhead_in_plane
from geomq.reproduction.rendezvous.study import (
    FIXED,
    FOCUS,
    RENDEZVOUS,
    SIGNALLED,
    STRETCHES,
    SUBSCRIBERS,
    TRIED,
    Numbers,
    Sample,
    StudyPlan,
)
from geomq.reproduction.tables import table

_SHOWN_N = (1, 2, 3, 4, 6, 8, 10, 12, 16)
_SHOWN_SUBSCRIBERS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32)


class Finding(NamedTuple):
    """A statement of the paper, ours, whether they agree, and a word on it."""

    where: str
    paper: str
    ours: str
    holds: bool
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """The sums of all networks of each size (`growth`: the largest), and the half-widths of 95 % intervals by n."""

    plan: StudyPlan
    sums: dict[int, Sample]
    margins: dict[int, Numbers]

    def overhead(self, nodes: int) -> Numbers:
        """By n: mean hops of the best path through n rendezvous over mean hops of the direct path."""
        return self.sums[nodes].through / self.sums[nodes].direct

    def close(self) -> Numbers:
        return self.sums[FOCUS].close / self.sums[FOCUS].direct

    def trees(self) -> dict[str, Numbers]:
        """By number of subscribers: length of the tree with 8 rendezvous over that with 1."""
        total = self.sums[FOCUS]
        return {
            "replicated": total.multiple_replicated / total.single_shared,
            "shared": total.multiple_shared / total.single_shared,
            "copies": total.multiple / total.single,
        }

    def kept(self, nodes: int) -> Numbers:
        return self.sums[nodes].kept / self.sums[nodes].pairs

    def bound(self, nodes: int) -> Numbers:
        """By k: the theorem's lower bound with the growth, mean distance and diameter that were measured."""
        total = self.sums[nodes]
        share = (total.shortest[0] / total.pairs[0]) / (total.longest[0] / self.plan.networks)
        return np.array([float(total.growth[0]) ** (math.log2(k * share) - 1) for k in STRETCHES])


def find(plan: StudyPlan, samples: Mapping[int, Sequence[Sample]]) -> Findings:
    """Add up the samples of each size."""
    sums, margins = {}, {}
    for nodes in sorted(samples):
        stacks = {part.name: np.stack([getattr(each, part.name) for each in samples[nodes]]) for part in fields(Sample)}
        parts = {name: stack.max(axis=0) if name == "growth" else stack.sum(axis=0) for name, stack in stacks.items()}
        sums[nodes] = Sample(**parts)
        ratio = parts["through"] / parts["direct"]
        off = stacks["through"] - ratio * stacks["direct"]
        margins[nodes] = 1.96 * np.sqrt((off**2).sum(axis=0)) / parts["direct"]
    return Findings(plan, sums, margins)


def spread(found: Findings, n: int) -> float:
    """How much larger the largest overhead of any network size is than the smallest."""
    values = [float(found.overhead(nodes)[n - 1]) for nodes in found.sums]
    return max(values) / min(values) - 1


def deviation(found: Findings, n: int) -> float:
    """How far the overhead of any network size is from the mean over the sizes."""
    values = np.array([found.overhead(nodes)[n - 1] for nodes in found.sums])
    return float(abs(values / values.mean() - 1).max())


def compare(found: Findings) -> list[Finding]:
    """Every statement of the evaluation and of the theorem."""
    return [
        *_on_paths(found),
        *_on_sizes(found),
        *_on_close(found),
        *_on_trees(found),
        *_on_cost(found),
        _on_theorem(found),
    ]


def _on_paths(found: Findings) -> list[Finding]:
    ours = found.overhead(FOCUS)
    gained = (ours[0] - ours[FIXED - 1]) / (ours[0] - ours[-1])
    rest, plane = 1 - ours[-1] / ours[FIXED - 1], overhead_in_plane(RENDEZVOUS)
    falls = all((np.diff(total.through[:FIXED]) < 0).all() for total in found.sums.values())
    return [
        Finding(
            "Figure 3(a)",
            "the overhead falls with the number of rendezvous",
            f"{ours[0]:.2f} with 1, {ours[1]:.2f} with 2, {ours[3]:.2f} with 4, {ours[7]:.2f} with 8",
            falls,
        ),
        Finding(
            "Figure 3(a)",
            "the benefit of more than 8 is limited",
            f"8 bring {100 * gained:.0f} % of what 16 bring",
            gained > 0.85,
        ),
        Finding(
            "Figure 3(a)",
            "read strictly: flat within 5 % from 8 to 16",
            f"{100 * rest:.1f} % less",
            rest < 0.05,
            f"geometry: in the plane, without any network, it is {100 * (1 - plane[-1] / plane[FIXED - 1]):.1f} % less",
        ),
    ]


def _on_sizes(found: Findings) -> list[Finding]:
    own, furthest = deviation(found, FIXED), max(deviation(found, n) for n in range(1, RENDEZVOUS + 1))
    mean = np.mean([found.overhead(nodes)[FIXED - 1] for nodes in found.sums])
    margin = max(found.margins[nodes][FIXED - 1] for nodes in found.sums)
    return [
        Finding(
            "Figure 3(b)",
            "with a given number of rendezvous the overhead does not depend on the network size",
            f"n = 8: {mean:.3f}, all sizes within {100 * own:.1f} %; any n: within {100 * furthest:.1f} %",
            furthest < 0.05,
            f"largest over smallest for n = 8: {100 * spread(found, FIXED):.1f} %; sampling error up to ± {margin:.3f}",
        )
    ]


def _on_close(found: Findings) -> list[Finding]:
    close, ours = found.close(), found.overhead(FOCUS)
    two, everything = close[TRIED - 1], close[-1]
    equal = int(np.argmax(ours <= two)) + 1 if (ours <= two).any() else RENDEZVOUS
    return [
        Finding(
            "Figure 3(c)",
            "the 2 closest of 8 stay close to all 8",
            f"{two:.3f} and {everything:.3f}, {100 * (two / everything - 1):.1f} % more",
            two / everything < 1.1,
            f"as good as trying all of {equal}; the closest alone: {close[0]:.3f}",
        )
    ]


def _on_trees(found: Findings) -> list[Finding]:
    trees = found.trees()
    ours = trees["replicated"]
    peak = int(np.argmax(ours)) + 1
    return [
        Finding(
            "Figure 3(d)",
            "below 1 for few subscribers",
            f"{ours[0]:.2f}, {ours[1]:.2f}, {ours[2]:.2f} for 1, 2, 3",
            bool((ours[:3] < 1).all()),
        ),
        Finding(
            "Figure 3(d)",
            "nearly 1 around 8 subscribers",
            f"{ours[7]:.3f} for 8, at most {ours.max():.3f} for {peak}",
            abs(ours[7] - 1) < 0.06 and 5 <= peak <= 16,
            f"all links shared: {trees['shared'][7]:.3f}; a copy each: {trees['copies'][7]:.3f}",
        ),
        Finding(
            "Figure 3(d)",
            "falling after that",
            f"{ours[15]:.3f} for 16, {ours[-1]:.3f} for {SUBSCRIBERS}",
            bool(ours[-1] < ours[15] < ours.max()),
            f"a copy each: {trees['copies'][-1]:.3f} for {SUBSCRIBERS}",
        ),
    ]


def _on_cost(found: Findings) -> list[Finding]:
    exact = all(
        np.array_equal(total.wasted, 3 * (total.distinct - found.plan.networks)) for total in found.sums.values()
    )
    total = found.sums[FOCUS]
    waste, distinct = (part[SIGNALLED.index(FIXED)] / found.plan.networks for part in (total.wasted, total.distinct))
    return [
        Finding(
            "Section 4",
            "a subscription wastes 3(n - 1) messages",
            f"exactly 3 for each distinct cell not kept; n = 8: {waste:.2f} for {distinct:.2f} distinct cells",
            exact,
            "two of the n places may share a cell, which then saves 3; waking a silent publisher costs as much again",
        )
    ]


def _on_theorem(found: Findings) -> Finding:
    above = all((found.kept(nodes) >= found.bound(nodes)).all() for nodes in found.sums)
    largest, plane = found.kept(max(found.sums)), kept_in_plane(STRETCHES)
    numbers = ", ".join(f"{value:.2f} (k = {k:g})" for k, value in zip(STRETCHES, largest, strict=True))
    return Finding(
        "Theorem 3.1",
        "P(l_r <= l + 2kl) does not vanish as the network grows",
        f"{numbers} at {max(found.sums):,} nodes, above the bound at every size",
        above and bool((largest > 0.75 * plane).all()),
        "it tends to that of the plane: " + ", ".join(f"{value:.2f}" for value in plane),
    )


def as_json(found: Findings) -> dict[str, Any]:
    """Everything that was found, for machines."""
    plan = found.plan
    return {
        "plan": {"sizes": plan.sizes, "networks": plan.networks, "pairs": plan.pairs, "seed": plan.seed},
        "overhead": {str(nodes): _rounded(found.overhead(nodes)) for nodes in found.sums},
        "overhead_margin": {str(nodes): _rounded(found.margins[nodes]) for nodes in found.sums},
        "over_fewest": {str(nodes): _rounded(total.through / total.fewest) for nodes, total in found.sums.items()},
        "overhead_in_plane": _rounded(overhead_in_plane(RENDEZVOUS)),
        "mean_of_ratios": {str(nodes): _rounded(total.relative / total.pairs) for nodes, total in found.sums.items()},
        "close": _rounded(found.close()),
        "trees": {name: _rounded(values) for name, values in found.trees().items()},
        "signals": {
            name: dict(
                zip(map(str, SIGNALLED), _rounded(getattr(found.sums[FOCUS], name) / plan.networks), strict=True)
            )
            for name in ("wasted", "woken", "distinct")
        },
        "theorem": {
            str(nodes): {"kept": _rounded(found.kept(nodes)), "bound": found.bound(nodes).tolist()}
            for nodes in found.sums
        },
        "findings": [finding._asdict() | {"holds": bool(finding.holds)} for finding in compare(found)],
    }


def _rounded(values: Numbers) -> list[float]:
    return [round(float(value), 4) for value in values]


def markdown(found: Findings) -> str:
    """All tables."""
    plan = found.plan
    verdicts = [
        (each.where, each.paper, each.ours, "yes" if each.holds else "no", each.remark) for each in compare(found)
    ]
    parts = [
        f"{plan.networks} networks of each size, {plan.pairs} pairs in each, seed {plan.seed}.\n",
        table(("", "the paper", "here", "holds", "remark"), verdicts),
        "### Overhead by number of rendezvous n: Figures 3(a) and 3(b)\n",
        _overhead_table(found),
        f"### The m closest of {FIXED} rendezvous, {FOCUS} nodes: Figure 3(c)\n",
        table(("m", *range(1, FIXED + 1)), [("overhead", *_fixed(found.close()))]),
        f"### Tree with {FIXED} rendezvous, {TRIED} tried, over tree with 1, {FOCUS} nodes: Figure 3(d)\n",
        _tree_table(found),
        f"### Messages per new subscription that tries all n, {FOCUS} nodes\n",
        _signal_table(found),
        "### Theorem 3.1: share of random rendezvous within l + 2kl\n",
        _theorem_table(found),
        "### The networks\n",
        _network_table(found),
    ]
    return "\n".join(parts)


def _overhead_table(found: Findings) -> str:
    rows: list[Sequence[object]] = [
        (
            f"{nodes:,} nodes",
            *_fixed([found.overhead(nodes)[n - 1] for n in _SHOWN_N]),
            f"{found.margins[nodes][FIXED - 1]:.3f}",
        )
        for nodes in found.sums
    ]
    rows.append(("largest over smallest", *(f"{100 * spread(found, n):.1f} %" for n in _SHOWN_N), ""))
    plane = overhead_in_plane(RENDEZVOUS)
    rows.append(("the plane", *_fixed([plane[n - 1] for n in _SHOWN_N]), ""))
    return table(("n", *_SHOWN_N, f"± for {FIXED}"), rows)


def _tree_table(found: Findings) -> str:
    names = {
        "replicated": "a copy for each rendezvous, branches shared from there",
        "shared": "all links shared",
        "copies": "a copy for each rendezvous and each subscriber",
    }
    shown = [number - 1 for number in _SHOWN_SUBSCRIBERS]
    rows = [(names[name], *_fixed(values[shown])) for name, values in found.trees().items()]
    return table(("subscribers", *_SHOWN_SUBSCRIBERS), rows)


def _signal_table(found: Findings) -> str:
    total, networks = found.sums[FOCUS], found.plan.networks
    columns = (SIGNALLED, total.distinct / networks, total.wasted / networks, total.woken / networks)
    rows = [
        (n, 3 * (n - 1), f"{distinct:.2f}", f"{wasted:.2f}", f"{woken:.2f}")
        for n, distinct, wasted, woken in zip(*columns, strict=True)
    ]
    return table(("n", "3(n - 1)", "distinct cells", "wasted", "more if the publisher was silent there"), rows)


def _theorem_table(found: Findings) -> str:
    rows: list[Sequence[object]] = []
    for nodes, total in found.sums.items():
        mean, longest = total.shortest[0] / total.pairs[0], total.longest[0] / found.plan.networks
        bounds = ", ".join(f"{bound:.2g}" for bound in found.bound(nodes))
        facts = (f"{mean:.2f}", f"{longest:.1f}", f"{total.growth[0]:.1f}")
        rows.append((f"{nodes:,} nodes", *_fixed(found.kept(nodes)), *facts, bounds))
    rows.append(("the plane", *_fixed(kept_in_plane(STRETCHES)), "", "", "", ""))
    heads = (*(f"k = {k:g}" for k in STRETCHES), "mean l", "diameter", "growth Δ", "bounds ρ")
    return table(("", *heads), rows)


def _network_table(found: Findings) -> str:
    rows = []
    for nodes, total in found.sums.items():
        routes, empty, tour, dead_ends = total.homes
        rows.append(
            (
                f"{nodes:,}",
                f"{total.direct[0] / total.pairs[0]:.2f}",
                f"{100 * (total.direct[0] / total.fewest[0] - 1):.1f} %",
                f"{total.through[FIXED - 1] / total.fewest[0]:.3f}",
                f"{100 * empty / routes:.1f} %",
                f"{tour / max(1, empty):.1f}",
                f"{100 * dead_ends / routes:.1f} %",
                f"{100 * total.outside[0] / nodes / found.plan.networks:.3f} %",
            )
        )
    heads = (
        "direct hops",
        "above the fewest",
        f"n = {FIXED} over the fewest",
        "places in empty cells",
        "hops around these",
        "dead ends",
        "nodes cut off",
    )
    return table(("nodes", *heads), rows)


def _fixed(values: Sequence[float] | Numbers) -> list[str]:
    return [f"{value:.3f}" for value in values]
