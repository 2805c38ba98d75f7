"""The store of a witness: its key, the logs it serves with their keys, and the newest cosigned checkpoint of each.

``key`` (0600) and ``key.pub`` are in the store's folder; ``logs/<SHA-256 of the origin>/`` holds ``trusted`` (the
origin, then the log's keys, one per line), ``checkpoint``, and under ``refused/`` requests that are evidence against a
log.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from pathlib import Path
from typing import Final, NoReturn

import attrs

from deedbook.format.checkpoints import Checkpoint
from deedbook.format.errors import DeedbookError, SignatureError, fault
from deedbook.format.files import Folder
from deedbook.format.notes import MAX_TEXT, Note, VerifierKey
from deedbook_audit.transparency.cosignatures import WitnessSigner
from deedbook_audit.transparency.witness_requests import origin_hash

LOCK_SECONDS: Final = 10.0
MAX_REFUSED: Final = 64
"""The largest number of requests kept of each log as evidence: the first ones."""

_KEY: Final = "key"
_PUBLIC: Final = "key.pub"
_LOCK: Final = "lock"
_OTHERS: Final = 0o077
_ORIGIN: Final = re.compile("[0-9a-f]{64}")


class StoreBusy(DeedbookError):  # noqa: N818 - what it is, as `FileExistsError` says what there is
    """Another process has locked the store for too long (``WITNESS_BUSY``)."""


@attrs.frozen
class ServedLog:
    """A log that the witness serves: its *origin*, and its keys; one of them must have signed a checkpoint."""

    origin: str
    keys: tuple[VerifierKey, ...]

    def is_signed(self, note: Note) -> bool:
        """Return whether a key of the log signed *note*, and no signature falsely claims to be by one."""
        named = {(each.name, each.id) for each in note.signatures}
        mine = [key for key in self.keys if (key.name, key.id) in named]
        return bool(mine) and all(map(note.is_signed_by, mine))


class WitnessStore:
    """The folder of one witness. Check and write under one `lock`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        if not (place / _KEY).exists():
            _refuse(place, "is no witness's store; make one with: deedbook witness new NAME")
        self._folder = Folder.at(place)

    @classmethod
    def create(cls, place: Path, name: str) -> "WitnessStore":
        """Make a store with a key of its own; raises `SignatureError` (``KEY_REFUSED``) if there is one."""
        signer = WitnessSigner.generate(name)
        with Folder.at(place, create=True) as folder:
            if folder.exists(_KEY):
                _refuse(place / _KEY, "is there already; a witness keeps its key")
            folder.replace(_KEY, f"{signer.reveal()}\n".encode(), expected="", mode=0o600)
            folder.replace(_PUBLIC, f"{signer.public}\n".encode(), mode=0o644)
            folder.make("logs")
            folder.make(_LOCK)
        return cls(place)

    @property
    def key(self) -> WitnessSigner:
        """The witness's key; raises `SignatureError` if it is not stored safely."""
        with self._folder.open(_KEY) as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
                mode = stat.S_IMODE(found.st_mode)
                _refuse(
                    self.place / _KEY,
                    f"has the mode {mode:04o}, or is another user's; expected 0600 and your own",
                )
            raw = file.read(4096)
        return WitnessSigner.parse(raw.decode(errors="replace").removesuffix("\n"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the store against other processes and threads; a lock ends with its holder."""
        deadline = time.monotonic() + LOCK_SECONDS
        with self._folder.hold(_LOCK) as fd:
            while not _try_lock(fd):
                if time.monotonic() > deadline:
                    why = f"another process has held it for {LOCK_SECONDS:g} s; try again when it is done"
                    raise StoreBusy(fault("WITNESS_BUSY", why, retryable=True, place=str(self.place)))
                time.sleep(0.002)
            yield

    # --- logs --------------------------------------------------------------------------------------------------------

    def list_logs(self) -> list[ServedLog]:
        """Return the served logs, by origin."""
        names = [entry.name for entry in self._folder.scan("logs") if entry.folder and _ORIGIN.fullmatch(entry.name)]
        return sorted((self._read_log(name) for name in names), key=lambda log: log.origin)

    def find_log(self, origin: str) -> ServedLog | None:
        """Return the log with that origin; ``None`` if it is not served."""
        try:
            return self._read_log(origin_hash(origin))
        except FileNotFoundError:
            return None

    def trust(self, origin: str, key: VerifierKey) -> ServedLog:
        """Serve the log with that origin, and accept checkpoints signed by *key*, beside those of its other keys."""
        with self.lock():
            known = self.find_log(origin) or ServedLog(origin, ())
            log = known if key in known.keys else ServedLog(origin, (*known.keys, key))
            lines = "".join(f"{line}\n" for line in (log.origin, *log.keys))
            self._folder.make(f"logs/{origin_hash(origin)}")
            self._folder.replace(f"logs/{origin_hash(origin)}/trusted", lines.encode(), mode=0o600)
        return log

    def read_newest(self, name: str) -> Note | None:
        """Return the newest cosigned checkpoint of the origin whose hash is *name*; ``None`` before the first one."""
        try:
            raw = self._folder.read(f"logs/{name}/checkpoint", limit=MAX_TEXT)
        except FileNotFoundError:
            return None
        return Note.parse(raw.decode())

    def save(self, note: Note) -> None:
        """Make *note* the newest cosigned checkpoint of its origin, durably: file and folder are synced."""
        origin = Checkpoint.parse(note.text).origin
        self._folder.replace(f"logs/{origin_hash(origin)}/checkpoint", str(note).encode(), mode=0o600)

    def save_refused(self, origin: str, request: bytes) -> None:
        """Save a request that the log signed and that does not extend what it signed before."""
        place = f"logs/{origin_hash(origin)}/refused"
        self._folder.make(place)
        if len(self._folder.scan(place)) < MAX_REFUSED:
            self._folder.replace(f"{place}/{sha256(request).hexdigest()}", request, mode=0o600)

    def _read_log(self, name: str) -> ServedLog:
        raw = self._folder.read(f"logs/{name}/trusted", limit=MAX_TEXT).decode()
        origin, *keys = raw.removesuffix("\n").split("\n")
        return ServedLog(origin, tuple(map(VerifierKey.parse, keys)))

    def close(self) -> None:
        """Close the folder."""
        self._folder.close()


def _try_lock(fd: int) -> bool:
    try:
        flock(fd, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _refuse(place: Path, why: str) -> NoReturn:
    raise SignatureError(fault("KEY_REFUSED", why, place=str(place)))
