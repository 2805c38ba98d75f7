"""Checking ledgers one by one or several at once: bytes, structure, and decisions where their charter is at hand."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import attrs

from deedbook.cli.common import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from deedbook.audit.charters import Charters
    from deedbook.audit.consents import Approvers
    from deedbook.format.report import Decisions, Report
    from deedbook.workspace.declarations import Workspace

    from .chosen import Chosen


def check(chosen: "Chosen", *, plugins: bool, jobs: int) -> "list[Report]":
    """Check every ledger that was chosen, with *jobs* processes: many ledgers at once, large ones one by one."""
    from deedbook.cli.progress import Reading

    sizes = {place: place.stat(follow_symlinks=False).st_size for place in chosen.files}
    small = [place for place, size in sizes.items() if size < LARGE]
    with Reading(sum(sizes.values())) as reading, Checker(chosen.source, plugins=plugins) as checker:
        found: dict[Path, Report] = {}
        if jobs > 1 and len(small) > 1:
            with suppress(RuntimeError):  # one of the others died: then this one does it
                for place, report in zip(small, _shared(small, chosen, plugins, jobs), strict=True):
                    found[place] = report
                    reading(sizes[place])
        return [found.get(place) or checker(place, jobs=jobs, watch=reading) for place in chosen.files]


def _shared(places: "list[Path]", chosen: "Chosen", plugins: bool, jobs: int) -> "Iterator[Report]":
    from deedbook.audit.verification.crew import ordered

    known = chosen.source
    where = (str(known.state), str(known.root)) if known else None
    return ordered(places, min(jobs, len(places)), _begun, where, plugins)


def _begun(where: tuple[str, str] | None, plugins: bool) -> "Callable[[Path], Report]":
    """Begin to check in a process of its own, which holds what it needs until it ends."""
    from deedbook.cli.ledgers import known_by

    return Checker(known_by(Path(where[0]), Path(where[1]))[0] if where else None, plugins=plugins).__enter__()


LARGE: Final = 1 << 24
"""A ledger of so many bytes is read by several processes itself."""


class Checker:
    """Checks ledgers of one workspace, or of none; hold it as a context."""

    def __init__(self, source: "Workspace | None", *, plugins: bool) -> None:
        from deedbook.format.schema import Schemas, data_folder

        self._source, self._plugins = source, plugins
        self._schemas = Schemas.load(data_folder("schemas"))
        self._held = ExitStack()
        self._charters: Charters | None = None

    def __enter__(self) -> Self:
        from deedbook.format.errors import DeedbookError

        if self._source:
            from deedbook.audit.charters import charters_of

            with suppress(DeedbookError, OSError):  # then none is at hand
                held = charters_of(self._source.root, self._source.state, self._schemas, plugins=self._plugins)
                self._charters = self._held.enter_context(held)
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def __call__(self, place: Path, *, jobs: int = 1, watch: "Callable[[int], None] | None" = None) -> "Report":
        """Check the ledger at *place*; *watch* is told how many bytes were read.

        What cannot be read is reported so, if it belongs to the workspace: it hides nothing of the others.
        """
        from deedbook.audit.verify import verify_file
        from deedbook.format.errors import FileRefused, describe
        from deedbook.format.report import unreadable

        approvers = _approvers(self._source) if self._source else None
        try:
            report = verify_file(shown(place), schemas=self._schemas, approvers=approvers, jobs=jobs, watch=watch)
        except (FileRefused, OSError) as problem:
            if self._source is None or not place.is_relative_to(self._source.state):
                raise
            why = problem.error.message if isinstance(problem, FileRefused) else problem.strerror
            return unreadable(shown(place), why or str(problem))
        except Exception as problem:  # noqa: BLE001 - it may hold anything, and the others are reported all the same
            return unreadable(shown(place), describe(problem))
        judged = report.format == "1.1" and report.state != "workspace"
        if not judged or report.bytes.failures or report.structure.failures:
            return report
        return attrs.evolve(report, decisions=self._decisions(place))

    def _decisions(self, place: Path) -> "Decisions":
        from deedbook.audit.charters import NO_CHARTER
        from deedbook.audit.recheck import recheck
        from deedbook.format.errors import DeedbookError
        from deedbook.format.report import Decisions

        try:
            return recheck(place, self._charters or (lambda _: NO_CHARTER))
        except (DeedbookError, OSError) as problem:  # sound, and not what is judged
            return Decisions(unknown={str(problem): 1}, unchecked=str(problem))


def _approvers(source: "Workspace") -> "Approvers":
    """Return how the approvers of a charter are found."""
    from deedbook.charter.store import Store
    from deedbook.format.errors import DeedbookError
    from deedbook.format.files import Folder
    from deedbook.policy.requests import approvers

    def find(digest: str) -> "Mapping[str, str] | None":
        try:
            with Folder.at(source.state) as folder:
                charter = Store(folder).find(digest)
        except (DeedbookError, OSError):
            return None
        return approvers(charter.document["principals"]) if charter else None

    return find
