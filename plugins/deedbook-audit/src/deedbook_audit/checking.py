"""Checks ledgers one by one or several at once: bytes, structure, and decisions if their charter is available."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self, TypeAlias

import attrs

from deedbook.charter.store import Store
from deedbook.format.errors import DeedbookError, FileRefused, describe
from deedbook.format.files import Folder
from deedbook.format.lines import Watch
from deedbook.format.schema import Schemas, Validator, data_folder, foreign
from deedbook.policy.charter import Charter
from deedbook.policy.requests import approvers
from deedbook_audit.verification.pool import map_ordered

from .approval_rules import Approvers
from .charters import CHARTER_MISSING, Charters, open_charters
from .recheck import recheck
from .report import Decisions, Report, unreadable
from .selection import Selection
from .verify import verify_file

FileNamer: TypeAlias = Callable[[Path], str]
"""Returns the name of a file in reports; the function has to be picklable."""


def check_ledgers(
    selection: Selection, *, plugins: bool = False, jobs: int = 1, watch: Watch | None = None, namer: FileNamer = str
) -> list[Report]:
    """Check every selected ledger with *jobs* processes: many ledgers at once, large ones one by one.

    *watch* is called with the number of bytes read since the last call.
    """
    sizes = {place: place.stat(follow_symlinks=False).st_size for place in selection.files}
    small = [place for place, size in sizes.items() if size < LARGE_SIZE]
    where = (selection.source.root, selection.source.state) if selection.source else None
    found: dict[Path, Report] = {}
    with Checker(where, plugins=plugins, namer=namer) as checker:
        if jobs > 1 and len(small) > 1:
            with suppress(RuntimeError):  # a worker died: this process checks the ledgers itself
                shared = map_ordered(small, min(jobs, len(small)), _start_checker, where, plugins, namer)
                for place, report in zip(small, shared, strict=True):
                    found[place] = report
                    if watch:
                        watch(sizes[place])
        return [found.get(place) or checker(place, jobs=jobs, watch=watch) for place in selection.files]


def _start_checker(where: tuple[Path, Path] | None, plugins: bool, namer: FileNamer) -> Callable[[Path], Report]:
    """Start a checker in a worker process, which holds it until the process ends."""
    return Checker(where, plugins=plugins, namer=namer).__enter__()


LARGE_SIZE: Final = 1 << 24
"""A ledger of at least so many bytes is itself read by several processes."""


class Checker:
    """Checks ledgers of one workspace, or of none; use it as a context manager.

    *where* is the folder of the workspace, and its state folder. *schemas* are the kernel's own, where they are loaded
    already.
    """

    def __init__(
        self,
        where: tuple[Path, Path] | None,
        *,
        plugins: bool = False,
        namer: FileNamer = str,
        schemas: Schemas | None = None,
    ) -> None:
        self._where, self._plugins, self._namer = where, plugins, namer
        self._schemas = schemas or Schemas.load(data_folder("schemas"))
        self._stack = ExitStack()
        self._charters: Charters | None = None
        self._types: dict[str, Mapping[str, Validator] | None] = {}

    def __enter__(self) -> Self:
        if self._where:
            with suppress(DeedbookError, OSError):  # no charters are available
                charters = open_charters(*self._where, self._schemas, plugins=self._plugins)
                self._charters = self._stack.enter_context(charters)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, place: Path, *, jobs: int = 1, watch: Callable[[int], None] | None = None) -> Report:
        """Check the ledger at *place*; *watch* is called with the number of bytes read.

        An unreadable ledger of the workspace is reported as such and does not stop the others.
        """
        name = self._namer(place)
        found = _build_approver_lookup(self._where[1]) if self._where else None
        try:
            report = verify_file(
                name, schemas=self._schemas, declared=self._read_validators, approvers=found, jobs=jobs, watch=watch
            )
        except (FileRefused, OSError) as problem:
            if self._where is None or not place.is_relative_to(self._where[1]):
                raise
            why = problem.error.message if isinstance(problem, FileRefused) else problem.strerror
            return unreadable(name, why or str(problem))
        except Exception as problem:  # noqa: BLE001 - a ledger may hold anything, and must not stop the others
            return unreadable(name, describe(problem))
        judged = report.format == "1.1" and report.state != "workspace"
        if not judged or report.bytes.failures or report.structure.failures:
            return report
        return attrs.evolve(report, decisions=self._decisions(place))

    def _read_validators(self, digest: str) -> Mapping[str, Validator] | None:
        """Return the validators of the event types that a charter declares; ``None`` where it is not at hand."""
        if digest not in self._types:
            charter = _kept_charter(self._where[1], digest) if self._where else None
            self._types[digest] = _types_of(charter) if charter else None
        return self._types[digest]

    def _decisions(self, place: Path) -> Decisions:
        try:
            return recheck(place, self._charters or (lambda _: CHARTER_MISSING))
        except (DeedbookError, OSError) as problem:  # the ledger is sound, but its decisions cannot be judged
            return Decisions(unknown={str(problem): 1}, unchecked=str(problem))


def _build_approver_lookup(state: Path) -> Approvers:
    """Return a lookup of a charter's approvers."""

    def find(digest: str) -> Mapping[str, str] | None:
        charter = _kept_charter(state, digest)
        return approvers(charter.document["principals"]) if charter else None

    return find


def _types_of(charter: Charter) -> Mapping[str, Validator]:
    schemas = charter.document["schemas"]
    records = charter.document.get("records", {})
    return {name: foreign(schemas[row["schema"]], place=f"event type {name}") for name, row in records.items()}


def _kept_charter(state: Path, digest: str) -> Charter | None:
    """Return the charter that a state folder keeps under *digest*; ``None`` if it cannot be read as one."""
    try:
        with Folder.at(state) as folder:
            return Store(folder).find(digest)
    except (DeedbookError, OSError):
        return None
