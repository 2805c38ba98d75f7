"""Signed notes and their keys, as C2SP has them (c2sp.org/signed-note): text signed by Ed25519 keys; pure.

A verifier key is ``name+hash+base64(0x01 || public key)``, a private one ``PRIVATE+KEY+name+hash+`` and the base64 of
``0x01 || seed``. *hash*, the key's id, is the first eight hex digits of SHA-256 of ``name || LF || 0x01 || public
key``. Below a blank line each signature stands on a line of its own: ``— name base64(id || signature)``. Everything is
read strictly, and what a text claims counts only once a signature was checked.
"""

import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import ClassVar, Final, NoReturn, Self

import attrs

from .errors import SignatureError, fault

MAX_TEXT: Final = 1_000_000
"""The longest accepted note, in bytes of UTF-8."""
MAX_SIGNATURES: Final = 100

ED25519: Final = b"\x01"
"""The algorithm of a key that signs a note's text unchanged."""
COSIGNATURE: Final = b"\x04"
"""The algorithm of a witness's key, which signs a time with the text."""
_PRIVATE: Final = "PRIVATE+KEY+"
_KEY: Final = re.compile(r"([^+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})")
_LINE: Final = re.compile("— ([^ ]+) ([A-Za-z0-9+/]+={0,2})")
_ALGORITHMS: Final = {ED25519: "which is Ed25519", COSIGNATURE: "which is an Ed25519 key of a witness"}
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")


@attrs.frozen
class VerifierKey:
    """The public half of a key: a *name* for people, and the 32 bytes of an Ed25519 public key."""

    ALGORITHM: ClassVar[bytes] = ED25519
    """The byte of the algorithm; a part of the key's id."""

    name: str
    public: bytes

    @property
    def id(self) -> str:
        """The key's id: eight hex digits that depend on name and key."""
        return sha256(self.name.encode() + b"\n" + self.ALGORITHM + self.public).hexdigest()[:8]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the line that `str` makes; raises `SignatureError` (``KEY_INVALID``)."""
        name, claimed, public = _parts(text, cls.ALGORITHM)
        made = cls(name, public)
        if made.id != claimed:
            _refuse_key(f"its id is {claimed}, but name and key make {made.id}; was it mistyped?")
        return made

    def check(self, text: bytes, signature: bytes) -> bool:
        """Return whether *signature*, of 64 bytes, is this key's for *text*."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, text)
        except InvalidSignature:
            return False
        except ValueError:
            _refuse_key("it is no Ed25519 public key")
        return True

    def __str__(self) -> str:
        return f"{self.name}+{self.id}+{b64encode(self.ALGORITHM + self.public).decode()}"


@attrs.frozen
class WitnessKey(VerifierKey):
    """The public half of a key that cosigns checkpoints (c2sp.org/tlog-cosignature)."""

    ALGORITHM: ClassVar[bytes] = COSIGNATURE

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the line that `str` makes; also a plain Ed25519 key, which some witnesses publish.

        Raises `SignatureError` (``KEY_INVALID``).
        """
        try:
            return super().parse(text)
        except SignatureError as problem:
            try:
                plain = VerifierKey.parse(text)
            except SignatureError:
                raise problem from None
        return cls(plain.name, plain.public)


class SigningKey:
    """The private half of a key. It is not printed, and not copied by accident."""

    PUBLIC: ClassVar[type[VerifierKey]] = VerifierKey

    __slots__ = ("_seed", "public")

    def __init__(self, name: str, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._seed = seed
        self.public = self.PUBLIC(
            _check_name(name), Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        )

    @classmethod
    def generate(cls, name: str) -> Self:
        """Create a new key; *name* has neither white space nor a plus sign."""
        return cls(name, os.urandom(32))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the line that `reveal` makes; raises `SignatureError` (``KEY_INVALID``), which quotes nothing of it."""
        if not text.startswith(_PRIVATE):
            _refuse_key(f"a private key begins with {_PRIVATE}")
        name, claimed, seed = _parts(text.removeprefix(_PRIVATE), cls.PUBLIC.ALGORITHM)
        made = cls(name, seed)
        if made.public.id != claimed:
            _refuse_key("its id is not what name and key make; was it mistyped?")
        return made

    def reveal(self) -> str:
        """Return the key's line, which must stay secret."""
        return f"{_PRIVATE}{self.public.name}+{self.public.id}+{b64encode(self.public.ALGORITHM + self._seed).decode()}"

    def sign(self, text: bytes) -> bytes:
        """Return the signature of *text*, 64 bytes; the same for the same text (RFC 8032)."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._seed).sign(text)

    def __repr__(self) -> str:
        return f"<private key {self.public.name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key cannot be pickled or copied; load it where it is needed")


@attrs.frozen
class Signature:
    """A parsed signature line: the key's *name* and *id*, and the signature's bytes; not verified."""

    name: str
    id: str
    value: bytes

    def __str__(self) -> str:
        return f"— {self.name} {b64encode(bytes.fromhex(self.id) + self.value).decode()}"


@attrs.frozen
class Note:
    """A note: its *text*, which ends with a newline, and the signatures below it, not verified."""

    text: str
    signatures: tuple[Signature, ...]

    @classmethod
    def parse(cls, note: str) -> Self:
        """Parse a signed note; raises `SignatureError` (``NOTE_INVALID``)."""
        _refuse_unreadable(note)
        text, blank, below = note.rpartition("\n\n")
        if not blank or not below.endswith("\n"):
            _refuse_note("a text, a blank line and signature lines, each ended by a newline, are expected")
        lines = below[:-1].split("\n")
        if len(lines) > MAX_SIGNATURES:
            _refuse_note(f"it has {len(lines)} signature lines; at most {MAX_SIGNATURES} are read")
        return cls(f"{text}\n", tuple(map(_signature, lines)))

    def is_signed_by(self, key: VerifierKey) -> bool:
        """Return whether *key* signed the text; an invalid signature with the key's id makes the result ``False``."""
        mine = [each for each in self.signatures if (each.name, each.id) == (key.name, key.id)]
        return bool(mine) and all(len(each.value) == 64 and key.check(self.text.encode(), each.value) for each in mine)

    def __str__(self) -> str:
        return "\n".join((self.text, *map(str, self.signatures), ""))


