"""Faults of the files of pipelines. A contract that two pipelines use is checked for each, and reported once."""

from deedbook.format.errors import DomainError, fault
from deedbook.workspace.trees import SourceReader


class FaultList:
    """Records faults with a *reader*, each once."""

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader
        self._seen: set[tuple[str | None, str]] = set()

    @property
    def count(self) -> int:
        """How many faults there are, of whatever file."""
        return len(self._reader.faults)

    def add(self, found: DomainError) -> None:
        """Record a fault."""
        if (found.place, found.message) not in self._seen:
            self._seen.add((found.place, found.message))
            self._reader.faults.append(found)

    def refuse(self, why: str, place: str) -> None:
        """Record a fault of a file: *why*, at *place*."""
        self.add(fault("SOURCE_INVALID", why, place=place))
