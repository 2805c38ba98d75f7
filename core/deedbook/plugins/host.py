"""The kernel's side of binding: the host that a plugin receives when it is constructed."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy, deepcopy
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn, Protocol, Self

from deedbook.contract import Failed, FolderEntry, Host, ProgramResult, Routes, RunningProgram, Shared
from deedbook.format import copies
from deedbook.format.canonical import decode, encode_payload
from deedbook.format.errors import BindingError, FileRefused, SchemaError, fault
from deedbook.format.files import Conflict, Folder
from deedbook.format.paths import fold_path
from deedbook.format.schema import Schemas, suggest
from deedbook.format.sealed import Sealer

from .plugins import Catalogue

if TYPE_CHECKING:
    from .call_files import Access, CallFiles

NEVER_WRITTEN: Final = frozenset({".system", ".git", ".deedbook"})
"""Path components at and below which no tool writes, in any case."""
NEVER_READ: Final = (".env", ".git")
"""Names that are not even read, including names that begin like the first: secrets are kept there."""

ROUTING: Final = "routing"
"""The feature that ranks the targets for prompts."""
LIMIT: Final = 1_048_576
"""How many bytes a program may write to each of its outputs by default."""
_NAME_LIKE: Final = re.compile("(?=.{1,40}$)[A-Za-z]+[0-9]{0,4}([._-][A-Za-z]*[0-9]{0,4}){0,4}")
"""A text that may be printed where the name of a secret belongs; other texts may be keys."""


class LineProgram(Protocol):
    """A program that answers each line with one line."""

    def ask(self, line: bytes, seconds: float) -> bytes:
        """Send *line* and return the answering line; raises `Failed`."""


class ProgramRunner(Protocol):
    """Runs programs for a host: `programs.workers.Workers`. Hosts for judging have none."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: int | str | Path | None = None,
        seconds: float,
        limit: int = LIMIT,
    ) -> ProgramResult:
        """Run a program to its end; raises `Failed`."""

    def keep(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: int | str | Path | None = None,
        limit: int = LIMIT,
    ) -> LineProgram:
        """Return a program that stays alive between questions; raises `Failed`."""

    def hold(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: int | str | Path | None = None,
        mask: Callable[[str], str] = str,
    ) -> RunningProgram:
        """Start a program and return its pipes; raises `Failed`."""


class HeldSecret:
    """A secret's value that is not printed, and not copied by accident."""

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


def masker_of(host: Host) -> Callable[[str], str]:
    """Return a function that masks the secrets of *host* in a text."""
    return host.mask if isinstance(host, WorkspaceHost) else str


def mark_copy(host: Host, path: str) -> None:
    """Mark the folder *path* of the workspace of *host* as a copy of a repository (`format.copies`)."""
    if isinstance(host, WorkspaceHost):
        copies.mark_copy(host.folder, posixpath.normpath(path))