def sign(text: str, keys: Iterable[SigningKey]) -> Note:
    """Return *text*, which ends with a newline, signed by each of *keys*; raises `SignatureError`."""
    _refuse_unreadable(text)
    if not text.endswith("\n"):
        _refuse_note("a text ends with a newline")
    raw = text.encode()
    return Note(text, tuple(Signature(key.public.name, key.public.id, key.sign(raw)) for key in keys))


def is_name(name: str) -> bool:
    """Return whether *name* is a valid name of a key: not empty, without white space and plus signs."""
    return bool(name) and "+" not in name and not any(map(str.isspace, name)) and name.isprintable()


def _parts(text: str, algorithm: bytes) -> tuple[str, str, bytes]:
    """Split ``name+hash+base64`` of a key of *algorithm*; the bytes come without the algorithm byte."""
    found = _KEY.fullmatch(text)
    if not found:
        _refuse_key("expected name+hash+key on one line: eight hex digits, and 44 base64 digits")
    name, claimed, digits = found.groups()
    raw = b64decode(digits, validate=True)
    if b64encode(raw).decode() != digits or len(raw) != 33:
        _refuse_key("its key is not 33 bytes in base64")
    if raw[:1] != algorithm:
        _refuse_key(f"its algorithm is {raw[0]}; expected {algorithm[0]}, {_ALGORITHMS[algorithm]}")
    return _check_name(name), claimed, raw[1:]


def _check_name(name: str) -> str:
    if not is_name(name):
        _refuse_key("a key's name is not empty, and has neither white space nor a plus sign")
    return name


def _signature(line: str) -> Signature:
    found = _LINE.fullmatch(line)
    if not found or not is_name(found[1]):
        _refuse_note("a signature line is an em dash, a space, a key's name, a space, and base64")
    try:
        raw = b64decode(found[2], validate=True)
    except ValueError:
        raw = b""
    if len(raw) < 5 or b64encode(raw).decode() != found[2]:
        _refuse_note("a signature is not the base64 of a key's id and of what follows it")
    return Signature(found[1], raw[:4].hex(), raw[4:])


def _refuse_unreadable(note: str) -> None:
    try:
        size = len(note.encode())
    except UnicodeEncodeError:
        _refuse_note("it holds a lone surrogate")
    if size > MAX_TEXT:
        _refuse_note(f"it has {size} bytes; at most {MAX_TEXT} are read")
    if _CONTROL.search(note):
        _refuse_note("it holds a control character other than the newline")


def _refuse_key(why: str) -> NoReturn:
    raise SignatureError(fault("KEY_INVALID", f"not a key: {why}"))


def _refuse_note(why: str) -> NoReturn:
    raise SignatureError(fault("NOTE_INVALID", f"not a signed note: {why}"))
