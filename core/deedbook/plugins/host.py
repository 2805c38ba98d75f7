"""The kernel's side of binding: what a plugin is given when it is constructed."""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Final, NoReturn, Protocol
from unicodedata import category, normalize

from deedbook.contract import Entry, Failed, Host, Kept, Ran, Routes, Shared
from deedbook.format.canonical import decode, encode_payload
from deedbook.format.errors import BindingError, FileRefused, SchemaError, fault
from deedbook.format.files import Conflict, Folder
from deedbook.format.schema import Schemas, suggest
from deedbook.format.sealed import Sealer

NEVER_WRITTEN: Final = frozenset({".system", ".git", ".deedbook"})
"""Parts of paths at and below which no tool writes, in whatever case."""
NEVER_READ: Final = (".env", ".git")
"""Names of files and folders that are not even read, nor what begins like the first: secrets are kept there."""

LIMIT: Final = 1_048_576
"""How many bytes a program may write, on each of its outputs, where the caller says nothing else."""


class KeptProgram(Protocol):
    """A program that answers each line with one line."""

    def ask(self, line: bytes, seconds: float) -> bytes:
        """Send *line* and return the line that answers it; raises `Failed`."""


class ProgramRunner(Protocol):
    """Runs programs for a host: `programs.workers.Workers`. Hosts of those who only judge have none."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: int | str | Path | None = None,
        seconds: float,
        limit: int = LIMIT,
    ) -> Ran:
        """Run a program to its end; raises `Failed`."""

    def keep(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: int | str | Path | None = None,
        limit: int = LIMIT,
    ) -> KeptProgram:
        """Return a program that is kept alive between questions; raises `Failed`."""

    def hold(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: int | str | Path | None = None,
        mask: Callable[[str], str] = str,
    ) -> Kept:
        """Start a program and leave its pipes to the caller; raises `Failed`."""


class HeldSecret:
    """A secret's value that does not print, and is not copied by accident."""

    __slots__ = ("_name", "_value")

    def __init__(self, name: str, value: str) -> None:
        self._name = name
        self._value = value

    def reveal(self) -> str:
        """Return the value."""
        return self._value

    def __repr__(self) -> str:
        return f"<secret {self._name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"secret {self._name!r} cannot be pickled or copied; ask the host for it where it is needed")


def masking(host: Host) -> Callable[[str], str]:
    """Return what takes the values of the secrets that *host* knows out of a text."""
    return host.mask if isinstance(host, WorkspaceHost) else str


