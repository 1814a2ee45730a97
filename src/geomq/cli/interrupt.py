"""Ctrl-C while a command computes: one line and the exit code of a program that was interrupted."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

INTERRUPTED = 130


@contextmanager
def quiet_interrupt() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        click.echo("geomq: interrupted", err=True)
        sys.exit(INTERRUPTED)
