"""Which sessions of coding agents a workspace's ledger tells of, and when each agent called last."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from deedbook.format.errors import DeedbookError
from deedbook.format.events import split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.tail import lines_from_end

TEST: Final = "deedbook-test-"
"""What the name of an agent's session begins with where `deedbook bridge test` made it."""
_MARK: Final = b'"event_type":"bridge.session"'
_AT_THE_END: Final = ("session.end", "tool.error")
"""What the runtime writes by itself when it closes a session."""
_LATEST: Final = 20


class Begun(NamedTuple):
    """One session that an agent began: when, on whose behalf, its own name for it, and ours."""

    ts: str
    agent: str
    on_behalf_of: str
    agent_session: str
    session_id: str


def begun(place: Path) -> Iterator[Begun]:
    """Yield the agents' sessions of the workspace ledger at *place*, oldest first; other lines are not taken apart."""
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        for line in file:
            if _MARK in line and line.endswith(b"\n"):
                event = split_line(line).event
                who = [str(event.payload.get(name)) for name in ("agent", "on_behalf_of", "agent_session")]
                yield Begun(event.ts, who[0], who[1], who[2], str(event.payload["session_id"]))


def last_calls(state: Path) -> dict[str, str]:
    """Return when each agent's hook called last, of its latest sessions; tests do not count."""
    found: dict[str, list[Begun]] = {}
    try:
        for each in begun(state / "workspace" / LEDGER_FILE):
            if not each.agent_session.startswith(TEST):
                found.setdefault(each.agent, []).append(each)
    except FileNotFoundError:
        return {}
    return {agent: max(_last(state, each) for each in all_[-_LATEST:]) for agent, all_ in found.items()}


def _last(state: Path, session: Begun) -> str:
    """Return when the last event of a session was recorded that an agent caused; else when it began."""
    place = f"sessions/{session.session_id}/{LEDGER_FILE}"
    try:
        with Folder.at(state) as folder, folder.open(place) as file:
            end = os.fstat(file.fileno()).st_size
            for _, line in lines_from_end(file.fileno(), end, place=place):
                event = split_line(line) if line.endswith(b"\n") else None
                if event is not None and event.event_type not in _AT_THE_END:
                    return max(session.ts, event.ts)
    except (DeedbookError, OSError):
        pass
    return session.ts
