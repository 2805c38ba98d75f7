"""Progress messages on a terminal while a session runs."""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import click

from deedbook.contract import Event, Json, Object
from deedbook.format.event_text import describe_reason, show
from deedbook.format.families import RUN_ENDS
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


def shows_progress() -> bool:
    """Return whether to show progress: standard error is a terminal, and not a dumb one."""
    return is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"


def show_step(event: Event) -> None:
    """Show *event* if it is a step of the session."""
    step = _STEPS.get(event.type)
    if step and event.payload.get("to") not in RUN_ENDS:
        word, member = step
        _show_line(word, show(event.payload.get(member, "")))


def show_delta(delta: Json) -> None:
    """Show the ``message`` of what a handler reports during its call; it has no other effect and is not recorded."""
    if isinstance(delta, Mapping) and isinstance(text := delta.get("message"), str):
        _show_line("...", text)


def _show_line(word: str, text: str) -> None:
    width = _WIDTH
    with suppress(OSError):  # standard error may be no terminal
        width = max(width, os.get_terminal_size(sys.stderr.fileno()).columns - 10)
    line = plain(f"· {word:<6} {short(text, width)}")
    with suppress(OSError):  # the terminal may be closed; the session continues
        click.echo(click.style(line, dim=True) if wants_colours(sys.stderr) else line, err=True)


class ApprovalNotice:
    """A listener on the ledger of *session* that reports requests to a person at once, and how to answer them."""

    def __init__(self, session: str, state: Path) -> None:
        self._session, self._state = session, state

    def __call__(self, event: Event) -> None:
        """Report *event* if it is such a request."""
        if event.type == "approval.requested" and self._waits(event.payload):
            name, identity = (show(event.payload[key]) for key in ("name", "approval"))
            reason = describe_reason(event.payload)
            with suppress(OSError):
                message(plain(f"{name} waits for a person: {reason}"))
                message(f"an approver answers with: deedbook approvals approve {identity} --as NAME")

    def _waits(self, request: Object) -> bool:
        """Return whether the request is still open: one of an earlier session may be approved already."""
        from deedbook.call.queue import open_queue
        from deedbook.format.errors import DeedbookError
        from deedbook.format.events import timestamp

        if request["session"] == self._session:
            return True
        try:
            with open_queue(self._state) as waiting:
                return waiting.find(request["approval"]).state(timestamp(time.time())) == "waiting"
        except DeedbookError:
            return False
