"""Progress messages on a terminal while a session runs."""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self, TypeVar

import click

from deedbook.contract import Event, Object
from deedbook.format.event_text import show
from deedbook.format.terminal import plain, short

from .output import is_terminal, message, wants_colours

_STEPS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "skill.invoke": ("skill", "skill"),
        "agent.transition": ("role", "to"),
        "tool.call": ("tool", "tool_name"),
        "tool.error": ("failed", "message"),
        "tool.denied": ("denied", "name"),
        "llm.error": ("failed", "message"),
    }
)
_WIDTH: Final = 70
_EVERY: Final = 0.2
_OFTEN: Final = 20_000
_SECONDS: Final = 0.5
T = TypeVar("T")


def shows_progress() -> bool:
    """Return whether to show progress: standard error is a terminal, and not a dumb one."""
    return is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"


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


def show_step(event: Event) -> None:
    """Show *event* if it is a step of the session."""
    step = _STEPS.get(event.type)
    if step:
        word, member = step
        line = plain(f"· {word:<6} {short(show(event.payload.get(member, '')), _WIDTH)}")
        with suppress(OSError):  # the terminal may be closed; the session continues
            click.echo(click.style(line, dim=True) if wants_colours(sys.stderr) else line, err=True)


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


class ApprovalNotice:
    """A listener on the ledger of *session* that reports requests to a person at once, and how to answer them."""

    def __init__(self, session: str, state: Path) -> None:
        self._session, self._state = session, state

    def __call__(self, event: Event) -> None:
        """Report *event* if it is such a request."""
        if event.type == "approval.requested" and self._waits(event.payload):
            name, reason, identity = (show(event.payload[key]) for key in ("name", "reason", "approval"))
            with suppress(OSError):
                message(plain(f"{name} waits for a person: {reason}"))
                message(f"an approver answers with: deedbook approvals approve {identity} --as NAME")

    def _waits(self, request: Object) -> bool:
        """Return whether the request is still open: one of an earlier session may be approved already."""
        from deedbook.approvals.answering import open_queue
        from deedbook.format.errors import DeedbookError
        from deedbook.format.events import timestamp

        if request["session"] == self._session:
            return True
        try:
            with open_queue(self._state) as waiting:
                return waiting.find(request["approval"]).state(timestamp(time.time())) == "waiting"
        except DeedbookError:
            return False
