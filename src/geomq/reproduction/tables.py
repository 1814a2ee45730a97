"""Markdown tables, written in one way."""

from collections.abc import Sequence


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table, its first column to the left and numbers to the right."""
    lines = [_line(head), "|---|" + "---:|" * (len(head) - 1), *map(_line, rows)]
    return "\n".join(lines) + "\n"


def titled_table(title: str, head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A table under a heading; nothing if it has no rows."""
    return f"### {title}\n\n{table(head, rows)}" if rows else ""


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"
