"""The position up to which a collector has received events, in a file: written only after a batch was accepted."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs
import click

__all__ = ["Cursor", "CursorPosition", "find_cursor"]

_VERSION: Final = "v1"
_PRIVATE: Final = 0o600


@attrs.frozen
class CursorPosition:
    """The last sent event of a session's ledger: its number, and the hash of its line."""

    seq: int
    hash: str


def find_cursor(state: Path, endpoint: str, *, contents: bool) -> Path:
    """Return the path of the cursor of one collector, beside the ledgers."""
    digest = sha256(f"{endpoint}\n{contents}".encode()).hexdigest()[:16]
    return state / "sinks" / f"otel-{digest}.json"


class Cursor:
    """The cursor in one file, locked by one process."""

    def __init__(self, place: Path | None) -> None:
        self._place = place
        self._positions: dict[str, CursorPosition] = {}

    @classmethod
    @contextmanager
    def open(cls, place: Path | None) -> "Iterator[Cursor]":
        """Lock the cursor at *place* (``None``: one that is not saved); raises `click.ClickException`."""
        if place is None:
            yield cls(None)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_suffix(".lock").open("w") as lock:
            try:
                flock(lock, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                raise click.ClickException(f"{place} is used by another process") from None
            cursor = cls(place)
            cursor._read()
            yield cursor

    def get(self, session: str) -> CursorPosition | None:
        """Return the last sent position of *session*."""
        return self._positions.get(session)

    def reset(self) -> None:
        """Remove all positions."""
        self._positions = {}

    def move(self, session: str, seq: int, hash_: str) -> None:
        """Set the position of *session*; `save` writes it."""
        self._positions[session] = CursorPosition(seq, hash_)

    def save(self) -> None:
        """Write the file atomically and durably."""
        if self._place is None:
            return
        document = {name: [each.seq, each.hash] for name, each in self._positions.items()}
        temporary = self._place.with_suffix(".new")
        with open(temporary, "w", opener=lambda path, flags: os.open(path, flags, _PRIVATE)) as file:
            json.dump({"schema_version": _VERSION, "sessions": document}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._place)

    def _read(self) -> None:
        assert self._place is not None
        with suppress(FileNotFoundError):
            try:
                document = json.loads(self._place.read_bytes())
                assert document["schema_version"] == _VERSION
                self._positions = {
                    name: CursorPosition(int(seq), str(hash_)) for name, (seq, hash_) in document["sessions"].items()
                }
            except (ValueError, KeyError, TypeError, AttributeError, AssertionError):
                why = "is no cursor of this program; take it away to send everything again"
                raise click.ClickException(f"{self._place} {why}") from None