class WorkspaceHost:
    """Implements `contracts.Host` over a workspace folder.

    *roots* are the folders below it that plugins may reach (``""``: all of it), *hidden* those that they may not even
    read (the state), *secrets* the declared values by name (``None`` where there is none), *schemas* the kernel's own.
    *workers* returns what runs programs; without it none is run: the charter is still being compiled. *variables* names
    the environment variable of each secret. *asked* are the secrets that somebody wanted. *routes* returns what
    `routing.routes.told` returns, where there is a charter.
    """

    def __init__(  # noqa: PLR0913 - what a workspace has, mostly given by name
        self,
        folder: Folder,
        roots: Sequence[str],
        hidden: Sequence[str],
        secrets: Mapping[str, str | None],
        schemas: Schemas | None = None,
        workers: Callable[[], ProgramRunner] | None = None,
        variables: Mapping[str, str] | None = None,
        routes: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._folder = folder
        self._roots = tuple(_normal(root) for root in roots)
        self._hidden = tuple(_alike(_normal(place)) for place in hidden)
        self._secrets = secrets
        self._schemas = schemas or Schemas({})
        self.asked: set[str] = set()
        self._workers = workers
        self._variables = variables or {}
        self._sharing = Lock()
        self._shared: dict[str, Any] = {}
        self._routes = routes
        self._sealer = Sealer(secrets={name: value for name, value in secrets.items() if value})

    @property
    def folder(self) -> Folder:
        """The workspace's folder."""
        return self._folder

    @property
    def workers(self) -> ProgramRunner | None:
        """What runs programs, unless the charter is still being compiled."""
        return self._workers() if self._workers else None

    @property
    def runs_programs(self) -> bool:
        """Whether plugins may run programs; nothing is started by asking."""
        return self._workers is not None

    def terms(self, named: set[str]) -> dict[str, Any]:
        """Return, as JSON, what makes a host of less in another process: of the secrets those *named* that are set."""
        given = {name: value for name, value in self._secrets.items() if name in named and value}
        self.asked |= given.keys()
        return {
            "root": str(self._folder.path),
            "roots": list(self._roots),
            "hidden": list(self._hidden),
            "secrets": given,
        }

    def masked(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return a JSON object in which the values of secrets are marked, in whatever spelling, as in a ledger."""
        made: dict[str, Any] = decode(self._sealer.scrubbed(encode_payload(value)))
        return made

    def mask(self, text: str) -> str:
        """Return *text* with the values of secrets marked."""
        return self._sealer.marked(text)

    def secret(self, name: str) -> HeldSecret:
        """Return a declared secret; raises `BindingError`."""
        if name not in self._secrets:
            declared = ", ".join(sorted(self._secrets)) or "none"
            why = f"secret {name!r} is not declared{suggest(name, self._secrets)}; declared: {declared}"
            raise BindingError(fault("SECRET_MISSING", why))
        self.asked.add(name)
        value = self._secrets[name]
        if not value:
            variable = f" {self._variables[name]}" if name in self._variables else ""
            why = f"secret {name!r} is declared, but its environment variable{variable} is not set, or is empty"
            raise BindingError(fault("SECRET_MISSING", why))
        return HeldSecret(name, value)

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading."""
        place = self._reach(path)
        with _explained(place):
            return self._folder.open(place)

    def scan(self, path: str) -> Sequence[Entry]:
        """List a folder, sorted; what may not be read is left out."""
        place = self._reach(path, folder=True)
        with _explained(place):
            found = self._folder.scan(place)
        entries = (Entry(posixpath.join(place, name), folder, size) for name, folder, size in found)
        return [entry for entry in entries if self._why_refused(entry.path, folder=entry.folder) is None]

    def replace(self, path: str, data: bytes, *, expected: str) -> str:
        """Write a whole file atomically, if it is still what *expected* says."""
        place = self._reach(path)
        for part in place.split("/"):
            if _alike(part) in NEVER_WRITTEN:
                raise Failed("PATH_REFUSED", f"{place!r}: tools never write at or below {part}")
        if type(expected) is not str:
            why = 'expected must be the SHA-256 of the present content, or "" for a file that must not exist'
            raise Failed("WRITE_CONFLICT", f"{place!r}: {why}")
        with _explained(place):
            return self._folder.replace(place, data, expected=expected, mode=0o644)

    def schema(self, name: str) -> dict[str, Any]:
        """Return a copy of the kernel's schema of that id."""
        try:
            return deepcopy(dict(self._schemas.document(name)))
        except SchemaError as problem:
            raise Failed("SCHEMA_UNKNOWN", problem.errors[0].message) from None

    def catalogue(self) -> Routes:
        """Return where prompts may lead, worked out for whoever asks."""
        from deedbook.plugins.routing.routes import CharterRoutes

        return CharterRoutes(self.told())

    def told(self) -> Mapping[str, Any]:
        """Return, as JSON, what the catalogue is made of; raises `Failed`."""
        if self._routes is None:
            raise Failed("BINDING_INVALID", "there is no catalogue where the charter is not made yet; ask in a hook")
        return self._routes()

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] = {},
        cwd: str = "",
        seconds: float,
        limit: int = LIMIT,
    ) -> Ran:
        """Run a program in a folder that plugins may reach, held by descriptor; raises `Failed`."""
        with self._working(cwd) as (workers, folder):
            return workers.run(argv, stdin=stdin, env=env, cwd=folder, seconds=seconds, limit=limit)

    def keep(self, argv: Sequence[str], *, env: Mapping[str, str] = {}, cwd: str = "") -> Kept:
        """Start a program as `run` does, and leave its pipes to the caller; raises `Failed`."""
        with self._working(cwd) as (workers, folder):
            return workers.hold(argv, env=env, cwd=folder, mask=self.mask)

    def shared(self, key: str, make: Callable[[], Shared]) -> Shared:
        """Return what *make* makes, once for each *key*; `close` closes it."""
        with self._sharing:
            if key not in self._shared:
                self._shared[key] = make()
            found: Shared = self._shared[key]
            return found

    def close(self) -> None:
        """Close what was shared, the last first."""
        with self._sharing:
            made, self._shared = list(self._shared.values()), {}
        for each in reversed(made):
            with suppress(Exception):  # whatever a plugin does, the kernel is closed
                each.close()

    @contextmanager
    def _working(self, cwd: str) -> Iterator[tuple[ProgramRunner, int]]:
        """Hold the folder that a program works in; raises `Failed`."""
        if self._workers is None:
            raise Failed("NOT_STARTED", "no program is run while the charter is compiled; run it in the call")
        place = self._reach(cwd, folder=True)
        with ExitStack() as held:
            try:
                with _explained(place):
                    folder = held.enter_context(self._folder.held(place))
            except OSError as problem:
                why = f"the working directory {place!r} cannot be entered: {problem.strerror}"
                raise Failed("NOT_STARTED", why) from None
            yield self._workers(), folder

    def _reach(self, path: str, *, folder: bool = False) -> str:
        """Return *path*, normal; raises `Failed` if a plugin may not reach it."""
        if not isinstance(path, str):
            raise Failed("PATH_REFUSED", f"a path is text, not {type(path).__name__}")
        place = _normal(path)
        why = self._why_refused(place, folder=folder)
        if why:
            raise Failed("PATH_REFUSED", f"{path[:200]!r} {why}")
        return place

    def _why_refused(self, place: str, *, folder: bool) -> str | None:
        """Say what speaks against reaching *place*; a folder may also lead to a root."""
        if place == ".." or place.startswith(("../", "/")):
            return "leads outside the workspace; use a path relative to it"
        if not place and not folder:
            return "names no file"
        if not any(_beneath(place, root) or (folder and _beneath(root, place)) for root in self._roots):
            return f"is outside the allowed roots: {', '.join(self._roots) or 'none'}"
        alike = _alike(place)
        if any(part.startswith(NEVER_READ[0]) or part in NEVER_READ for part in alike.split("/")):
            return f"is not for plugins: {' and '.join(NEVER_READ)} hold secrets"
        if any(_beneath(alike, hidden) for hidden in self._hidden):
            return "is the kernel's state"
        return None