class WorkspaceHost:
    """Implements `contracts.Host` over a workspace folder.

    *roots* are the folders below it that plugins may reach (``""``: all of it), *hidden* those that they may not even
    read (the state), *secrets* the declared values by name (``None`` where there is none), *schemas* the kernel's own.
    *workers* returns the runner of programs; without it none runs, because the charter is still being compiled.
    *variables* names the environment variable of each secret. *routes* returns the result of
    `policy.callers.route_data`, if there is a charter. *catalogue* are the installed plugins, found again if left out.
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
        catalogue: Catalogue | None = None,
    ) -> None:
        self._folder = folder
        self._roots = tuple(_normal(root) for root in roots)
        self._hidden = tuple(fold_path(_normal(place)) for place in hidden)
        self._secrets = secrets
        self._schemas = schemas or Schemas({})
        self.requested_secrets: set[str] = set()
        self._workers = workers
        self._variables = variables or {}
        self._sharing = Lock()
        self._shared: dict[str, Any] = {}
        self._routes = routes
        self._catalogue = catalogue
        self._calls: CallFiles | None = None
        self._sealer = Sealer(secrets={name: value for name, value in secrets.items() if value})

    @property
    def folder(self) -> Folder:
        """The workspace's folder."""
        return self._folder

    def for_handler(self, calls: "CallFiles") -> Self:
        """Return this host for one handler, whose files have to meet the limits of its *calls*."""
        made = copy(self)
        made._calls = calls  # noqa: SLF001 - a copy of this object
        return made

    @property
    def workers(self) -> ProgramRunner | None:
        """What runs programs, unless the charter is still being compiled."""
        return self._workers() if self._workers else None

    def terms(self, named: set[str]) -> dict[str, Any]:
        """Return, as JSON, the terms of a smaller host in another process, with the *named* secrets that are set."""
        given = {name: value for name, value in self._secrets.items() if name in named and value}
        self.requested_secrets |= given.keys()
        return {
            "root": str(self._folder.path),
            "roots": list(self._roots),
            "hidden": list(self._hidden),
            "secrets": given,
        }

    def mask_object(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return a JSON object in which values of secrets are masked, in every encoding, as in a ledger."""
        made: dict[str, Any] = decode(self._sealer.scrub(encode_payload(value)))
        return made

    def mask(self, text: str) -> str:
        """Return *text* with values of secrets masked."""
        return self._sealer.mark_secrets(text)

    def secret(self, name: str) -> HeldSecret:
        """Return a declared secret; raises `BindingError`."""
        if name not in self._secrets:
            declared = ", ".join(sorted(self._secrets)) or "none"
            why = "a value looks like a key, not like the name of a secret; remove it, revoke it, and name a secret"
            if _NAME_LIKE.fullmatch(name):
                why = f"secret {name!r} is not declared{suggest(name, self._secrets)}"
            raise BindingError(fault("SECRET_MISSING", f"{why}; declared: {declared}"))
        self.requested_secrets.add(name)
        value = self._secrets[name]
        if not value:
            variable = f" {self._variables[name]}" if name in self._variables else ""
            why = f"secret {name!r} is declared, but its environment variable{variable} is not set, or is empty"
            raise BindingError(fault("SECRET_MISSING", why))
        return HeldSecret(name, value)

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading."""
        place = self._reach(path)
        self._check_limits("read", place)
        with _translate_errors(place):
            return self._folder.open(place)

    def scan(self, path: str) -> Sequence[FolderEntry]:
        """List a folder, sorted; entries that may not be read are left out."""
        place = self._reach(path, folder=True)
        self._check_limits("list", place)
        with _translate_errors(place):
            found = self._folder.scan(place)
        entries = (FolderEntry(posixpath.join(place, name), folder, size) for name, folder, size in found)
        readable = [entry for entry in entries if self._refusal(entry.path, folder=entry.folder) is None]
        if self._calls is None or not self._calls.current():
            return readable
        return [
            entry for entry in readable if self._limit_refusal("list" if entry.folder else "read", entry.path) is None
        ]

    def replace(self, path: str, data: bytes, *, expected: str) -> str:
        """Write a whole file atomically, if its content is still *expected*."""
        place = self._reach_for_writing(path)
        if type(expected) is not str:
            why = 'expected must be the SHA-256 of the present content, or "" for a file that must not exist'
            raise Failed("WRITE_CONFLICT", f"{place!r}: {why}")
        with _translate_errors(place):
            return self._folder.replace(place, data, expected=expected, mode=0o644)

    def remove(self, path: str, *, expected: str) -> None:
        """Remove a file, if its content is still *expected*."""
        place = self._reach_for_writing(path)
        if type(expected) is not str or not expected:
            raise Failed("WRITE_CONFLICT", f"{place!r}: expected must be the SHA-256 of the present content")
        with _translate_errors(place):
            self._folder.remove(place, expected=expected)

    def schema(self, name: str) -> dict[str, Any]:
        """Return a copy of the kernel's schema of that id."""
        try:
            return deepcopy(dict(self._schemas.document(name)))
        except SchemaError as problem:
            raise Failed("SCHEMA_UNKNOWN", problem.errors[0].message) from None

    def catalogue(self) -> Routes:
        """Return the targets for prompts, computed at each call."""
        from deedbook.plugins.features import Features
        from deedbook.plugins.plugins import discover

        features = Features(self._catalogue or discover(), [ROUTING])
        made: Routes = features.ask("rank_routes", data=self.route_data())
        return made

    def route_data(self) -> Mapping[str, Any]:
        """Return the data of the catalogue as JSON; raises `Failed`."""
        if self._routes is None:
            raise Failed("BINDING_INVALID", "there is no catalogue before the charter is compiled; use it in a hook")
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
    ) -> ProgramResult:
        """Run a program in a folder that plugins may reach, held by descriptor; raises `Failed`."""
        with self._open_working_folder(cwd) as (workers, folder):
            return workers.run(argv, stdin=stdin, env=env, cwd=folder, seconds=seconds, limit=limit)

    def keep(self, argv: Sequence[str], *, env: Mapping[str, str] = {}, cwd: str = "") -> RunningProgram:
        """Start a program as `run` does, and return its pipes; raises `Failed`."""
        if self._calls is not None and self._calls.files in ("host", "none"):
            why = f"the handler declares files: {self._calls.files}, and a later call could ask the program for others"
            raise Failed("PATH_REFUSED", f"no program is kept: {why}")
        with self._open_working_folder(cwd) as (workers, folder):
            return workers.hold(argv, env=env, cwd=folder, mask=self.mask)

    def share(self, key: str, make: Callable[[], Shared]) -> Shared:
        """Return the object that *make* creates, once for each *key*; `close` closes it."""
        with self._sharing:
            if key not in self._shared:
                self._shared[key] = make()
            found: Shared = self._shared[key]
            return found

    def close(self) -> None:
        """Close the shared objects, the last first."""
        with self._sharing:
            made = list(self._shared.values())
            self._shared.clear()  # the hosts of handlers have the same
        for each in reversed(made):
            with suppress(Exception):  # an error of a plugin must not keep the kernel open
                each.close()

    @contextmanager
    def _open_working_folder(self, cwd: str) -> Iterator[tuple[ProgramRunner, int]]:
        """Hold the working folder of a program open; raises `Failed`."""
        if self._workers is None:
            raise Failed("NOT_STARTED", "no program is run while the charter is compiled; run it in the call")
        if self._calls is not None and not all(limits.programs for limits in self._calls.current()):
            why = "the files of this call are limited, and those of a program cannot be seen; run it in a sandbox"
            raise Failed("PATH_REFUSED", f"no program is started: {why}")
        place = self._reach(cwd, folder=True)
        with ExitStack() as held:
            try:
                with _translate_errors(place):
                    folder = held.enter_context(self._folder.hold(place))
            except OSError as problem:
                why = f"the working directory {place!r} cannot be entered: {problem.strerror}"
                raise Failed("NOT_STARTED", why) from None
            yield self._workers(), folder

    def _check_limits(self, access: "Access", place: str) -> None:
        """Raise `Failed` if the limits of the call under way exclude *place*."""
        if self._calls is not None and (why := self._limit_refusal(access, place)) is not None:
            raise Failed("PATH_REFUSED", f"{place!r} {why}")

    def _limit_refusal(self, access: "Access", place: str) -> str | None:
        limits = self._calls.current() if self._calls is not None else ()
        return next((why for each in limits if (why := each.refusal(access, place)) is not None), None)

    def _reach(self, path: str, *, folder: bool = False) -> str:
        """Return *path*, normalised; raises `Failed` if a plugin may not reach it."""
        if not isinstance(path, str):
            raise Failed("PATH_REFUSED", f"a path is text, not {type(path).__name__}")
        place = _normal(path)
        why = self._refusal(place, folder=folder)
        if why:
            raise Failed("PATH_REFUSED", f"{path[:200]!r} {why}")
        return place

    def _reach_for_writing(self, path: str) -> str:
        """Return *path*, normalised; raises `Failed` if a plugin may not change it."""
        place = self._reach(path)
        self._check_limits("write", place)
        for part in place.split("/"):
            if fold_path(part) in NEVER_WRITTEN:
                raise Failed("PATH_REFUSED", f"{place!r}: tools never write at or below {part}")
        return place

    def _refusal(self, place: str, *, folder: bool) -> str | None:
        """Return why *place* may not be reached, or ``None``; a folder may also contain a root."""
        if place == ".." or place.startswith(("../", "/")):
            return "leads outside the workspace; use a path relative to it"
        if not place and not folder:
            return "names no file"
        if not any(_is_below(place, root) or (folder and _is_below(root, place)) for root in self._roots):
            return f"is outside the allowed roots: {', '.join(self._roots) or 'none'}"
        alike = fold_path(place)
        if any(part.startswith(NEVER_READ[0]) or part in NEVER_READ for part in alike.split("/")):
            return f"is not for plugins: {' and '.join(NEVER_READ)} hold secrets"
        if any(_is_below(alike, hidden) for hidden in self._hidden):
            return "is the kernel's state"
        return None


