"""Sessions read from their ledgers, also after their end or after the end of their process."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import attrs

from deedbook.contract import Event
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.reader import read
from deedbook.format.sealed import open_values

_AGENT = "agent:"


class SessionArchive:
    """The sessions of a *state* folder."""

    def __init__(self, state: Folder) -> None:
        self._state = state

    def read_events(self, session: str) -> Iterator[Event]:
        """Yield the events of a session with sealed values opened if they exist; raises `DeedbookError`."""
        with self._state.sub(f"sessions/{session}") as folder:
            for event in read(folder):
                yield attrs.evolve(event, payload=_open_sealed(folder, event.payload))

    def find_owner(self, session: str) -> str | None:
        """Return the id of the principal that opened a session; ``None`` if there is no such session."""
        with suppress(FileNotFoundError, DeedbookError, KeyError, TypeError, AttributeError):
            for event in self.read_events(session):
                who: Any = event.payload["principal"]
                owner: str = who["on_behalf_of"] if who["id"].startswith(_AGENT) else who["id"]
                return owner
        return None


def _open_sealed(folder: Folder, payload: Any) -> Any:
    with suppress(DeedbookError, OSError):
        return open_values(folder, payload)
    return payload
