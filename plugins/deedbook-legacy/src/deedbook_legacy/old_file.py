"""The file of an old ledger, read line by line and as often as needed: each time it has to be the same bytes."""

import io
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from deedbook.format.errors import FileRefused, LedgerError, fault
from deedbook.format.events import FORMAT, MAX_PAYLOAD
from deedbook.format.files import Folder
from deedbook.format.lines import Lines
from deedbook.format.reader import SessionSummary
from deedbook_audit.report import Report
from deedbook_audit.upcasting.reader import old_sessions
from deedbook_audit.upcasting.recognition import require_form
from deedbook_audit.verification.older import verify_older

MAX_BYTES: Final = 1024 * 1024 * 1024
"""The largest file that is taken in."""

_LONGEST: Final = MAX_PAYLOAD + 1024
_BLOCK: Final = 1 << 17


class OldFile:
    """An old ledger's *file*, which messages call *name*; hold it as a context. *form* says which form it has.

    `verify` reads the whole file and notes its SHA-256. Whatever is read after that has to have the same hash, so that
    what is recorded of a file and what is kept of it are about the same bytes.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self.form = _old_form(file, name)
        self.sha256 = ""
        self._file = file

    @classmethod
    def open(cls, place: Path) -> Self:
        """Open the file at *place*.

        Raises `FileNotFoundError`, `FileRefused`, and `LedgerError`: ``NOT_A_LEDGER`` for what is no ledger,
        ``IMPORT_REFUSED`` for one of the present form.
        """
        with Folder.at(place.parent) as folder:
            file = folder.open(place.name)
        try:
            return cls(file, str(place))
        except BaseException:
            file.close()
            raise

    def __enter__(self) -> Self:
        """Hold the file open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        return os.fstat(self._file.fileno()).st_size

    def verify(self) -> Report:
        """Check the file by its own rules; raises `FileRefused` (``INTAKE_REFUSED``) for one that is too large."""
        reading = _Reading(self._file, self.name)
        report = verify_older(self.name, self.form, Lines(reading, _LONGEST))
        self.sha256 = reading.digest()
        return report

    def sessions(self, *, lenient: bool) -> tuple[SessionSummary, ...]:
        """Return the sessions in the file; a *lenient* look passes over lines that cannot be read.

        Raises `LedgerError` (``IMPORT_REFUSED``) for a line that cannot be read, and where there is no event.
        """
        reading = _Reading(self._file, self.name)
        try:
            found = old_sessions(io.BufferedReader(reading, _BLOCK), self.name, self.form, lenient=lenient)
        except LedgerError as problem:
            why = f"it cannot be read ({problem.error.message}); nothing was taken in"
            raise LedgerError(fault("IMPORT_REFUSED", why, place=problem.error.place)) from None
        self._require_same(reading)
        if not found:
            raise LedgerError(fault("IMPORT_REFUSED", "it holds no event", place=self.name))
        return tuple(found.values())

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the file, a block at a time; raises `LedgerError` at the end if they have changed."""
        reading = _Reading(self._file, self.name)
        while block := reading.read(_BLOCK):
            yield block
        self._require_same(reading)

    def _require_same(self, reading: "_Reading") -> None:
        if reading.digest() != self.sha256:
            why = "the file was changed while it was read; nothing was imported. Import it when no process writes to it"
            raise LedgerError(fault("IMPORT_REFUSED", why, place=self.name))


class _Reading(io.RawIOBase):
    """One reading of a file from its beginning, and the SHA-256 of what was read."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        file.seek(0)
        self._file, self._name = file, name
        self._hash, self._left = sha256(), MAX_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # a writable buffer, which has no name before Python 3.12
        block = self._file.read(len(buffer))
        self._left -= len(block)
        if self._left < 0:
            why = f"more than {MAX_BYTES} bytes; at most {MAX_BYTES} are taken in"
            raise FileRefused(fault("INTAKE_REFUSED", why, place=self._name))
        self._hash.update(block)
        buffer[: len(block)] = block
        return len(block)

    def digest(self) -> str:
        """Return the SHA-256 of the whole file, in hex."""
        while self.read(_BLOCK):
            pass
        return self._hash.hexdigest()


def _old_form(file: BinaryIO, name: str) -> str:
    form = require_form(file, name)
    if form == FORMAT:
        why = (
            "it is no ledger of an older form; "
            f"one of format {FORMAT} is read as it is: give its path to `replay`, `tree` or `verify`"
        )
        raise LedgerError(fault("IMPORT_REFUSED", why, place=name))
    return form
