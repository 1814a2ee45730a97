"""What the live experiments found, beside what the papers printed: tables, statements, figures.

Owns the published numbers and which statements are made. Control messages are left out of all counts, as the papers do.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geomq.reproduction.claims import Claim, claims_table, deviation
from geomq.reproduction.figures import COLOURS, new_figure, save_figure
from geomq.reproduction.live.dice import MESSAGES
from geomq.reproduction.live.experiments import speed_of
from geomq.reproduction.live.iov import MONITORING, TELEMETRY
from geomq.reproduction.live.study import STEP_MS, Study
from geomq.reproduction.live.table_ii import TABLE_II, Told
from geomq.reproduction.tables import table
from geomq.workload.evaluation.results import Outcome
from geomq.workload.evaluation.summary import StrategyResult, statistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FULL_CLIENTS, FULL_SECONDS = 3600, 900
FLOODED = {"hiking": {"flood_events": 223_622, "flood_subscriptions": 643_434}}
"""Computed by the paper, not measured."""
EXCESS = {
    TELEMETRY: {"global flooding": 0.50, "cloud relay": 1 / 3, "broadcast groups": 1 / 3},
    MONITORING: {"global flooding": 0.50, "cloud relay": 0.0, "broadcast groups": 0.0},
}
LINKS_MS = {
    "same edge broker": dict.fromkeys(("global flooding", "cloud relay", "broadcast groups"), 4.0),
    "edge 2 and edge 3": {"global flooding": 7.0, "cloud relay": 55.0, "broadcast groups": 7.0},
    "monitoring to authority": dict.fromkeys(("global flooding", "cloud relay", "broadcast groups"), 44.0),
}
"""What the emulated links alone take; the paper expects these steps."""
COUNTED = ("event", "subscription", "delivery", "location")
NEAR, ADAPTIVE = 0.05, 0.10
AGREE, AGREE_MESSAGES = 0.02, 10
LATE_MS_MAX, BROKER_MS_MAX = 20.0, 5.0


def counted(result: StrategyResult) -> int:
    """Messages between brokers, control left out."""
    return sum(result.messages[kind] for kind in COUNTED)


def published_messages(scenario: str) -> dict[str, int]:
    """By strategy."""
    return MESSAGES[scenario] | FLOODED.get(scenario, {})


def counted_as_published(name: str, result: StrategyResult, told: Told) -> int:
    """The same as the prototype counts them: its location updates are more, taking back a subscription is none."""
    if name != "disgb_subscriptions":
        return counted(result)
    return result.messages["delivery"] + told.subscriptions + told.locations


def is_full(outcome: Outcome) -> bool:
    """Whether it is the published size, so that absolute numbers may be compared."""
    return outcome.run.clients == FULL_CLIENTS and outcome.run.seconds >= FULL_SECONDS


def claims(study: Study) -> list[Claim]:
    """The statements of both papers, and ours."""
    found = [_claim_intact(study), _claim_late(study)]
    for scenario, outcome in study.live.items():
        totals = {name: counted(result) for name, result in outcome.strategies.items()}
        found += _claims_published(scenario, outcome, study.told[scenario])
        found.append(_claim_evaluated(study, scenario))
        if is_full(outcome) and {"adaptive", "disgb_events", "disgb_subscriptions"} <= totals.keys():
            better = min(totals["disgb_events"], totals["disgb_subscriptions"])
            numbers = f"{totals['adaptive']:,} against {better:,}"
            text = f"{scenario}: adaptive within 10 % of the better DisGB strategy"
            found.append(Claim(text, totals["adaptive"] <= better * (1 + ADAPTIVE), numbers))
    return found + _claims_dice(study) + _claims_groups(study)


def _claim_intact(study: Study) -> Claim:
    wrong = {
        f"{group} {name}": (check["lost"], check["duplicated"], check["unexpected"])
        for group, checks in study.checks.items()
        for name, check in checks.items()
        if check["lost"] or check["duplicated"] or check["unexpected"]
    }
    received = sum(check["received"] for checks in study.checks.values() for check in checks.values())
    numbers = f"{received:,} deliveries" + "".join(f"; {name}: {counts}" for name, counts in wrong.items())
    return Claim("nothing is lost, doubled or delivered to the wrong client", not wrong, numbers)


def _claim_late(study: Study) -> Claim:
    p99 = {
        f"{group} {name}": report["lateness"]["p99"]
        for group, reports in study.replays.items()
        for name, report in reports.items()
    }
    worst = max(p99, key=lambda name: p99[name])
    text = f"the replayer is less than {LATE_MS_MAX:g} ms late (p99)"
    return Claim(text, p99[worst] < LATE_MS_MAX, f"{p99[worst]:.1f} ms at most, {worst}")


def _claims_published(scenario: str, outcome: Outcome, told: Told) -> list[Claim]:
    if not is_full(outcome):
        return []
    found = []
    for name, published in published_messages(scenario).items():
        if name in outcome.strategies:
            ours = counted_as_published(name, outcome.strategies[name], told)
            text = f"{scenario}: {name} sends as many messages as published, counted alike, within 5 %"
            off = deviation(ours, published)
            found.append(Claim(text, abs(off) <= NEAR, f"{ours:,} against {published:,} ({off:+.1%})"))
    return found


def _claims_dice(study: Study) -> list[Claim]:
    """Few fences meet two areas, and each is a message: how far the published numbers are from what dice give."""
    found = []
    for scenario, seeds in study.spread.items():
        for column, what in ((2, "subscription"), (4, "event")):
            published = TABLE_II[scenario][column]
            numbers = [value for row in seeds if (value := row[column]) is not None]
            if published is None or len(numbers) < 2 or not is_full(study.live[scenario]):
                continue
            mean, spread = float(np.mean(numbers)), float(np.std(numbers))
            text = f"{scenario}: the published number of overlapping {what} fences is what dice give (2 deviations)"
            numbers_text = f"{published:,} against {mean:,.0f} ± {spread:,.0f}"
            found.append(Claim(text, abs(published - mean) <= 2 * spread, numbers_text))
    return found


def _claim_evaluated(study: Study, scenario: str) -> Claim:
    """Where they differ, the longest delivery says how far brokers were behind the workload's clock."""
    evaluated, parts, holds = study.evaluated[scenario].strategies, [], True
    for name, result in study.live[scenario].strategies.items():
        if name in evaluated:
            ours, theirs = counted(result), counted(evaluated[name])
            holds = holds and abs(ours - theirs) <= max(AGREE * theirs, AGREE_MESSAGES)
            longest_s = (
                study.replays[scenario][name]["latency"].get("max", 0.0) * speed_of(scenario, study.speed) / 1000
            )
            behind = f" (longest delivery {longest_s:.1f} s of the scenario's time)" if ours != theirs else ""
            parts.append(f"{name} {ours:,} / {theirs:,}{behind}")
    bound = f"{100 * AGREE:g} % or {AGREE_MESSAGES} messages"
    return Claim(f"{scenario}: live and evaluated message counts agree within {bound}", holds, ", ".join(parts))


