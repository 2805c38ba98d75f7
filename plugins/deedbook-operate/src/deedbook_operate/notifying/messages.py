"""What a notification says: which requests wait, what is frozen or thawed, and how to look at it.

A message has no more of a call than `deedbook approvals list` shows, and nothing that would answer a request.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from deedbook.contract import Event, Object
from deedbook.format.event_text import describe_reason, show
from deedbook.format.terminal import plain

MAX_SHOWN: Final = 20
"""How many requests one message names."""
_LONGEST: Final = 300


@attrs.frozen
class Message:
    """A message: one line as *subject*, the whole *text*, and the same as *data*; *id* is the same when sent again."""

    id: str
    subject: str
    text: str
    data: Object


def build_message(identity: str, workspace: str, requests: Sequence[Event], freezes: Sequence[Event]) -> Message:
    """Return the message about *requests* that wait and changes of *freezes* in *workspace*; one of them is there."""
    rows = [_request(each.payload) for each in requests]
    changes = [_change(each) for each in freezes]
    subject = f"Deedbook {workspace}: {', '.join(_counts(rows, changes))}"
    lines = [subject, *(line for each in changes for line in _change_lines(each))]
    lines += [line for row in rows[:MAX_SHOWN] for line in _request_lines(row)]
    if len(rows) > MAX_SHOWN:
        lines.append(f"… and {len(rows) - MAX_SHOWN} more: deedbook approvals list")
    data = {"schema_version": "v1", "id": identity, "workspace": workspace, "requests": rows, "changes": changes}
    return Message(identity, subject, "\n".join(lines), data)


def _request(payload: Any) -> dict[str, str]:
    """Return what the list of approvals shows of a request, and the hash of everything that an approver sees."""
    principal = payload["principal"]
    who = principal["id"] if isinstance(principal, dict) and "id" in principal else principal
    told = {name: payload[name] for name in ("approval", "name", "reason", "session", "requested", "expires", "shown")}
    told |= {"principal": who, "reason": describe_reason(payload)}
    return {name: _short(show(value)) for name, value in told.items()}


def _request_lines(row: Object) -> Iterator[str]:
    yield f"- {row['name']}, asked by {row['principal']}: {row['reason']}"
    yield f"  expires {row['expires']}; digest of what is shown {row['shown']}"
    yield f"  look at it: deedbook approvals show {row['approval']}"


def _change(event: Event) -> dict[str, Any]:
    payload = event.payload
    frozen = event.type.endswith("frozen")
    rows = payload.get("freezes" if frozen else "lifted", ())  # absent where the payload was excised
    names = ("agent", "ability", "reason", "by", "at")
    freezes = [{name: _short(show(row[name])) for name in names} for row in rows if isinstance(row, dict)]
    more = {"running": len(payload.get("running", ()))} if frozen else {}
    return {"change": "frozen" if frozen else "thawed", "by": show(payload.get("by", "")), "freezes": freezes, **more}


def _change_lines(change: Object) -> Iterator[str]:
    for row in change["freezes"]:
        what = (
            f"agent {row['agent']}" if row["agent"] else f"ability {row['ability']}" if row["ability"] else "all calls"
        )
        if change["change"] == "thawed":
            yield f"- thawed by {change['by']}: {what}"
        else:
            yield f"- frozen by {row['by']} since {row['at']}: {what}: {row['reason']}"
    if count := change.get("running"):
        yield f"  {count} {'call' if count == 1 else 'calls'} began before, and still ran"
    yield "  look at it: deedbook freeze"


def _counts(rows: Sequence[Object], changes: Sequence[Object]) -> Iterator[str]:
    if changes:
        yield str(changes[-1]["change"])
    if rows:
        yield f"{len(rows)} {'request waits' if len(rows) == 1 else 'requests wait'} for a person"


def _short(text: str) -> str:
    shown = plain(text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
