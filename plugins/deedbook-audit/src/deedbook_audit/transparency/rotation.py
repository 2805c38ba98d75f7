"""A log's change of keys: a signed note that names the new key, signed by it and by the previous one; pure."""

from typing import Final, Self

import attrs

from deedbook.format.errors import SignatureError, fault
from deedbook.format.notes import Note, VerifierKey

TITLE: Final = "deedbook log key v1"


@attrs.frozen
class Rotation:
    """The statement of a log about its new *key*; *previous* is ``None`` for the first key."""

    origin: str
    key: VerifierKey
    previous: VerifierKey | None
    note: Note

    @classmethod
    def parse(cls, note: Note) -> Self:
        """Parse such a note; raises `SignatureError`.

        The signature of the new key is verified, the previous one's is not.
        """
        title, *lines = note.text.split("\n")
        if title != TITLE or len(lines) != 4 or lines[3]:
            raise SignatureError(fault("NOTE_INVALID", f"not a change of keys: {TITLE!r} and three lines are expected"))
        key = VerifierKey.parse(lines[1])
        made = cls(lines[0], key, None if lines[2] == "-" else VerifierKey.parse(lines[2]), note)
        if not made.is_signed_by(key):
            raise SignatureError(fault("KEY_REFUSED", "the new key did not sign its own statement"))
        return made

    def is_signed_by(self, key: VerifierKey) -> bool:
        """Return whether *key* signed the statement."""
        return self.note.is_signed_by(key)
