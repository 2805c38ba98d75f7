"""The witness: it checks a log's request, saves the checkpoint durably, and only then signs it."""

import time
from collections.abc import Callable

from deedbook.format.checkpoints import EMPTY, Checkpoint
from deedbook.format.errors import DeedbookError, SignatureError
from deedbook.format.notes import Note
from deedbook_audit.transparency.cosignatures import cosigned_at
from deedbook_audit.transparency.merkle import is_consistent
from deedbook_audit.transparency.witness_requests import (
    BAD,
    BROKEN,
    BUSY,
    CONFLICT,
    DONE,
    FORBIDDEN,
    INCONSISTENT,
    UNKNOWN,
    Answer,
    Request,
    origin_hash,
)

from .store import StoreBusy, WitnessStore


class Witness:
    """A witness with its *store*; several processes may share one. *clock* gives seconds since 1970."""

    def __init__(self, store: WitnessStore, *, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self._key = store.key

    def add(self, body: bytes) -> Answer:
        """Answer the request *body*; never raises."""
        try:
            return self._add(body)
        except StoreBusy as problem:
            return _build_answer(BUSY, problem.error.message)
        except (DeedbookError, OSError, ValueError):  # a failure of the store, which the client must not see
            return _build_answer(BROKEN, "the witness cannot read or write what it remembers")

    def find_newest(self, name: str) -> Note | None:
        """Return the newest cosigned checkpoint of the origin whose hash is *name*."""
        return self._store.read_newest(name)

    def _add(self, body: bytes) -> Answer:
        try:
            request = Request.parse(body)
        except SignatureError as problem:
            return _build_answer(BAD, problem.error.message)
        log = self._store.find_log(request.checkpoint.origin)
        if log is None:
            return _build_answer(UNKNOWN, "this log is not served here")
        if not log.is_signed(request.note):
            return _build_answer(FORBIDDEN, "no key that is trusted for this log signed the checkpoint")
        if request.old > request.checkpoint.size:
            return _build_answer(BAD, "the old size is larger than the checkpoint's")
        with self._store.lock():
            return self._check_consistency(request)

    def _check_consistency(self, request: Request) -> Answer:
        """Compare *request* with the last cosigned checkpoint; the store is locked."""
        before, known = self._read_last(request.checkpoint.origin)
        if request.old != known.size:
            return Answer(CONFLICT, f"{known.size}\n")
        new = request.checkpoint
        if not is_consistent(known.size, known.root, new.size, new.root, request.proof):
            self._store.save_refused(new.origin, bytes(request))
            return _build_answer(INCONSISTENT, f"the proof does not lead from size {known.size} to this checkpoint")
        seen = max(int(self._clock()), before)
        line = self._key.cosign(request.note.text, seen)
        others = tuple(each for each in request.note.signatures if each.id != line.id)
        self._store.save(Note(request.note.text, (*others, line)))
        return Answer(DONE, f"{line}\n")

    def _read_last(self, origin: str) -> tuple[int, Checkpoint]:
        """Return the time of the last cosigned checkpoint of *origin*, and the checkpoint.

        Raises `SignatureError` or `ValueError` if this witness did not write the file.
        """
        note = self._store.read_newest(origin_hash(origin))
        if note is None:
            return 0, Checkpoint(origin, 0, EMPTY)
        known, seen = Checkpoint.parse(note.text), cosigned_at(self._key.public, note)
        if known.origin != origin or seen is None:
            raise ValueError("the newest checkpoint is not what this witness cosigned")
        return seen, known


def _build_answer(status: int, text: str) -> Answer:
    return Answer(status, f"{text}\n")
