"""One large ledger, read by several processes: each takes a range of its lines, and the seams are checked.

Workers check bytes and payloads; the parent checks the relations between lines. This is for sound ledgers: after any
failure one process reads everything again and reports failures in order.
"""

import marshal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from deedbook.format import events
from deedbook.format.files import Folder
from deedbook.format.lines import Lines
from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.report import Findings

from .excisions import EXCISED
from .hashes import Chain
from .headers import MAX_LINE, Headers
from .payloads import Payloads
from .pool import map_ordered
from .structure import WATCHED

STEP: Final = 1 << 23
"""The approximate size of a range in bytes."""

Row = tuple[int, str, bytes, bytes | None, bytes, Any]
"""A line in the form of `Structure.check`; a payload without rules is ``None``, an excised one ``False``."""


class Range(NamedTuple):
    """A sound range: its *rows*, its links to the neighbouring ranges, and the sealed values beside the file."""

    rows: list[Row]
    prefix: bytes
    first: int
    before: bytes
    head: bytes
    size: int
    present: int
    absent: int
    erased: list[str]
    torn: tuple[int, int] | None


def read_ranges(path: Path, size: int, jobs: int) -> Iterator[Range | None]:
    """Yield the ranges of the ledger at *path* in order, read by *jobs* processes; ``None`` for an unsound one."""
    for encoded in map_ordered(_split(path, size), jobs, _build_reader, str(path)):
        found = marshal.loads(encoded)  # noqa: S302 - from a process of our own
        yield Range(*found) if found else None


def is_joined(before: Range | None, found: Range) -> bool:
    """Return whether a range continues the one *before* it."""
    if before is None:
        return found.first == 0
    last = before.rows[-1][0]
    return (found.prefix, found.before, found.first) == (before.prefix, before.head, last)


def _split(path: Path, size: int) -> Iterator[tuple[int, int]]:
    with Folder.at(path.parent) as folder, folder.open(path.name) as file:
        start = 0
        while start < size:
            file.seek(min(start + STEP, size))
            file.readline(MAX_LINE)
            yield start, file.tell()
            start = file.tell()


def _build_reader(path: str) -> Callable[[tuple[int, int]], bytes]:
    schemas = Schemas.load(data_folder("schemas"))

    def read(share: tuple[int, int]) -> bytes:
        where = Path(path)
        with Folder.at(where.parent) as folder, folder.open(where.name) as file:
            found = _read_range(folder, file, schemas, *share)
        return marshal.dumps(tuple(found) if found else None)

    return read


def _read_range(folder: Folder, file: BinaryIO, schemas: Schemas, start: int, end: int) -> Range | None:
    opening = file.readline(MAX_LINE)
    file.seek(start)
    match = events.HEADER.match(file.readline(MAX_LINE))
    if match is None:
        return None
    file.seek(start)
    first, stored, meaning = int(match["seq"]), Findings(), Findings()
    chain, lines = Chain(opening, payloads=True), Lines(_FilePart(file, end - start), MAX_LINE)
    headers, payloads = Headers(stored), Payloads(folder, schemas, stored, meaning)
    rows: list[Row] = []
    for number, head, rest in chain.links(lines, number=first, prev=(b"",) if start else None):
        fields = headers.read(number, head, rest)
        if fields is None:
            return None
        kind, span, parent, ts, payload = fields
        value = payloads.read(number, kind, payload, head[-153:-89])
        rows.append((number, kind, span, parent, ts, _reduce_payload(kind, value)))
    if not rows or any(found.part().failures for found in (chain.findings, stored, meaning)):
        return None
    sealed, torn = payloads.sealed, lines.torn
    return Range(
        rows, headers.prefix, first, match["prev_envelope_hash"], (chain.head or "").encode(), end - start,
        sealed.present, sealed.absent, sorted(sealed.to_erase), (start + torn.offset, torn.size) if torn else None,
    )  # fmt: skip


def _reduce_payload(kind: str, value: Any) -> Any:
    if value is EXCISED:
        return False
    return value if kind in WATCHED else None


class _FilePart:
    """The next *size* bytes of a file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int) -> bytes:
        """Return at most *size* bytes more."""
        block = self._file.read(min(size, self._left))
        self._left -= len(block)
        return block