def _claims_groups(study: Study) -> list[Claim]:
    found = []
    for flow, published in EXCESS.items():
        ours = {way: share(counts[flow]) for way, counts in study.excess.items() if flow in counts}
        if ours:
            numbers = ", ".join(f"{way} {value:.1%}" for way, value in ours.items())
            holds = all(abs(value - published[way]) < 0.01 for way, value in ours.items())
            found.append(Claim(f"excess data of {flow} as in Tables I and II", holds, numbers))
    for relation, links in LINKS_MS.items():
        ours = {way: median(found[relation]) for way, found in study.latency.items() if relation in found}
        if ours:
            numbers = ", ".join(f"{way} {value:.1f} ms" for way, value in ours.items())
            holds = all(links[way] <= value <= links[way] + BROKER_MS_MAX for way, value in ours.items())
            text = f"{relation}: the median delivery takes what the links take plus at most {BROKER_MS_MAX:g} ms"
            found.append(Claim(text, holds, numbers))
    return found


def share(counts: tuple[int, int]) -> float:
    """Redundant among all messages that brokers dealt with."""
    correct, redundant = counts
    return redundant / (correct + redundant) if correct + redundant else 0.0


def median(histogram: "np.ndarray[Any, np.dtype[np.int64]]") -> float:
    return percentile(histogram, 0.5)