class ReadingHost(WorkspaceHost):
    """A host for judging: files are read, and nothing is written."""

    def replace(self, path: str, data: bytes, *, expected: str) -> str:  # noqa: ARG002 - every write is refused
        """Refuse the write."""
        raise Failed("PATH_REFUSED", f"{path[:200]!r}: nothing is written while calls are judged")

    def remove(self, path: str, *, expected: str) -> None:  # noqa: ARG002 - every removal is refused
        """Refuse the removal."""
        raise Failed("PATH_REFUSED", f"{path[:200]!r}: nothing is removed while calls are judged")


def hidden_folders(root: Path, state: Path) -> list[str]:
    """Return the folders of the workspace at *root* that plugins may not read: its *state*, if it is inside."""
    return [str(state.relative_to(root))] if state.is_relative_to(root) else []


@contextmanager
def _translate_errors(place: str) -> Iterator[None]:
    """Translate errors of a `Folder` to those of plugins, with the path in the workspace, as records hold it."""
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
    """Return *path* without ``.`` and doubled slashes; a leading ``..`` is kept.

    Resolving ``a/..`` by name alone is exact here, since no link is ever followed.
    """
    place = posixpath.normpath(path) if path else ""
    return "" if place == "." else place


def _is_below(place: str, root: str) -> bool:
    return not root or place == root or place.startswith(f"{root}/")
