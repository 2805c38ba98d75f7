"""Valid paths below a root and their form in messages; a user's own folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from unicodedata import category, normalize

MAX_PATH: Final = 4096
"""The longest path, in bytes of UTF-8."""
DRAFT: Final = ".deedbook-draft"
"""The name of a file until it is complete.

A folder has at most one draft, under the folder's lock; a killed writer leaves it behind, and the next writer replaces
it. No path may name it.
"""
LEDGER_FILE: Final = ".events.jsonl"
"""The name of a ledger's file in the folder of its session."""
CHECKPOINT_FILE: Final = "checkpoint"
"""The name of the file of a state folder that holds the newest signed note of the log."""

_MAX_SHOWN: Final = 200


def path_fault(path: str) -> str | None:
    """Return why *path* is not a valid path below a root; ``None`` if it is valid."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "is not Unicode text; name files in UTF-8"
    if size > MAX_PATH:
        return f"is {size} bytes long; at most {MAX_PATH} are accepted"
    if not path.isprintable() and any(category(letter) == "Cc" for letter in path):
        return "holds a control character; name a file without one"
    if path.startswith("/"):
        return "is absolute; name it relative to the root"
    parts = path.split("/")
    if "" in parts or "." in parts or ".." in parts:
        return 'has a component that is empty, "." or ".."; name the file directly'
    return "is the kernel's own name for a file being written; choose another" if DRAFT in parts else None


def fold_path(place: str) -> str:
    """Return one common form for all spellings of a path that some file system treats as equal.

    Case and composition (APFS), invisible letters (HFS+), dots and spaces at the end of a name (FAT).
    """
    seen = "".join(letter for letter in normalize("NFKC", place).casefold() if category(letter) != "Cf")
    return "/".join(part.rstrip(". ") for part in seen.split("/"))


def is_state(place: Path) -> bool:
    """Return whether *place* is a state folder: it holds sessions, or a workspace ledger, and is no ledger's own."""
    return any((place / name).is_dir() for name in ("sessions", "workspace")) and not (place / LEDGER_FILE).exists()


def user_folder(environment: Mapping[str, str]) -> Path:
    """Return the user's Deedbook folder for this *environment*: below ``XDG_CONFIG_HOME``, or ``~/.config``."""
    base = environment.get("XDG_CONFIG_HOME", "")
    root = Path(base) if base.startswith("/") else Path(environment.get("HOME", "") or "/") / ".config"
    return root / "deedbook"


def shown_path(path: str) -> str:
    """Return *path* as messages show it: short, and printable."""
    short = path if len(path) <= _MAX_SHOWN else f"{path[:_MAX_SHOWN]}…"
    return short if short and short.isprintable() else ascii(short)
