"""What the commands print: data, messages, and JSON that names its version. Nothing reaches a terminal unspelled."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import Any, Final, TextIO, TypeVar

import click

from deedbook.format.errors import CODES, DomainError
from deedbook.format.terminal import plain

TAB: Final = 8
_OUT: Final[ContextVar[TextIO | None]] = ContextVar("deedbook_stdout", default=None)
DENIED: Final = 3
_MARK: Final = "deedbook_data_command"
C = TypeVar("C", bound=click.Command)


def data_command(command: C) -> C:
    """Mark a command whose standard output is for its data alone; decorate the click command with it.

    What plugins print while it runs goes to standard error, and the command writes with `say`, `write` and `as_json`.
    The subcommands of a marked group are marked, too; those that other distributions add to it mark themselves.
    """
    setattr(command, _MARK, True)
    return command


def is_data_command(command: click.Command) -> bool:
    """Say whether *command* is marked."""
    return getattr(command, _MARK, False) is True


@contextmanager
def owned() -> Iterator[None]:
    """Keep standard output for what the command says; what plugins print meanwhile goes to standard error."""
    kept = _OUT.set(stdout())
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _OUT.reset(kept)


def stdout() -> TextIO | None:
    """Return where data goes."""
    return _OUT.get() or sys.stdout


def say(text: str = "", *, nl: bool = True) -> None:
    """Write one line of data, or a part of it without *nl*; the caller has made it safe to print."""
    click.echo(text, file=stdout(), nl=nl)


def write(lines: Iterable[bytes]) -> None:
    """Write lines of data as they are."""
    stream = stdout()
    if stream is not None:
        stream.flush()
        stream.buffer.writelines(lines)


def answer(text: str) -> None:
    """Write text that came from a model, line by line."""
    for line in text.split("\n"):
        say(plain(line.removesuffix("\r").expandtabs(TAB)))


def message(text: str) -> None:
    """Write one line for people to standard error."""
    click.echo(plain(text), err=True)


def complain(text: str) -> None:
    """Write an error to standard error, one line per line of *text*."""
    mark = click.style("error:", fg="red", bold=True) if colours(sys.stderr) else "error:"
    for line in text.splitlines() or [""]:
        click.echo(f"{mark} {plain(line)}", err=True)


def worded(error: DomainError) -> str:
    """Return *error* in words, with its code; a denial says that it is one."""
    return f"{prefix(error.code)}{error} [{error.code}]"


def prefix(code: str) -> str:
    """Return what an error with the stable *code* begins with: whether it was denied, or waits for a person."""
    if code == "NEEDS_HUMAN":
        return "waits for a person: "
    known = CODES.get(code)
    return "denied: " if known and known.exit == DENIED else ""


def as_json(value: Any) -> None:
    """Write *value* as JSON, indented where a person looks on."""
    say(spelled(json.dumps(value, ensure_ascii=False, indent=2 if watched(stdout()) else None)))


def spelled(text: str) -> str:
    """Return JSON *text* with everything that a terminal could act on or hide spelled as JSON's escapes."""
    return text if text.isprintable() else "".join(map(_spelled, text))


def _spelled(char: str) -> str:
    """Return *char* as JSON may have it; what is not printable stands inside a string, but for the line breaks."""
    return char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1].replace("\x7f", "\\u007f")


def paint(text: str, colour: str) -> str:
    """Return *text* for standard output, in *colour* where a terminal wants colours."""
    return click.style(text, fg=colour, bold=True) if colours(stdout()) else text


def table(rows: Iterable[tuple[str, ...]]) -> None:
    """Write rows in columns; the last column is as wide as it likes."""
    made = [tuple(plain(cell) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*made, strict=True)] if made else []
    for row in made:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        say("  ".join([*cells, row[-1]]).rstrip())


def watched(stream: TextIO | None) -> bool:
    """Say whether a person looks at *stream*."""
    return stream is not None and stream.isatty()


def colours(stream: TextIO | None) -> bool:
    """Say whether colours are welcome: a terminal, no ``NO_COLOR`` (no-color.org), not ``TERM=dumb``."""
    return watched(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
