"""Output of the commands: data, messages, and versioned JSON.

Control characters are escaped before a terminal sees them.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import click

from deedbook.format.terminal import plain

if TYPE_CHECKING:
    from deedbook.format.errors import DomainError

TAB: Final = 8
_OUT: Final[ContextVar[TextIO | None]] = ContextVar("deedbook_stdout", default=None)
DENIED: Final = 3
_MARK: Final = "deedbook_data_command"
C = TypeVar("C", bound=click.Command)


def data_command(command: C) -> C:
    """Mark a command whose standard output is for its data alone; decorate the click command with it.

    Output of plugins goes to standard error while it runs; the command writes with `say`, `write` and `as_json`.
    Subcommands of a marked group are also marked; those of other distributions mark themselves.
    """
    setattr(command, _MARK, True)
    return command


def is_data_command(command: click.Command) -> bool:
    """Return whether *command* is marked."""
    return getattr(command, _MARK, False) is True


@contextmanager
def reserve_stdout() -> Iterator[None]:
    """Reserve standard output for the command; output of plugins goes to standard error meanwhile."""
    kept = _OUT.set(stdout())
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _OUT.reset(kept)


def stdout() -> TextIO | None:
    """Return the stream for data."""
    return _OUT.get() or sys.stdout


def say(text: str = "", *, nl: bool = True) -> None:
    """Write one line of data, or a part of it without *nl*; *text* must be safe to print."""
    click.echo(text, file=stdout(), nl=nl)


def write(lines: Iterable[bytes]) -> None:
    """Write lines of data as they are."""
    stream = stdout()
    if stream is not None:
        stream.flush()
        stream.buffer.writelines(lines)


def answer(text: str) -> None:
    """Write text from a model, line by line."""
    for line in text.split("\n"):
        say(plain(line.removesuffix("\r").expandtabs(TAB)))


def message(text: str) -> None:
    """Write one line for people to standard error."""
    click.echo(plain(text), err=True)


def report_error(text: str) -> None:
    """Write an error to standard error, one line per line of *text*."""
    mark = click.style("error:", fg="red", bold=True) if wants_colours(sys.stderr) else "error:"
    for line in text.splitlines() or [""]:
        click.echo(f"{mark} {plain(line)}", err=True)


def format_error(error: "DomainError") -> str:
    """Return *error* as text with its code; it begins with what became of the call, if it was denied or waits."""
    return f"{error_prefix(error.code)}{error} [{error.code}]"


def error_prefix(code: str) -> str:
    """Return the first words of an error with the stable *code*: whether it was denied, or waits for a person."""
    from deedbook.format.errors import CODES

    if code == "NEEDS_HUMAN":
        return "waits for a person: "
    known = CODES.get(code)
    return "denied: " if known and known.exit == DENIED else ""


def as_json(value: Any) -> None:
    """Write *value* as JSON, indented on a terminal."""
    import json

    say(escape_json(json.dumps(value, ensure_ascii=False, indent=2 if is_terminal(stdout()) else None)))


def escape_json(text: str) -> str:
    """Return JSON *text* with all control and invisible characters written as JSON escapes."""
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(char: str) -> str:
    """Return *char* as JSON may hold it; unprintable characters occur only inside strings, except for line breaks."""
    import json

    return char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1].replace("\x7f", "\\u007f")


def paint(text: str, colour: str) -> str:
    """Return *text* for standard output, in *colour* if the terminal shows colours."""
    return click.style(text, fg=colour, bold=True) if wants_colours(stdout()) else text


def table(rows: Iterable[tuple[str, ...]]) -> None:
    """Write rows in columns; the last column may have any width."""
    made = [tuple(plain(cell) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*made, strict=True)] if made else []
    for row in made:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        say("  ".join([*cells, row[-1]]).rstrip())


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether *stream* is a terminal."""
    return stream is not None and stream.isatty()


def wants_colours(stream: TextIO | None) -> bool:
    """Return whether to use colours: a terminal, no ``NO_COLOR`` (no-color.org), not ``TERM=dumb``."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
