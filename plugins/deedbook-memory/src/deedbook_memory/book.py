"""The memory of a workspace, read from its ledger and kept up to date by `refresh`; the store caches it.

A reader writes neither the store nor the ledger. If the store is absent, damaged, behind or of another ledger, the
whole ledger is read.
"""

from collections.abc import Iterator
from pathlib import Path
from threading import RLock
from typing import Any, Final, Self

from deedbook.contract import Event
from deedbook.format.errors import LedgerError
from deedbook.format.events import EXCISED_KEY, first_workspace_hash, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import Follower
from deedbook.format.sealed import open_values
from deedbook.format.tail import lines_from_end

from .recall import FAMILY, Change, Memory, Slot
from .recall import EntryName as Which
from .store import FoldPosition, StoredMemory, load_store, render_store, save_store

WORKSPACE: Final = "workspace"
ERASED: Final = "erased"


class MemoryBook:
    """The memory of a *state* folder; with *saves*, `close` saves a changed store; *afresh* ignores the store.

    Raises `MemoryRefused` if the store is of a later form, and `FileNotFoundError` if there is no ledger.
    """

    def __init__(self, state: Path, *, saves: bool = False, afresh: bool = False) -> None:
        self.state = state
        self._saves = saves
        self._lock = RLock()
        with Folder.at(state) as folder:
            self.stored = load_store(folder)
        self._folder = Folder.at(state / WORKSPACE)
        self.place, self.memory = FoldPosition("", -1, "", 0), Memory()
        try:
            place = f"{self._folder.path}/{LEDGER_FILE}"
            if not afresh and self._matches_ledger(self.stored, place):
                assert self.stored.memory
                assert self.stored.place
                self.memory, self.place = self.stored.memory, self.stored.place
            self._begin()
        except BaseException:
            self._folder.close()
            raise
        self._saved = self.place
        try:
            self.refresh()
        except BaseException:
            self._follow.close()
            self._folder.close()
            raise

    def refresh(self) -> None:
        """Apply the new events; raises `LedgerError` for a line that was changed."""
        with self._lock:
            self._apply()
            if self._file.closed:  # another file replaced the ledger: excised values must not stay in memory
                self._follow.close()
                self.place, self.memory = FoldPosition("", -1, "", 0), Memory()
                self._begin()
                self._apply()

    def _begin(self) -> None:
        self._file = self._folder.open(LEDGER_FILE)
        place = f"{self._folder.path}/{LEDGER_FILE}"
        head = self.place.head or first_workspace_hash
        self._follow = Follower(self._file, start=self.place.end, place=place, gaps=True, head=head)

    def _apply(self) -> None:
        for line in self._follow():
            if line.event_type.startswith(FAMILY):
                self.memory.apply(line.event)
            self.place = FoldPosition(line.session_id, line.seq, line.envelope_hash, self._follow.end)

    def get_slot(self, name: Which) -> Slot:
        """Return the current state of a key."""
        with self._lock:
            return self.memory.get_slot(name)

    def list_entries(self, persona: str | None, zone: str) -> list[tuple[str, Slot]]:
        """Return the keys of a zone that have content, in order."""
        with self._lock:
            return list(self.memory.list_entries(persona, zone))

    def describe(self, name: Which, slot: Slot) -> dict[str, Any]:
        """Return an entry for display with sealed values opened; ``erased`` if they are gone."""
        content = slot.content or {}
        described = {
            "persona": name.persona,
            "zone": name.zone,
            "key": name.key,
            "version": slot.version,
            **describe_change(content),
        }
        try:
            entry = open_values(self._folder, content["entry"])
        except (FileNotFoundError, LedgerError):
            return {**described, ERASED: True}
        if EXCISED_KEY in entry:
            return {**described, ERASED: True}
        described["value"] = entry.get("value", entry)
        described |= {part: entry[part] for part in ("provenance", "reason") if part in entry}
        return described

    def rebuild(self) -> str:
        """Write the store again and return its SHA-256."""
        with self._lock, Folder.at(self.state) as folder:
            self.refresh()
            self._saved = self.place
            return save_store(folder, self.memory, self.place)

    def render(self) -> bytes:
        """Return the store's bytes for the current memory."""
        with self._lock:
            return render_store(self.memory, self.place)

    def close(self) -> None:
        """Close the files; may be called twice."""
        with self._lock:
            try:
                if self._saves and self.place != self._saved:
                    self.rebuild()
            finally:
                self._saves = False
                self._follow.close()
                self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _matches_ledger(self, found: StoredMemory, place: str) -> bool:
        """Return whether the ledger has the store's last line at the store's position."""
        if found.place is None:
            return False
        with self._folder.open(LEDGER_FILE) as file:
            size = file.seek(0, 2)
            if not 0 < found.place.end <= size:
                return False
            _, raw = next(lines_from_end(file.fileno(), found.place.end, place=place), (0, b""))
        try:
            line = split_line(raw, place=place)
        except LedgerError:
            return False
        stands = (line.session_id, line.seq, line.envelope_hash)
        return raw.endswith(b"\n") and (line.sound or line.is_excised) and stands == found.place[:3]


def describe_change(content: Any) -> dict[str, Any]:
    """Return the position of an entry or a change, and who proposed it, for display."""
    by = content.get("by") if isinstance(content.get("by"), dict) else {}
    links = {part: content[part] for part in ("proposal", "session", "span", "trace_id", "source") if part in content}
    return {"at": content["ts"], "seq": content["seq"], **links, **({"by": by.get("id", by)} if by else {})}


def read_history(state: Path) -> Iterator[Change]:
    """Yield every change of the memory, in order, from the whole ledger, each line checked.

    Raises `LedgerError` (``LEDGER_UNSOUND``) for a line that was changed.
    """
    memory = Memory()
    for event in _read_events(state):
        change = memory.apply(event)
        if change is not None:
            yield change


def _read_events(state: Path) -> Iterator[Event]:
    with Folder.at(state / WORKSPACE) as folder:
        place = f"{folder.path}/{LEDGER_FILE}"
        follow = Follower(folder.open(LEDGER_FILE), place=place, gaps=True, head=first_workspace_hash)
    try:
        yield from (line.event for line in follow() if line.event_type.startswith(FAMILY))
    finally:
        follow.close()
