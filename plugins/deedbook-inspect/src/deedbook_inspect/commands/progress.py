"""A counter on the terminal for commands that read many lines."""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, Self, TypeVar

import click

from deedbook.cli.progress import shows_progress

_OFTEN: Final = 20_000
_SECONDS: Final = 0.5
T = TypeVar("T")


class ProgressCounter:
    """Shows the number of processed items on one line of a terminal, and removes the line at the end."""

    def __init__(self, what: str) -> None:
        self._what, self._count, self._shown = what, 0, time.monotonic()
        self._visible = shows_progress()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line."""
        if self._visible and self._count >= _OFTEN:
            self._write("\r\x1b[K")

    def __call__(self, things: Iterable[T]) -> Iterator[T]:
        """Yield *things* and count them."""
        if not self._visible:
            yield from things
            return
        for thing in things:
            self._count += 1
            if not self._count % _OFTEN and time.monotonic() - self._shown >= _SECONDS:
                self._shown = time.monotonic()
                self._write(f"\r{self._count:,} {self._what}\x1b[K")
            yield thing

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be closed
            click.echo(text, err=True, nl=False)