def percentile(histogram: "np.ndarray[Any, np.dtype[np.int64]]", at: float) -> float:
    """Milliseconds of a histogram by tenths of one."""
    reached = np.cumsum(histogram)
    return float(np.searchsorted(reached, at * reached[-1])) * STEP_MS


def markdown(study: Study) -> str:
    """Everything as one text."""
    parts = ["# Live experiments, reproduced\n"]
    if study.live:
        parts += [_table_ii(study), _messages(study), _deliveries(study)]
    if study.excess:
        parts += [_excess(study), _steps(study)]
    parts.append("## Statements\n\n" + claims_table(claims(study)))
    return "\n".join(parts)


def _table_ii(study: Study) -> str:
    headers = ("", "location updates", "subscription updates", "overlapping", "events", "overlapping")
    rows: list[tuple[Any, ...]] = []
    for scenario, found in study.characteristics.items():
        if is_full(study.live[scenario]):
            rows.append((f"{scenario}, published", *map(_cell, TABLE_II[scenario])))
        rows.append((f"{scenario}, here", *map(_cell, found)))
        if study.spread.get(scenario):
            seeds = study.spread[scenario]
            columns = [_mean_and_spread(column) for column in zip(*seeds, strict=True)]
            rows.append((f"{scenario}, {len(seeds)} seeds", *columns))
    return "## Table II: what clients do\n\n" + table(headers, rows)


def _mean_and_spread(values: tuple[int | None, ...]) -> str:
    numbers = [value for value in values if value is not None]
    return f"{np.mean(numbers):,.0f} ± {np.std(numbers):,.0f}" if numbers else "-"


def _messages(study: Study) -> str:
    parts = ["## Figures 5, 6, 7: messages between brokers\n"]
    for scenario, outcome in study.live.items():
        rows: list[tuple[Any, ...]] = []
        for name, result in outcome.strategies.items():
            published = published_messages(scenario).get(name) if is_full(outcome) else None
            evaluated = study.evaluated[scenario].strategies.get(name)
            rows.append(
                (
                    name,
                    *(f"{result.messages[kind]:,}" for kind in COUNTED),
                    f"**{counted(result):,}**",
                    "-" if evaluated is None else f"{counted(evaluated):,}",
                    f"{counted_as_published(name, result, study.told[scenario]):,}",
                    _cell(published),
                    f"{result.messages['control']:,}",
                )
            )
        headers = ("strategy", *COUNTED, "live", "evaluated", "counted alike", "published", "control")
        parts.append(f"### {scenario}\n\n" + table(headers, rows))
    return "\n".join(parts)


def _deliveries(study: Study) -> str:
    headers = (
        *("", "received", "lost", "doubled", "unexpected", "timing decides", "excess data"),
        *("latency p50", "p99 ms", "lateness p50", "p95", "p99 ms"),
    )
    rows: list[tuple[Any, ...]] = []
    for scenario, outcome in study.live.items():
        for name, result in outcome.strategies.items():
            check, report = study.checks[scenario][name], study.replays[scenario][name]
            took = statistics(result.latency)
            rows.append(
                (
                    f"{scenario}, {name}",
                    *(f"{check[key]:,}" for key in ("received", "lost", "duplicated", "unexpected", "possible")),
                    f"{share((check['correct'], check['redundant'])):.1%}",
                    *(_cell(took["p50"]), _cell(took["p99"])),
                    *(f"{report['lateness'][key]:.2f}" for key in ("p50", "p95", "p99")),
                )
            )
    return "## Deliveries\n\n" + table(headers, rows)


