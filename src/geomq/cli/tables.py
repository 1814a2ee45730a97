"""Tables for people, in which no name and no number is ever cut.

Owns what becomes of a table that is wider than the terminal: columns that can be spared go, one after the other, and a
line says which; if what is left is still too wide, each row becomes a record with a line for every value. Where nobody
sits at a terminal, everything is printed, however wide.
"""

import shutil
import sys
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import click

from geomq.broker.operations.logs import printable

GAP = "  "


class Table(NamedTuple):
    """Rows of text under their headers. `left` are the columns of words, the others are numbers; `spare` are those that
    a narrow terminal goes without, the first to go first."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[str]
    spare: Sequence[str] = ()
    title: str = ""
    caption: str = ""


def show(table: Table) -> None:
    """Print a table as wide as the terminal allows."""
    click.echo("\n".join(lines_of(table, _terminal_width())))


def lines_of(table: Table, width: int | None) -> list[str]:
    """The lines of a table on so many columns of a terminal; without a number, all there is."""
    shown, gone = _fitted(table, width)
    said = [table.caption] if table.caption else []
    if gone:
        said.append(f"Not shown on {width} columns: {', '.join(gone)}; a wider terminal or --json has them.")
    body = _grid(shown) if width is None or _width(shown) <= width else _records(table)
    return [*([printable(table.title)] if table.title else []), *body, *map(printable, said)]


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _fitted(table: Table, width: int | None) -> tuple[Table, list[str]]:
    """The table without the columns it has to spare, and their names; whole if that would not help."""
    shown, gone = table, list[str]()
    spare = [name for name in table.spare if name in table.headers]
    while width is not None and _width(shown) > width and spare:
        gone.append(spare.pop(0))
        kept = [number for number, name in enumerate(table.headers) if name not in gone]
        rows = [[row[number] for number in kept] for row in table.rows]
        shown = table._replace(headers=[table.headers[number] for number in kept], rows=rows)
    return (shown, gone) if width is None or _width(shown) <= width else (table, [])


def _widths(table: Table) -> list[int]:
    columns = zip(table.headers, *table.rows, strict=True)
    return [max(cells(printable(value)) for value in column) for column in columns]


def _width(table: Table) -> int:
    return sum(_widths(table)) + len(GAP) * (len(table.headers) - 1)


def _grid(table: Table) -> list[str]:
    widths = _widths(table)
    ruled = [GAP.join("─" * width for width in widths)]
    return [_line(table, table.headers, widths), *ruled, *(_line(table, row, widths) for row in table.rows)]


def _line(table: Table, values: Sequence[str], widths: list[int]) -> str:
    padded = []
    for name, value, width in zip(table.headers, map(printable, values), widths, strict=True):
        room = " " * (width - cells(value))
        padded.append(value + room if name in table.left else room + value)
    return GAP.join(padded).rstrip()


def _records(table: Table) -> list[str]:
    """Each row with a line for every value, under its name."""
    names = max(cells(name) for name in table.headers[1:])
    lines = []
    for first, *others in table.rows:
        lines.append(printable(first))
        for name, value in zip(table.headers[1:], others, strict=True):
            lines.append(f"  {name}{' ' * (names - cells(name))}  {printable(value)}".rstrip())
    return lines


def cells(text: str) -> int:
    """How many columns of a terminal a text takes: two for wide letters, none for marks on the letter before."""
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text
    )
