"""The progress of verification on the terminal."""

import time
from contextlib import suppress
from typing import Final, Self

import click

from deedbook.cli.progress import shows_progress

_EVERY: Final = 0.2


class ReadProgress:
    """Shows how much of *total* bytes was read, on one line of a terminal; use it as a context."""

    def __init__(self, total: int) -> None:
        self._total, self._read, self._said = max(total, 1), 0, time.monotonic()
        self._shown = False

    def __call__(self, size: int) -> None:
        """Add *size* bytes that were read."""
        self._read += size
        now = time.monotonic()
        if now - self._said >= _EVERY and shows_progress():
            self._said, self._shown = now, True
            self._show(f"verifying: {min(100, 100 * self._read // self._total)} % of {_format_size(self._total)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._show("")

    def _show(self, text: str) -> None:
        with suppress(OSError):
            click.echo(f"\r{text}\x1b[K", err=True, nl=False)


def _format_size(size: int) -> str:
    """Return a number of bytes in KiB or MiB."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{max(size >> 10, 1)} KiB"
