"""Complete the names of requests and keys in shells."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from deedbook.cli.completing import completer

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace


def _requests(workspace: "Workspace") -> Iterable[str]:
    from deedbook.call.queue import ApprovalQueue

    with ApprovalQueue.of(workspace.state) as waiting:
        return ["last", *(pending.id for pending in waiting)]


def keys(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Return the names of this user's keys; they belong to a person, not to a workspace."""
    from deedbook.approvals.keys import KeyRing

    return [name for name in KeyRing.of(os.environ).names() if name.startswith(begun)]


requests = completer(_requests)
