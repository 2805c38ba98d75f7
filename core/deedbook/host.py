"""The kernel's side of binding: what a plugin is given when it is constructed."""

import posixpath
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final

from .contracts import Entry, Failed
from .errors import BindingError, FileRefused, fault
from .files import Conflict, Folder

NEVER_WRITTEN: Final = frozenset({".system", ".git", ".deedbook"})
"""Parts of paths below which no tool writes, in whatever case; files whose name begins with ``.env`` are not read either."""


class HeldSecret:
    """A secret's value that does not print."""

    __slots__ = ("_name", "_value")

    def __init__(self, name: str, value: str) -> None:
        self._name = name
        self._value = value

    def reveal(self) -> str:
        """Return the value."""
        return self._value

    def __repr__(self) -> str:
        return f"<secret {self._name}>"

    def __reduce__(self) -> str:
        raise TypeError(f"secret {self._name!r} cannot be pickled")


class WorkspaceHost:
    """Implements `contracts.Host` over a workspace folder.

    *roots* are the folders below it that plugins may reach (``""``: all of it), *hidden* those that they may not even
    read (the state), *secrets* the declared values by name
    (``None`` where there is none).
    """

    def __init__(
        self, folder: Folder, roots: Sequence[str], hidden: Sequence[str], secrets: Mapping[str, str | None]
    ) -> None:
        self._folder = folder
        self._roots = tuple(_normal(root) for root in roots)
        self._hidden = tuple(hidden)
        self._secrets = secrets

    def secret(self, name: str) -> HeldSecret:
        """Return a declared secret; raises `BindingError`."""
        if name not in self._secrets:
            declared = ", ".join(sorted(self._secrets)) or "none"
            raise BindingError(fault("SECRET_MISSING", f"secret {name!r} is not declared; declared: {declared}"))
        value = self._secrets[name]
        if not value:
            raise BindingError(fault("SECRET_MISSING", f"secret {name!r} is declared, but its variable is not set"))
        return HeldSecret(name, value)

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading."""
        place = self._normal_beneath(path)
        try:
            return self._folder.open(place)
        except FileRefused as problem:
            raise Failed("PATH_REFUSED", str(problem)) from None

    def scan(self, path: str) -> Sequence[Entry]:
        """List a folder, sorted; what may not be read is left out."""
        place = self._normal_beneath(path, folder=True)
        try:
            found = self._folder.scan(place)
        except FileRefused as problem:
            raise Failed("PATH_REFUSED", str(problem)) from None
        paths = (f"{place}/{name}" if place else name for name, _, _ in found)
        return [
            Entry(path, is_folder, size)
            for path, (_, is_folder, size) in zip(paths, found, strict=True)
            if self._why_refused(path, folder=is_folder) is None
        ]

    def replace(self, path: str, data: bytes, *, expected: str) -> str:
        """Write a whole file atomically, if it is still what *expected* says."""
        place = self._normal_beneath(path)
        for part in place.split("/"):
            if part.casefold() in NEVER_WRITTEN:
                raise Failed("PATH_REFUSED", f"{path}: tools never write below {part}")
        try:
            return self._folder.replace(place, data, expected=expected, mode=0o644)
        except Conflict as problem:
            raise Failed("WRITE_CONFLICT", str(problem), retryable=problem.error.retryable) from None
        except FileRefused as problem:
            raise Failed("PATH_REFUSED", str(problem)) from None

    def _normal_beneath(self, path: str, *, folder: bool = False) -> str:
        place = _normal(path)
        why = self._why_refused(place, folder=folder)
        if why:
            raise Failed("PATH_REFUSED", f"{path!r} {why}")
        return place

    def _why_refused(self, place: str, *, folder: bool = False) -> str | None:
        """Say what speaks against reaching *place*; a folder may also lead to a root."""
        if place.startswith(("..", "/")) or (not place and not folder):
            return "leads outside the workspace; use a path relative to it"
        if not any(_beneath(place, root) or (folder and _beneath(root, place)) for root in self._roots):
            return f"is outside the allowed roots: {', '.join(self._roots) or 'none'}"
        if place.rsplit("/", 1)[-1].casefold().startswith(".env"):
            return "is not for plugins"
        if any(_beneath(place.casefold(), hidden.casefold()) for hidden in self._hidden):
            return "is the kernel's state"
        return None


def _normal(path: str) -> str:
    """Return *path* without ``.`` and doubled slashes; ``..`` is kept where it leads out."""
    place = posixpath.normpath(path) if path else ""
    return "" if place == "." else place


def _beneath(place: str, root: str) -> bool:
    return not root or place == root or place.startswith(f"{root}/")
