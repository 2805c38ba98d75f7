"""What runs in a workspace: open sessions and processes, whether a freeze covers them, and their unfinished calls."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.charter.store import Store
from deedbook.contract import Event
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.folds import NAMED_BY
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import list_sessions, read
from deedbook.ledger.recovery import intents_without_outcome
from deedbook.maintenance.processes import read_processes
from deedbook.policy.charter import Charter

from .freezes import Freeze

_PLUGIN: Final = "feature/freeze"
_NAMES: Final = ("session.start", "session.resumed")


@attrs.frozen
class OpenSession:
    """A session that a living process writes; *charter* is empty if it is not known yet."""

    id: str
    charter: str
    principals: tuple[str | None, ...]
    events: Sequence[Event]

    def running_calls(self, freeze: Freeze) -> Iterator[dict[str, str]]:
        """Yield its calls with an intent and no outcome that *freeze* covers."""
        for intent in intents_without_outcome(self.events):
            name = intent.payload.get(NAMED_BY[intent.type.partition(".")[0]])
            shown = name if isinstance(name, str) else "[sealed]"
            if freeze.covers((*self.principals, intent.principal), shown):
                who = intent.principal or ""
                yield {"session": self.id, "span": intent.span, "name": shown, "principal": who, "since": intent.ts}


def read_open_sessions(state: Folder) -> list[OpenSession]:
    """Return the open sessions in a *state* folder."""
    return [_read(state, each.id) for each in list_sessions(state) if each.state == "open"]


def _read(state: Folder, name: str) -> OpenSession:
    try:
        events = list(read(Path(state.path, "sessions", name, LEDGER_FILE)))
    except (DeedbookError, OSError):  # a damaged one cannot be covered for certain
        events = []
    charter, principals = "", list[str | None]()
    for event in events:
        if event.type in _NAMES and isinstance(event.payload.get("charter"), str):
            charter = event.payload["charter"]
        who = event.payload.get("principal") if event.type == "session.start" else None
        if isinstance(who, dict):
            principals = [who.get("id"), who.get("on_behalf_of")]
    return OpenSession(name, charter, tuple(principals), events)


class Charters:
    """The charters that a *state* folder keeps."""

    def __init__(self, state: Folder) -> None:
        self._store = Store(state)
        self._known: dict[str, Charter | None] = {}

    def find(self, digest: str) -> Charter | None:
        """Return a charter, or ``None`` if it cannot be read."""
        if digest not in self._known:
            try:
                self._known[digest] = self._store.find(digest)
            except (DeedbookError, OSError):
                self._known[digest] = None
        return self._known[digest]

    def has_feature(self, digest: str) -> bool:
        """Return whether calls under the charter check the freezes."""
        found = self.find(digest) if digest else None
        return found is not None and _PLUGIN in found.document["plugins"]

    def current(self) -> Charter | None:
        """Return the charter that was last in force, if it is known."""
        digest = self._store.current()
        return self.find(digest) if digest else None


def find_uncovered(state: Folder, sessions: Sequence[OpenSession], charters: Charters) -> Iterator[str]:
    """Yield the open sessions and living processes under charters without the feature, for people."""
    for each in sessions:
        if not charters.has_feature(each.charter):
            yield f"session {each.id}"
    told: Any = read_processes(state)
    for process in told.processes.values():
        if process.state == "running" and not charters.has_feature(process.charter):
            yield f"process {process.pid} ({process.id[:8]})"
