"""The user's secret that authenticates the records which a start leaves in a state folder for the next start.

A user who can write a state folder can store any charter there under its right digest. A record there therefore counts
only with an HMAC-SHA-256 (RFC 2104) under a key that lies beside the user's signing keys, outside the workspace and its
state. This protects against another user id. A process under the same user id can read the key.
"""

import hmac
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import attrs

from deedbook.contract import Json
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.paths import user_folder

NAME: Final = "charter-cache.key"
_KEY: Final = re.compile(rb"[0-9a-f]{64}\n")
_MAX_BYTES: Final = 128
_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022


@attrs.frozen
class CacheKey:
    """A secret of 32 bytes.

    Without a secret (*why* gives the reason) no record is authentic, and no record gets a code.
    """

    secret: bytes | None = attrs.field(repr=False)
    why: str = ""
    absent: bool = False

    @classmethod
    def read(cls, folder: Path, *outside: Path, create: bool = False) -> Self:
        """Return the key in *folder*; with *create*, make it if it is absent. Never raises.

        A key inside one of the folders *outside* is not used: who can write there could read or replace it.
        """
        where = folder.resolve()
        if inside := next((place for place in outside if where.is_relative_to(place.resolve())), None):
            return cls(None, f"{folder} is inside {inside}; set XDG_CONFIG_HOME to a folder elsewhere")
        try:
            return cls(_read(folder, create=create))
        except FileNotFoundError:
            return cls(None, f"{folder / NAME} does not exist yet; the next start creates it", absent=True)
        except DeedbookError as problem:
            return cls(None, problem.error.message)
        except (OSError, ValueError) as problem:
            return cls(None, f"{folder / NAME}: {getattr(problem, 'strerror', None) or problem}")

    def code(self, purpose: str, record: Json) -> str | None:
        """Return the authentication code of *record*, as 64 hex digits; ``None`` without a key.

        *purpose* keeps the codes of one kind of record from counting for another.
        """
        if self.secret is None:
            return None
        message = canonical.encode({"purpose": purpose, "record": record})
        return hmac.new(self.secret, message, "sha256").hexdigest()

    def authenticates(self, code: object, purpose: str, record: Json) -> bool:
        """Return whether *code* is the authentication code of *record*; never without a key."""
        right = self.code(purpose, record)
        return right is not None and isinstance(code, str) and hmac.compare_digest(right.encode(), code.encode())


def cache_key(root: Path, state: Path, *, create: bool = False) -> CacheKey:
    """Return the key with which this user authenticates the records in *state* of the workspace at *root*."""
    return CacheKey.read(user_folder(os.environ), root, state, create=create)


def _read(place: Path, *, create: bool) -> bytes:
    """Return the secret below *place*; raises `OSError`, `ValueError` or `DeedbookError` if there is no valid one."""
    with Folder.at(place, create=create) as folder:
        found = place.stat()
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
            raise ValueError("others can write into its folder; set the folder's owner, then: chmod 700")
        if create and not folder.exists(NAME):
            with suppress(DeedbookError):  # another start was faster
                folder.replace(NAME, f"{secrets.token_hex(32)}\n".encode(), expected="", mode=0o600)
        with folder.open(NAME) as file:
            about = os.fstat(file.fileno())
            raw = file.read(_MAX_BYTES)
    if about.st_uid != os.geteuid() or about.st_mode & _OTHERS:
        raise ValueError(f"has the mode {stat.S_IMODE(about.st_mode):04o}; remove it, the next start creates another")
    if not _KEY.fullmatch(raw):
        raise ValueError("is not 64 hex digits and a newline; remove it, the next start creates another")
    return bytes.fromhex(raw.decode().strip())


NO_KEY: Final = CacheKey(None, "no key was read")
