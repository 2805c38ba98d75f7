"""The sessions of coding agents in a workspace's ledger, and the last call of each agent."""

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
"""The prefix of the name of a session that `deedbook bridge test` makes."""
_MARK: Final = b'"event_type":"bridge.session"'
_CLOSING_EVENTS: Final = ("session.end", "tool.error")
"""Events that the runtime writes itself when it closes a session."""
_LATEST: Final = 20


class AgentSession(NamedTuple):
    """One session of an agent: its start, its principal, the agent's name for it, and ours."""

    ts: str
    agent: str
    on_behalf_of: str
    agent_session: str
    session_id: str


def read_sessions(place: Path) -> Iterator[AgentSession]:
    """Yield the agents' sessions of the workspace ledger at *place*, oldest first; other lines are not parsed."""
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        for line in file:
            if _MARK in line and line.endswith(b"\n"):
                event = split_line(line).event
                who = [str(event.payload.get(name)) for name in ("agent", "on_behalf_of", "agent_session")]
                yield AgentSession(event.ts, who[0], who[1], who[2], str(event.payload["session_id"]))


def find_last_calls(state: Path) -> dict[str, str]:
    """Return the time of the last call of each agent's hooks, from its latest sessions; tests do not count."""
    sessions: dict[str, list[AgentSession]] = {}
    try:
        for each in read_sessions(state / "workspace" / LEDGER_FILE):
            if not each.agent_session.startswith(TEST):
                sessions.setdefault(each.agent, []).append(each)
    except FileNotFoundError:
        return {}
    return {
        agent: max(_find_last_activity(state, each) for each in all_[-_LATEST:]) for agent, all_ in sessions.items()
    }


def _find_last_activity(state: Path, session: AgentSession) -> str:
    """Return the time of the last event that an agent caused in a session, or else of the session's start."""
    place = f"sessions/{session.session_id}/{LEDGER_FILE}"
    try:
        with Folder.at(state) as folder, folder.open(place) as file:
            end = os.fstat(file.fileno()).st_size
            for _, line in lines_from_end(file.fileno(), end, place=place):
                event = split_line(line) if line.endswith(b"\n") else None
                if event is not None and event.event_type not in _CLOSING_EVENTS:
                    return max(session.ts, event.ts)
    except (DeedbookError, OSError):
        pass
    return session.ts
