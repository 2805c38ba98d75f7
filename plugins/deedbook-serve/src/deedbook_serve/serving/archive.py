"""Sessions as their ledgers hold them, also after their end, or after that of the process that had them."""

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


class Archive:
    """The sessions of a *state* folder."""

    def __init__(self, state: Folder) -> None:
        self._state = state

    def events(self, session: str) -> Iterator[Event]:
        """Yield the events of a session, with what was sealed opened where that is kept; raises `DeedbookError`."""
        with self._state.sub(f"sessions/{session}") as folder:
            for event in read(folder):
                yield attrs.evolve(event, payload=_opened(folder, event.payload))

    def owner(self, session: str) -> str | None:
        """Return the id of the principal that opened a session; ``None`` if there is none of that name."""
        with suppress(FileNotFoundError, DeedbookError, KeyError, TypeError, AttributeError):
            for event in self.events(session):
                who: Any = event.payload["principal"]
                owner: str = who["on_behalf_of"] if who["id"].startswith(_AGENT) else who["id"]
                return owner
        return None


def _opened(folder: Folder, payload: Any) -> Any:
    with suppress(DeedbookError, OSError):
        return open_values(folder, payload)
    return payload
