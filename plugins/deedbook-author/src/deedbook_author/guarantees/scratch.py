"""Scratch copies of a workspace. The original is only read; its digest before and after shows that.

A copy has its own state folder, keys and secrets: the state is not copied, private keys are made for the copy, and
every declared secret gets another value.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path, PurePosixPath
from shutil import copytree
from typing import Any, Final

import attrs

from deedbook.approvals.keys import KeyRing
from deedbook.format import canonical
from deedbook.format.files import Folder
from deedbook.format.notes import SigningKey
from deedbook.plugins.plugins import Catalogue
from deedbook.policy.requests import ROLE
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.documents import load_yaml
from deedbook.workspace.site import SETTINGS, STATE
from deedbook.workspace.sources import SYSTEM
from deedbook.workspace.workspace import load_profile

MOST_FILES: Final = 5_000
MOST_BYTES: Final = 64 * 1024 * 1024
"""How much is copied besides the sources of the workspace."""
PERSON: Final = "guarantees"
"""The name of the private key that stands for every approver's in a copy."""
_LEFT_OUT: Final = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__", ".tox", ".mypy_cache"})

Edit = Callable[[dict[str, Any]], None]


@attrs.frozen
class Original:
    """A workspace that is only read: its declarations, its *profile*, and the *files* that are copied."""

    workspace: Workspace
    profile: str | None
    files: tuple[str, ...]
    left_out: int

    @classmethod
    def read(cls, root: Path, profile: str | None, catalogue: Catalogue) -> "Original":
        """Read the workspace at *root*; raises `DeedbookError` with every fault."""
        workspace = load_profile(root, profile, catalogue)
        needed = [*workspace.digests, *(path for hook in workspace.hooks.values() for path in hook.files)]
        needed += [str(path.relative_to(root)) for path in _walk(root / SYSTEM, set())]
        files, size, left_out = dict.fromkeys(path for path in needed if (root / path).is_file()), 0, 0
        for path in _walk(root, {workspace.state}):
            if (name := str(path.relative_to(root))) not in files:
                size += path.stat().st_size
                if len(files) >= MOST_FILES or size > MOST_BYTES:
                    left_out += 1
                else:
                    files[name] = None
        return cls(workspace, profile, tuple(sorted(files)), left_out)

    @property
    def root(self) -> Path:
        """The folder of the workspace."""
        return self.workspace.root

    def digest(self) -> str:
        """Return the SHA-256 over the names and contents of all files that are copied, as they are now."""
        total = sha256()
        for name in self.files:
            place = self.root / name
            content = sha256(place.read_bytes()).hexdigest() if place.is_file() else "missing"
            total.update(f"{name}\0{content}\n".encode())
        return total.hexdigest()


@attrs.frozen
class Scratch:
    """A copy of a workspace, at *root*, that may be attacked; *approvers* are the principals whose key it has."""

    original: Original
    root: Path

    @classmethod
    def create(cls, original: Original, root: Path) -> "Scratch":
        """Copy *original* to *root*; its settings change only where they would lead outside, or refuse the start."""
        for name in original.files:
            place = root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes((original.root / name).read_bytes())
            place.chmod((original.root / name).stat().st_mode & 0o777)
        made = cls(original, root)
        made._replace_keys()
        workspace = original.workspace
        if workspace.lock == "required" or workspace.state != original.root / STATE or workspace.checkpoints:
            made.edit(_settle)
        return made

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.root / STATE

    def variant(self, name: str) -> "Scratch":
        """Return another copy, without state, beside this one."""
        place = self.root.with_name(f"{self.root.name}-{name}")
        copytree(
            self.root, place, symlinks=True, ignore=lambda folder, _: {STATE} if Path(folder) == self.root else set()
        )
        return Scratch(self.original, place)

    def edit(self, change: Edit) -> None:
        """Change the settings in ``deedbook.yaml``; it is written as JSON, which is YAML."""
        with Folder.at(self.root) as folder:
            settings: dict[str, Any] = canonical.decode(canonical.encode(load_yaml(folder, SETTINGS).value))
        change(settings)
        (self.root / SETTINGS).write_text(json.dumps(settings, indent=1), encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        """Write a file below the copy."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def person(self) -> SigningKey:
        """Return the private key of every approver of the copy."""
        return KeyRing.of(os.environ).load(PERSON)

    def _replace_keys(self) -> None:
        """Give every approver the key of this copy; private keys of people are not used."""
        ring = KeyRing.of(os.environ)
        key = ring.load(PERSON) if PERSON in ring.names() else ring.create(PERSON)
        for path in _key_files(self.original.workspace):
            (self.root / path).write_text(f"{key.public}\n", encoding="utf-8")


def approvers_of(workspace: Workspace) -> list[str]:
    """Return the principals that may answer requests and have a key."""
    return sorted(name for name, each in workspace.principals.items() if each.key and ROLE in each.roles)


def _key_files(workspace: Workspace) -> Iterator[str]:
    """Yield the files with public keys of principals, relative to the workspace."""
    with Folder.at(workspace.root) as folder:
        settings: Any = load_yaml(folder, SETTINGS).value
    for name in approvers_of(workspace):
        yield f"{SYSTEM}/{PurePosixPath(settings['principals'][name]['key'])}"


def _settle(settings: dict[str, Any]) -> None:
    """Keep the state inside the copy, use no key and no witness of a log, and let it start although it is changed."""
    settings.pop("state", None)
    settings.pop("checkpoints", None)
    settings["lock"] = "auto"


def _walk(root: Path, without: set[Path]) -> Iterator[Path]:
    """Yield the regular files below *root* in order, without links, states and folders that tools fill."""
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if name not in (*_LEFT_OUT, STATE) and here / name not in without)
        yield from (place for name in sorted(files) if (place := here / name).is_file() and not place.is_symlink())


@contextmanager
def isolated_environment(workspace: Workspace, place: Path) -> Iterator[Mapping[str, str]]:
    """Replace the user's keys and secrets in the environment; yields the value of each secret, by its name.

    *place* becomes the folder of the user's configuration.
    """
    values = {name: f"guarantee-{secrets.token_hex(12)}" for name in workspace.secrets}
    changed = {"XDG_CONFIG_HOME": str(place), **{workspace.secrets[name]: value for name, value in values.items()}}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield values
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
