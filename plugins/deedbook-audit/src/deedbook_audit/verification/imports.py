"""Compares imported old ledgers with the workspace ledger: the same bytes, or a gap."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.heads import Gap
from deedbook.format.reader import read

FOLDER: Final = "imported"
FILE: Final = "events.jsonl"
PENDING: Final = "events.jsonl.pending"
"""The name of the file until the import is recorded; after a kill the next import renames it."""
_NONE: Final = "none"


def compare_imports(state: Path) -> Iterator[Gap]:
    """Yield each old ledger in a *state* folder that differs from its import, or that no import records.

    Raises `LedgerError` if the workspace ledger cannot be read.
    """
    recorded = dict.fromkeys(_list_recorded(state))
    for sha in recorded:
        found = _hash_file(state / FOLDER / sha)
        found = _hash_file(state / FOLDER / sha, PENDING) if found == _NONE else found
        if found != sha:
            yield Gap(f"imported {sha[:12]}", "sha256", sha, found)
    with suppress(FileNotFoundError), Folder.at(state / FOLDER) as folder:
        for name in (each.name for each in folder.scan() if each.folder and each.name not in recorded):
            if _hash_file(state / FOLDER / name) != _NONE:
                what = "a ledger.imported that tells of it; import it again, or remove it"
                yield Gap(f"imported {name[:12]}", "record", what, _NONE)


def _list_recorded(state: Path) -> Iterator[str]:
    with suppress(FileNotFoundError):
        for event in read(state / "workspace"):
            sha = event.payload.get("sha256")
            if event.type == "ledger.imported" and isinstance(sha, str):
                yield sha


def _hash_file(place: Path, name: str = FILE) -> str:
    """Return the hash of the file in *place*, or why there is none."""
    try:
        with Folder.at(place) as folder:
            return folder.digests("", [name])[0]
    except FileNotFoundError:
        return _NONE
    except (OSError, DeedbookError) as problem:
        return str(problem)