def _excess(study: Study) -> str:
    rows: list[tuple[Any, ...]] = []
    for flow, published in EXCESS.items():
        for way, counts in study.excess.items():
            correct, redundant = counts.get(flow, (0, 0))
            shares = (f"{share((correct, redundant)):.1%}", f"{published[way]:.0%}")
            rows.append((flow, way, f"{correct:,}", f"{redundant:,}", *shares))
    headers = ("flow", "way", "correct", "redundant", "excess data", "published")
    return "## Broadcast groups, Tables I and II: excess data\n\n" + table(headers, rows)


def _steps(study: Study) -> str:
    rows: list[tuple[Any, ...]] = []
    for way, found in study.latency.items():
        for relation, histogram in found.items():
            marks = [f"{percentile(histogram, at):.1f}" for at in (0.05, 0.5, 0.95)]
            rows.append((way, relation, f"{int(histogram.sum()):,}", f"{LINKS_MS[relation][way]:g}", *marks))
    headers = ("way", "from whom to whom", "deliveries", "links alone", "p5", "p50", "p95 ms")
    return "## Broadcast groups, Figures 5 to 7: delivery latency\n\n" + table(headers, rows)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:,}"


def _marks(histogram: "np.ndarray[Any, np.dtype[np.int64]]") -> dict[str, float]:
    return {f"p{round(100 * at)}": round(percentile(histogram, at), 1) for at in (0.05, 0.5, 0.95)}


def as_json(study: Study) -> str:
    """Machine-readable, for others to plot."""
    document = {
        "claims": [claim._asdict() for claim in claims(study)],
        "characteristics": {name: found._asdict() for name, found in study.characteristics.items()},
        "live": {name: outcome.as_json() for name, outcome in study.live.items()},
        "evaluated": {name: outcome.as_json() for name, outcome in study.evaluated.items()},
        **{name: asdict(study)[name] for name in ("speed", "checks", "replays", "excess", "conditions")},
        "latency_ms": {way: {name: _marks(h) for name, h in found.items()} for way, found in study.latency.items()},
    }
    return json.dumps(document, indent=1, default=str)


def write_figures(study: Study, directory: Path) -> list[Path]:
    """Messages by scenario on a logarithmic axis, and how long cars wait for each other's telemetry."""
    paths = [save_figure(_bars(*each), directory / f"live-{each[0]}.svg") for each in study.live.items()]
    if study.latency:
        paths.append(save_figure(_steps_figure(study), directory / "live-telemetry.svg"))
    return paths


def _bars(scenario: str, outcome: Outcome) -> "Figure":
    figure, (axes,) = new_figure()
    names = list(outcome.strategies)
    places = np.arange(len(names))
    live = [max(counted(outcome.strategies[name]), 1) for name in names]
    axes.bar(places - 0.2, live, 0.4, label="live", color=COLOURS[0])
    if is_full(outcome):
        published = [published_messages(scenario).get(name, 0) for name in names]
        axes.bar(places + 0.2, published, 0.4, label="published", color=COLOURS[1])
    axes.set_xticks(places, names, rotation=20, fontsize=7)
    axes.set_yscale("log")
    axes.set_title(f"{scenario}: messages between brokers")
    axes.legend(loc="upper right")
    return figure


def _steps_figure(study: Study) -> "Figure":
    figure, (axes,) = new_figure()
    for colour, (way, found) in zip(COLOURS, study.latency.items(), strict=False):
        telemetry = [found[name] for name in ("same edge broker", "edge 2 and edge 3") if name in found]
        size = max(len(histogram) for histogram in telemetry)
        both = np.sum([np.pad(histogram, (0, size - len(histogram))) for histogram in telemetry], axis=0)
        axes.plot(np.arange(size) * STEP_MS, np.cumsum(both) / both.sum(), label=way, color=colour)
    axes.set_xlim(0, 80)
    axes.set_xlabel("delivery latency in ms")
    axes.set_title("telemetry: share of deliveries within a time")
    axes.legend(loc="lower right")
    return figure
