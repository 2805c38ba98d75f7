"""Names for shell completion, read from files alone. Errors give no names and no message."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

import click

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.workspace.declarations import Workspace

VARIABLE: Final = "_DEEDBOOK_COMPLETE"
"""The environment variable that a shell's completion script sets."""

Names: TypeAlias = Callable[["Workspace"], Iterable[str]]
Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


def completer(names: Names) -> Completer:
    """Return a completer for the *names* of a workspace."""

    def complete(ctx: click.Context, _: click.Parameter, begun: str) -> list[str]:
        from deedbook.workspace.workspace import read_workspace

        place = ctx.find_root().params.get("workspace") or "."
        try:
            return sorted(name for name in names(read_workspace(place)) if name.startswith(begun))
        except Exception:  # noqa: BLE001 - completion must not print errors
            return []

    return complete


def _sessions(workspace: "Workspace") -> Iterable[str]:
    folder: Path = workspace.state / "sessions"
    return ["last", *(place.name for place in folder.glob("*") if place.is_dir())]


abilities = completer(lambda workspace: workspace.abilities)
clients = completer(lambda workspace: workspace.clients)
hooks = completer(lambda workspace: workspace.hooks)
principals = completer(lambda workspace: workspace.principals)
profiles = completer(lambda workspace: workspace.profiles)
approvers = completer(lambda place: [name for name, who in place.principals.items() if "approver" in who.roles])
sessions = completer(_sessions)
