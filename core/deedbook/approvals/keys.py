"""Private keys of people: one file each, below ``$XDG_CONFIG_HOME/deedbook/keys``, readable only by its owner.

The keys of workspaces' logs are also there, each named after its workspace ledger and its id.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

from deedbook.format.errors import FileRefused, SignatureError, fault
from deedbook.format.files import Folder
from deedbook.format.notes import SigningKey
from deedbook.format.paths import user_folder

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_OF_LOG: Final = re.compile(r"(ws-[0-9a-f]{32})\.[0-9a-f]{8}")
_MAX_BYTES: Final = 4096
_OTHERS: Final = 0o077


def own_name(name: str) -> str:
    """Return the key's own name for the file *name*: for a log's key, ``deedbook/`` and its ledger's id."""
    found = _OF_LOG.fullmatch(name)
    return f"deedbook/{found[1]}" if found else name


class KeyRing:
    """The private keys in the folder at *place*, by name."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "KeyRing":
        """Return the key ring for this *environment*: below ``XDG_CONFIG_HOME``, or ``~/.config``."""
        return cls(user_folder(environment) / "keys")

    def names(self) -> list[str]:
        """Return the names of all keys, in order."""
        if not self.place.is_dir():
            return []
        with Folder.at(self.place) as folder:
            return [entry.name for entry in folder.scan() if not entry.folder and _NAME.fullmatch(entry.name)]

    def create(self, name: str, *, force: bool = False) -> SigningKey:
        """Create and store a key; an existing one is replaced only with *force*. Raises `SignatureError`."""
        self._refuse_name(name)
        return self.keep(SigningKey.generate(name), name, force=force)

    def keep(self, made: SigningKey, name: str, *, force: bool = False) -> SigningKey:
        """Store a key under *name*, and return it; an existing one is replaced only with *force*."""
        self._refuse_name(name)
        with self._translate_errors(name), Folder.at(self.place, create=True) as folder:
            self._refuse_loose_folder()
            if force:
                with suppress(FileNotFoundError):
                    folder.remove(name)
            elif folder.exists(name):
                why = f"exists already; `keys show {name} --out FILE` writes its public half, --force replaces it"
                self._refuse(name, why)
            folder.replace(name, f"{made.reveal()}\n".encode(), expected="", mode=0o600)
            folder.sync()
        return made

    def remove(self, name: str) -> None:
        """Remove the key of that name, if it exists; raises `SignatureError`."""
        self._refuse_name(name)
        with suppress(FileNotFoundError), self._translate_errors(name), Folder.at(self.place) as folder:
            if folder.exists(name):
                folder.remove(name)

    def load(self, name: str, own: str | None = None) -> SigningKey:
        """Return the key of that name; raises `SignatureError` if it is missing, malformed, or not stored safely.

        *own* is the key's own name, if it differs from its file's.
        """
        self._refuse_name(name)
        if not self.place.is_dir():
            self._refuse(name, f"is not there; make one with: deedbook keys new {name}")
        with self._translate_errors(name), Folder.at(self.place) as folder:
            self._refuse_loose_folder()
            with folder.open(name) as file:
                found = os.fstat(file.fileno())
                if found.st_uid != os.geteuid():
                    self._refuse(
                        name, f"belongs to the user {found.st_uid}; a key must belong to the user who signs with it"
                    )
                if found.st_mode & _OTHERS:
                    mode = stat.S_IMODE(found.st_mode)
                    self._refuse(
                        name, f"has the mode {mode:04o}, so that others may use it; make a new key, or: chmod 600"
                    )
                raw = file.read(_MAX_BYTES + 1)
        try:
            key = SigningKey.parse(raw.decode().removesuffix("\n"))
        except (UnicodeDecodeError, SignatureError):
            self._refuse(name, "holds no private key in the form PRIVATE+KEY+name+hash+key")
        if key.public.name != (own or own_name(name)):
            self._refuse(name, "holds a key of another name")
        return key

    def _refuse_loose_folder(self) -> None:
        """Refuse a folder into which other users could put keys."""
        found = self.place.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            why = "the folder belongs to another user, or others may write into it; correct its owner, then: chmod 700"
            raise SignatureError(fault("KEY_REFUSED", why, place=str(self.place)))

    def _refuse_name(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            why = f"{name[:80]!r} names no key: letters, digits, dot, dash, underscore and @, at most 64"
            raise SignatureError(fault("KEY_REFUSED", why))

    @contextmanager
    def _translate_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            self._refuse(name, f"is not there; make one with: deedbook keys new {name}")
        except FileRefused as problem:
            self._refuse(name, problem.error.message)
        except OSError as problem:
            self._refuse(name, f"cannot be read or written: {problem.strerror or problem}")

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise SignatureError(fault("KEY_REFUSED", why, place=str(self.place / name)))
