"""What several commands share: options, and beginning a session."""

from typing import Any

import click

from deedbook.errors import Err
from deedbook.kernel import LOCAL, Kernel
from deedbook.session import Session

from .output import message, refused

json_option = click.option("--json", "as_json_", is_flag=True, help="Print JSON with a versioned schema.")
profile_option = click.option("--profile", metavar="NAME", help="Use this profile instead of the workspace's own.")
principal_option = click.option("--as", "principal", metavar="NAME", help="Act for this declared principal.")


def begin(kernel: Kernel, purpose: str, principal: str | None) -> Session | int:
    """Begin a session for *principal*; the exit status if it is refused."""
    who = kernel.principal(principal) if principal else LOCAL
    begun = kernel.session(purpose, principal=who)
    return refused(begun.error) if isinstance(begun, Err) else begun.value


def announce(kernel: Kernel) -> None:
    """Say what changed in the charter since it was last in force."""
    changes = kernel.opened.changes
    for way, texts in (("looser", changes.looser), ("tighter", changes.tighter)):
        for text in texts:
            message(f"charter {way}: {text}")


def place_of(kernel: Kernel, session: Session) -> str:
    """Return where a session's ledger is, relative to the workspace if it is inside."""
    place = kernel.workspace.state / "sessions" / session.id / ".events.jsonl"
    root = kernel.workspace.root
    return str(place.relative_to(root) if place.is_relative_to(root) else place)


def summary(kernel: Kernel, session: Session, **more: Any) -> dict[str, Any]:
    """Return what every command that acts prints as JSON."""
    return {"schema_version": "v1", "session": session.id, "ledger": place_of(kernel, session), **more}
