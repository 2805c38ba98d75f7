"""The log's private key: where it is stored, and which of the stored keys is in force.

Without a setting it is in the user's own key ring, in a file named after the workspace ledger and the key's id, so that
a new key never replaces one that is still needed. With ``checkpoints: {key: PATH}`` it is in that file, and a key that
is about to come into force is beside it, with the suffix ``.next``.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from deedbook.approvals.keys import KeyRing
from deedbook.contract import Object
from deedbook.format.checkpoints import origin_of
from deedbook.format.errors import SignatureError, fault
from deedbook.format.notes import Note, SigningKey, VerifierKey, sign

from .log import WorkspaceLog

FIRST_KEY_HINT: Final = "`deedbook keys rotate` makes the log's first key"
LOST_KEY_HINT: Final = "where it is gone for good, `deedbook keys rotate --lost` makes another"


@attrs.frozen
class LogKeys:
    """The private keys of the log of the workspace ledger *ledger*, kept in *place* or, without one, in *ring*."""

    ledger: str
    ring: KeyRing
    place: Path | None = None

    @classmethod
    def of(cls, ledger: str, place: Path | None) -> "LogKeys":
        """Return the keys of the user of this process."""
        return cls(ledger, KeyRing(place.parent) if place else KeyRing.of(os.environ), place)

    @property
    def origin(self) -> str:
        """The name of the keys, which is the log's origin."""
        return origin_of(self.ledger)

    def list_names(self) -> Sequence[str]:
        """Return the names of the files that may hold a key of this log."""
        if self.place:
            return [name for name in self._file_names(self.place) if (self.ring.place / name).exists()]
        return [name for name in self.ring.names() if name.startswith(f"{self.ledger}.")]

    def load_signing_key(self, log: WorkspaceLog) -> SigningKey:
        """Return the private key in force; raises `SignatureError` (``KEY_REFUSED``) if it is missing."""
        if log.signer:
            return self._load(VerifierKey.parse(log.signer).id, log.signer)
        if log.newest is None:
            raise SignatureError(fault("KEY_REFUSED", f"the log has no key yet; {FIRST_KEY_HINT}"))
        note = Note.parse(log.newest.note)
        key = self._load(note.signatures[0].id, None)
        if not note.is_signed_by(key.public):
            why = "the key here is not the one that signed the log's newest checkpoint; verify the workspace"
            raise SignatureError(fault("KEY_REFUSED", why))
        return key

    def explain_missing(self, identity: str) -> SignatureError | None:
        """Return why this process cannot use the key with that id; ``None`` if it can."""
        try:
            self._load(identity, None)
        except SignatureError as problem:
            return problem
        return None

    def _load(self, identity: str, public: str | None) -> SigningKey:
        """Return the key with that id, and that *public* half if it is known."""
        for name in self.list_names():
            if self.place or name.endswith(f".{identity}"):
                found = self.ring.load(name, self.origin)
                if found.public.id == identity and public in (None, str(found.public)):
                    return found
        where = self.place or self.ring.place
        why = f"the log's private key {self.origin} {identity} is not here; {LOST_KEY_HINT}"
        raise SignatureError(fault("KEY_REFUSED", why, place=str(where)))

    def keep(self, key: SigningKey) -> None:
        """Store a key that is about to come into force; the previous one stays."""
        if self.place:
            self.ring.keep(key, self._file_names(self.place)[1], force=True)
        else:
            self.ring.keep(key, f"{self.ledger}.{key.public.id}")

    def activate(self, key: SigningKey) -> Path:
        """Remove every other key of the log, now that *key* is in force, and return its path."""
        if self.place:
            now, coming = self._file_names(self.place)
            self.ring.keep(key, now, force=True)  # after a kill here the key is still in the other file
            self.ring.remove(coming)
            return self.place
        for name in self.list_names():
            if name != f"{self.ledger}.{key.public.id}":
                self.ring.remove(name)
        return self.ring.place / f"{self.ledger}.{key.public.id}"

    def _file_names(self, place: Path) -> tuple[str, str]:
        return place.name, f"{place.name}.next"


def build_key_payload(origin: str, key: SigningKey, previous: VerifierKey | None, old: SigningKey | None) -> Object:
    """Return the payload of ``ledger.key`` that brings *key* into force after *previous* (private half: *old*).

    Without *old* it declares the previous key lost.
    """
    text = f"deedbook log key v1\n{origin}\n{key.public}\n{previous or '-'}\n"
    signed = sign(text, [key, *([old] if old else [])])
    payload = {"key": str(key.public), "previous": str(previous) if previous else None, "signed": str(signed)}
    return {**payload, "lost": True} if previous and not old else payload
