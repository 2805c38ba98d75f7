"""What is shown while a session runs, to a person who looks on."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import click

from deedbook.contracts import Event
from deedbook.story import show
from deedbook.terminal import plain, short

from .output import colours, watched

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


def moving() -> bool:
    """Say whether somebody looks on: standard error is a terminal, and not a dumb one."""
    return watched(sys.stderr) and os.environ.get("TERM") != "dumb"


def tell(event: Event) -> None:
    """Show where a session is, if *event* is a step of it."""
    step = _STEPS.get(event.type)
    if step:
        word, member = step
        line = plain(f"· {word:<6} {short(show(event.payload.get(member, '')), _WIDTH)}")
        with suppress(OSError):  # nobody may be looking any more; the session goes on
            click.echo(click.style(line, dim=True) if colours(sys.stderr) else line, err=True)
