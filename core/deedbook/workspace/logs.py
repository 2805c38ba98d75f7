"""What `checkpoints:` says of the workspace's log; public keys that stand in files take the place of their names."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deedbook.format.canonical import digest
from deedbook.format.cosignatures import WitnessKey
from deedbook.format.errors import SignatureError, SourceError

from .documents import Document, pointer
from .sources import SYSTEM, public_key, read
from .trees import Reading, Tree

SECTION = "checkpoints"


def trusted(said: Mapping[str, Any], reading: Reading, own: Tree, settings: Document | None) -> dict[str, Any]:
    """Return the section with every key that a file of ``.system`` holds; what cannot be read is a fault of *reading*.

    A witness's key may stand there itself; it has a plus sign, which no such file's name has.
    """
    if settings is None or not said:
        return {}
    made = dict(said)
    if "key" in said and _is_source(own, said["key"]):
        why = f"a private key does not belong into {SYSTEM}, which everybody reads and nobody should have to hide"
        reading.refuse("SOURCE_INVALID", why, settings.place(pointer(SECTION, "key")))
    if "keys" in said:
        made["keys"] = [
            key
            for index, name in enumerate(said["keys"])
            if (key := _key(name, reading, own, settings.place(pointer(SECTION, "keys", index))))
        ]
    if "witnesses" in said:
        made["witnesses"] = [
            {
                **each,
                "key": _witness(each["key"], reading, own, settings.place(pointer(SECTION, "witnesses", index, "key"))),
            }
            for index, each in enumerate(said["witnesses"])
        ]
    return made


def _is_source(own: Tree, said: str) -> bool:
    """Say whether a path leads to where the sources stand."""
    root = Path(own.folder.path)
    try:
        place = os.path.normpath(root / Path(said).expanduser())
    except RuntimeError:  # nobody is at home
        return False
    return Path(place).is_relative_to(root / SYSTEM)


def _key(name: str, reading: Reading, own: Tree, place: str) -> str | None:
    path = f"{SYSTEM}/{name}"
    try:
        key, reading.digests[path] = public_key(own.folder, path)
    except SourceError as problem:
        reading.refuse("KEY_INVALID", problem.error.message, place)
        return None
    return key


def _witness(said: str, reading: Reading, own: Tree, place: str) -> str:
    """Return a witness's key, from the file that *said* names unless it is the key itself."""
    path = f"{SYSTEM}/{said}"
    try:
        if "+" in said:
            return str(WitnessKey.parse(said))
        raw = read(own.folder, path)
        key = str(WitnessKey.parse(raw.decode().strip()))
    except (SourceError, SignatureError, UnicodeDecodeError) as problem:
        reading.refuse("KEY_INVALID", f"the witness's public key cannot be read: {problem}", place)
        return said
    reading.digests[path] = digest(raw)
    return key
