"""Cosignatures of checkpoints in the form of C2SP (c2sp.org/tlog-cosignature, version 1 with Ed25519); pure.

A witness signs the lines ``cosignature/v1`` and ``time N`` (seconds since 1970, UTC), then the checkpoint's text. Its
signature in a note contains, after the key's id, N as eight bytes and the signature's 64. The algorithm of its keys
is 0x04, so that they cannot be confused with keys of a log.
"""

from typing import ClassVar, Final

from deedbook.format.notes import Note, Signature, SigningKey, VerifierKey, WitnessKey

MAX_TIME: Final = 2**63 - 1

_TIME_BYTES: Final = 8
_VALUE_BYTES: Final = _TIME_BYTES + 64


def cosigned_at(key: WitnessKey, note: Note) -> int | None:
    """Return when the witness with *key* cosigned *note*, in seconds since 1970: the newest time; ``None`` if never.

    An invalid signature line with the witness's key makes all of its lines invalid.
    """
    mine = [each.value for each in note.signatures if (each.name, each.id) == (key.name, key.id)]
    times = [_time(key, note.text, value) for value in mine]
    return None if not times or None in times else max(time for time in times if time is not None)


def _time(key: WitnessKey, text: str, value: bytes) -> int | None:
    time = int.from_bytes(value[:_TIME_BYTES], "big")
    good = len(value) == _VALUE_BYTES and time <= MAX_TIME
    return time if good and key.check(message(text, time), value[_TIME_BYTES:]) else None


class WitnessSigner(SigningKey):
    """The private half of a witness's key."""

    PUBLIC: ClassVar[type[VerifierKey]] = WitnessKey

    __slots__ = ()
    public: WitnessKey

    def cosign(self, text: str, time: int) -> Signature:
        """Return the signature line for the checkpoint *text*, seen at *time*."""
        value = time.to_bytes(_TIME_BYTES, "big") + self.sign(message(text, time))
        return Signature(self.public.name, self.public.id, value)


def message(text: str, time: int) -> bytes:
    """Return the bytes that a witness signs for the checkpoint *text*."""
    return f"cosignature/v1\ntime {time}\n{text}".encode()
