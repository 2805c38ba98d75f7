"""Checking ledgers one by one or several at once: bytes, structure, and decisions where their charter is at hand."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self, TypeAlias

import attrs

from deedbook.charter.store import Store
from deedbook.format.errors import DeedbookError, FileRefused, describe
from deedbook.format.files import Folder
from deedbook.format.lines import Watch
from deedbook.format.report import Decisions, Report, unreadable
from deedbook.format.schema import Schemas, Validator, data_folder, foreign
from deedbook.policy.charter import Charter
from deedbook.policy.requests import approvers
from deedbook_audit.verification.pool import ordered

from .charters import NO_CHARTER, Charters, charters_of
from .consents import Approvers
from .recheck import recheck
from .selection import Selection
from .verify import verify_file

Named: TypeAlias = Callable[[Path], str]
"""Returns how reports name a file; it has to be a function that can be pickled."""


def check(
    selection: Selection, *, plugins: bool = False, jobs: int = 1, watch: Watch | None = None, named: Named = str
) -> list[Report]:
    """Check every ledger that was selected, with *jobs* processes: many ledgers at once, large ones one by one.

    *watch* is called with how many bytes more were read.
    """
    sizes = {place: place.stat(follow_symlinks=False).st_size for place in selection.files}
    small = [place for place, size in sizes.items() if size < LARGE]
    where = (selection.source.root, selection.source.state) if selection.source else None
    found: dict[Path, Report] = {}
    with Checker(where, plugins=plugins, named=named) as checker:
        if jobs > 1 and len(small) > 1:
            with suppress(RuntimeError):  # one of the others died: then this one does it
                shared = ordered(small, min(jobs, len(small)), _begin, where, plugins, named)
                for place, report in zip(small, shared, strict=True):
                    found[place] = report
                    if watch:
                        watch(sizes[place])
        return [found.get(place) or checker(place, jobs=jobs, watch=watch) for place in selection.files]


def _begin(where: tuple[Path, Path] | None, plugins: bool, named: Named) -> Callable[[Path], Report]:
    """Begin to check in a process of its own, which holds what it needs until it ends."""
    return Checker(where, plugins=plugins, named=named).__enter__()


LARGE: Final = 1 << 24
"""A ledger of so many bytes is read by several processes itself."""


class Checker:
    """Checks ledgers of one workspace, or of none; hold it as a context.

    *where* is the folder of the workspace, and its state folder.
    """

    def __init__(self, where: tuple[Path, Path] | None, *, plugins: bool = False, named: Named = str) -> None:
        self._where, self._plugins, self._named = where, plugins, named
        self._schemas = Schemas.load(data_folder("schemas"))
        self._held = ExitStack()
        self._charters: Charters | None = None
        self._types: dict[str, Mapping[str, Validator] | None] = {}

    def __enter__(self) -> Self:
        if self._where:
            with suppress(DeedbookError, OSError):  # then none is at hand
                held = charters_of(*self._where, self._schemas, plugins=self._plugins)
                self._charters = self._held.enter_context(held)
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def __call__(self, place: Path, *, jobs: int = 1, watch: Callable[[int], None] | None = None) -> Report:
        """Check the ledger at *place*; *watch* is told how many bytes were read.

        What cannot be read is reported so, if it belongs to the workspace: it hides nothing of the others.
        """
        name = self._named(place)
        found = _approvers(self._where[1]) if self._where else None
        try:
            report = verify_file(
                name, schemas=self._schemas, declared=self._declared, approvers=found, jobs=jobs, watch=watch
            )
        except (FileRefused, OSError) as problem:
            if self._where is None or not place.is_relative_to(self._where[1]):
                raise
            why = problem.error.message if isinstance(problem, FileRefused) else problem.strerror
            return unreadable(name, why or str(problem))
        except Exception as problem:  # noqa: BLE001 - it may hold anything, and the others are reported all the same
            return unreadable(name, describe(problem))
        judged = report.format == "1.1" and report.state != "workspace"
        if not judged or report.bytes.failures or report.structure.failures:
            return report
        return attrs.evolve(report, decisions=self._decisions(place))

    def _declared(self, digest: str) -> Mapping[str, Validator] | None:
        """Return the validators of the event types that a charter declares; ``None`` where it is not at hand."""
        if digest not in self._types:
            charter = _kept_charter(self._where[1], digest) if self._where else None
            self._types[digest] = _types_of(charter) if charter else None
        return self._types[digest]

    def _decisions(self, place: Path) -> Decisions:
        try:
            return recheck(place, self._charters or (lambda _: NO_CHARTER))
        except (DeedbookError, OSError) as problem:  # sound, and not what is judged
            return Decisions(unknown={str(problem): 1}, unchecked=str(problem))


def _approvers(state: Path) -> Approvers:
    """Return how the approvers of a charter are found."""

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
