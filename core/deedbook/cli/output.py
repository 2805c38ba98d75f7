"""What the commands print: data, messages, and JSON that names its version."""

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

import click

from deedbook.errors import CODES, DomainError
from deedbook.terminal import plain


def say(text: str = "") -> None:
    """Write one line of data; the caller has made it safe to print."""
    click.echo(text, color=None if colours() else False)


def message(text: str) -> None:
    """Write one line for people to standard error."""
    click.echo(plain(text), err=True)


def complain(text: str) -> None:
    """Write an error to standard error, one line per line of *text*."""
    for line in text.splitlines() or [""]:
        mark = click.style("error:", fg="red", bold=True) if colours(sys.stderr) else "error:"
        click.echo(f"{mark} {plain(line)}", err=True)


def as_json(value: Any) -> None:
    """Write *value* as JSON; indented where a person looks on."""
    click.echo(json.dumps(value, ensure_ascii=not sys.stdout.isatty(), indent=2 if sys.stdout.isatty() else None))


def refused(error: DomainError) -> int:
    """Say why there is no result; return the exit status for it."""
    known = CODES.get(error.code)
    status = known.exit if known else 1
    denied = 3
    complain(f"{'denied: ' if status == denied else ''}{error} [{error.code}]")
    return status


def table(rows: Iterable[tuple[str, ...]]) -> None:
    """Write rows in columns; the last column is as wide as it likes."""
    made = [tuple(plain(cell) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*made, strict=True)] if made else []
    for row in made:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        say("  ".join([*cells, row[-1]]).rstrip())


def colours(stream: Any = None) -> bool:
    """Say whether colours are welcome: a terminal, no ``NO_COLOR`` (no-color.org), not ``TERM=dumb``."""
    target = stream or sys.stdout
    return target.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