class ReadingHost(WorkspaceHost):
    """A host for what is bound to judge and not to act: files are read, and nothing is written."""

    def replace(self, path: str, data: bytes, *, expected: str) -> str:  # noqa: ARG002 - refused whatever it is
        """Refuse."""
        raise Failed("PATH_REFUSED", f"{path[:200]!r}: nothing is written while calls are judged again")


def hidden_folders(root: Path, state: Path) -> list[str]:
    """Return the folders of the workspace at *root* that plugins may not even read: its *state*, if it is inside."""
    return [str(state.relative_to(root))] if state.is_relative_to(root) else []


@contextmanager
def _explained(place: str) -> Iterator[None]:
    """Say what a `Folder` refuses as plugins know it, and by the path in the workspace: records hold no other."""
    try:
        yield
    except Conflict as problem:
        why = f"{place!r} {problem.error.message}"
        raise Failed("WRITE_CONFLICT", why, retryable=problem.error.retryable) from None
    except FileRefused as problem:
        raise Failed("PATH_REFUSED", f"{place!r} {problem.error.message}") from None
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, place) from None


def _normal(path: str) -> str:
    """Return *path* without ``.`` and doubled slashes; ``..`` is kept where it leads out.

    To resolve ``a/..`` by name alone is exact here, since no link is ever followed.
    """
    place = posixpath.normpath(path) if path else ""
    return "" if place == "." else place


def _alike(place: str) -> str:
    """Return what all spellings of a path have in common that one file system or another takes for the same.

    Case and composition (APFS), invisible letters (HFS+), dots and spaces at the end of a name (FAT).
    """
    seen = "".join(letter for letter in normalize("NFKC", place).casefold() if category(letter) != "Cf")
    return "/".join(part.rstrip(". ") for part in seen.split("/"))


def _beneath(place: str, root: str) -> bool:
    return not root or place == root or place.startswith(f"{root}/")
