"""The section `checkpoints:` of a workspace, with names of key files replaced by the public keys in them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deedbook.contract.pointers import join_pointer
from deedbook.format.canonical import digest
from deedbook.format.errors import SignatureError, SourceError
from deedbook.format.notes import WitnessKey

from .documents import Document
from .sources import SYSTEM, public_key, read
from .trees import SourceReader, SourceTree

SECTION = "checkpoints"


def read_checkpoints(
    said: Mapping[str, Any], reader: SourceReader, own: SourceTree, settings: Document | None
) -> dict[str, Any]:
    """Return the section with every key read from its file in ``.system``; an unreadable key is a fault of *reader*.

    A witness's key may be in the section itself: it has a plus sign, which no key file's name has.
    """
    if settings is None or not said:
        return {}
    made = dict(said)
    if "key" in said and _is_source(own, said["key"]):
        why = f"a private key does not belong in {SYSTEM}, which other people may read; keep it outside the workspace"
        reader.refuse("SOURCE_INVALID", why, settings.place(join_pointer(SECTION, "key")))
    if "keys" in said:
        made["keys"] = [
            key
            for index, name in enumerate(said["keys"])
            if (key := _key(name, reader, own, settings.place(join_pointer(SECTION, "keys", index))))
        ]
    if "witnesses" in said:
        made["witnesses"] = [
            {
                **each,
                "key": _witness(
                    each["key"], reader, own, settings.place(join_pointer(SECTION, "witnesses", index, "key"))
                ),
            }
            for index, each in enumerate(said["witnesses"])
        ]
    return made


def _is_source(own: SourceTree, said: str) -> bool:
    """Return whether a path is in the folder of the sources."""
    root = Path(own.folder.path)
    try:
        place = os.path.normpath(root / Path(said).expanduser())
    except RuntimeError:  # the user has no home folder
        return False
    return Path(place).is_relative_to(root / SYSTEM)


def _key(name: str, reader: SourceReader, own: SourceTree, place: str) -> str | None:
    path = f"{SYSTEM}/{name}"
    try:
        key, reader.digests[path] = public_key(own.folder, path)
    except SourceError as problem:
        reader.refuse("KEY_INVALID", problem.error.message, place)
        return None
    return key


def _witness(said: str, reader: SourceReader, own: SourceTree, place: str) -> str:
    """Return a witness's key, from the file that *said* names unless it is the key itself."""
    path = f"{SYSTEM}/{said}"
    try:
        if "+" in said:
            return str(WitnessKey.parse(said))
        raw = read(own.folder, path)
        key = str(WitnessKey.parse(raw.decode().strip()))
    except (SourceError, SignatureError, UnicodeDecodeError) as problem:
        reader.refuse("KEY_INVALID", f"the witness's public key cannot be read: {problem}", place)
        return said
    reader.digests[path] = digest(raw)
    return key
