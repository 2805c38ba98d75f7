"""An independent reader of ledgers: bytes and structure, line by line, in flat memory.

It shares only the format with the writer, so that a writer's mistake cannot hide itself. A line is first proved sound
in the fewest steps; only a failing line is examined closely, to find the rule that it breaks.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeAlias

import attrs

from deedbook.format import events
from deedbook.format.errors import LedgerError
from deedbook.format.families import CATALOGUE
from deedbook.format.files import Folder
from deedbook.format.lines import Lines, TornBytes, Watch
from deedbook.format.schema import Schemas, Validator
from deedbook.plugins.event_families import declared_family, read_granted_families
from deedbook_audit.upcasting.naming import split_source
from deedbook_audit.upcasting.recognition import recognise
from deedbook_audit.verification import ranges
from deedbook_audit.verification.excisions import EXCISED
from deedbook_audit.verification.hashes import Chain
from deedbook_audit.verification.headers import MAX_LINE, Headers
from deedbook_audit.verification.older import verify_older
from deedbook_audit.verification.payloads import UNDECLARED, Declared, Payloads, SealedFiles, no_charter
from deedbook_audit.verification.structure import Structure

from .approval_rules import Approvers
from .report import UNWITNESSED, Findings, Part, Report
from .skip_rules import FAMILY as SKIPPING

__all__ = ["MAX_LINE", "Level", "verify_file"]

Level: TypeAlias = Literal["chain", "hashes", "full"]
"""``chain``: each header's hash and that of the one before. ``hashes``: the payload's hash, too. ``full``: also the
template, the canonical form, sealed values beside the file, and structure."""


def verify_file(
    path: str | Path,
    *,
    schemas: Schemas,
    level: Level = "full",
    declared: Declared = no_charter,
    approvers: Approvers | None = None,
    jobs: int = 1,
    watch: Watch | None = None,
) -> Report:
    """Check the ledger at *path*, of the present form or an older one; everything is opened for reading only.

    *declared* returns the event types that a charter declares; *approvers* tells whose keys a charter declares,
    without it signatures are checked with the keys that the ledger itself names. Sealed values are looked for in the
    folder ``sealed`` beside the file. A large ledger is read by *jobs* processes at once; *watch* is told of every so
    many bytes that were read. Raises `FileNotFoundError`, and `FileRefused` for what is no regular file.
    """
    where, _ = split_source(path)
    with Folder.at(where.parent) as folder, folder.open(where.name) as file:
        form = recognise(file) or events.FORMAT
        file.seek(0)
        opening = file.readline(MAX_LINE)
        file.seek(0)
        if form != events.FORMAT:
            return verify_older(str(path), form, Lines(file, MAX_LINE, watch))
        run = _Run(str(path), level, file, Chain(opening, payloads=level != "chain"), watch)
        if level != "full":
            return run.hashes()
        if jobs > 1 and (found := run.read_in_parallel(folder, where, approvers, jobs)):
            return found
        return run.full(folder, schemas, declared, _charter_of(opening), approvers)


@attrs.frozen
class _Run:
    """One verification of a file of format 1.1."""

    path: str
    level: Level
    file: BinaryIO
    chain: Chain
    watch: Watch | None

    def hashes(self) -> Report:
        lines = Lines(self.file, MAX_LINE, self.watch)
        for _ in self.chain.links(lines, quiet=True):
            pass
        return self._report(lines.torn, "unknown", Part(), ("template, canonical form and structure were not checked",))

    def full(
        self, folder: Folder, schemas: Schemas, declared: Declared, charter: str, approvers: Approvers | None
    ) -> Report:
        families: set[str] = set()
        types = declared(charter) if charter else UNDECLARED
        known = types is not None
        granted = read_granted_families()
        lines, stored, meaning = Lines(self.file, MAX_LINE, self.watch), self.chain.findings, Findings()
        structure = self._build_structure(meaning, approvers)
        headers, payloads = Headers(stored), Payloads(folder, schemas, stored, meaning, types)
        for number, head, rest in self.chain.links(lines):
            fields = headers.read(number, head, rest)
            if fields:
                meaning.checked += 1
                kind, span, parent, ts, payload = fields
                if kind not in CATALOGUE and (family := declared_family(kind, granted)):
                    families.add(family)
                value = payloads.read(number, kind, payload, head[-153:-89] if rest else b"")
                if kind == "ledger.charter" and self.chain.workspace:
                    payloads.declare(_declared_by(value, declared))
                structure.check(number, kind, span, parent, ts, value)
                if kind == "session.resumed" and isinstance(value, dict):
                    types = declared(str(value.get("charter")))
                    known = known and types is not None
                    payloads.use_charter(types)
        report = self._finish(structure, meaning, payloads.sealed, lines.torn)
        return _with_families(report, families, known=known and payloads.known) if families else report

    def _build_structure(self, meaning: Findings, approvers: Approvers | None) -> Structure:
        return Structure(meaning, workspace=self.chain.workspace, approvers=approvers, session=self.chain.session_id)

    def read_in_parallel(self, folder: Folder, place: Path, approvers: Approvers | None, jobs: int) -> Report | None:
        """Verify a large ledger with *jobs* processes; ``None`` if it is small, or not sound."""
        size = os.fstat(self.file.fileno()).st_size
        if size < 2 * ranges.STEP:
            return None
        meaning, sealed, last = Findings(), SealedFiles(folder, self.chain.findings), None
        structure = self._build_structure(meaning, approvers)
        for found in ranges.read_ranges(place, size, jobs):
            if found is None or not ranges.is_joined(last, found):
                return None
            meaning.checked += len(found.rows)
            for number, kind, span, parent, ts, value in found.rows:
                structure.check(number, kind, span, parent, ts, EXCISED if value is False else value)
            sealed.present, sealed.absent = sealed.present + found.present, sealed.absent + found.absent
            sealed.to_erase.update(found.erased)
            if self.watch:
                self.watch(found.size)
            last = found._replace(rows=found.rows[-1:])
        if last is None:
            return None
        self.chain.findings.checked, self.chain.head = last.rows[-1][0], last.head.decode()
        return self._finish(structure, meaning, sealed, TornBytes(*last.torn) if last.torn else None)

    def _finish(self, structure: Structure, meaning: Findings, sealed: SealedFiles, torn: TornBytes | None) -> Report:
        for line in self._find_duplicates(frozenset(structure.finish())):
            meaning.add(line, "span", "a span that no earlier line has", "one that an earlier line has")
        state = "workspace" if self.chain.workspace else "ended" if structure.ended else "open"
        return self._report(torn, state, meaning.part(), (*structure.notes(), *sealed.notes()))

    def _find_duplicates(self, spans: frozenset[bytes]) -> Iterator[int]:
        """Yield each line with one of *spans* that an earlier line also has."""
        if not spans:
            return
        self.file.seek(0)
        seen: set[bytes] = set()
        for number, line in enumerate(Lines(self.file, MAX_LINE), 1):
            match = events.HEADER.match(line)
            if match and match["span_id"] in spans:
                if match["span_id"] in seen:
                    yield number
                seen.add(match["span_id"])

    def _report(self, torn: TornBytes | None, state: str, structure: Part, notes: tuple[str, ...]) -> Report:
        return Report(
            file=self.path,
            format=events.FORMAT,
            level=self.level,
            session_id=self.chain.session_id,
            state=state,
            events=self.chain.findings.checked,
            head=self.chain.head,
            bytes=self.chain.findings.part(),
            structure=structure,
            notes=(UNWITNESSED, *notes),
            torn=torn,
        )


def _charter_of(opening: bytes) -> str:
    """Return the digest of the charter that a session's first line names; empty for any other line."""
    try:
        line = events.split_line(opening)
        found = line.event.payload.get("charter") if line.event_type == "session.start" else ""
    except (LedgerError, ValueError, AttributeError):
        return ""
    return found if isinstance(found, str) else ""


def _declared_by(payload: Any, declared: Declared) -> Mapping[str, Validator] | None:
    """Return the event types that the charter of a ``ledger.charter`` declares; ``None`` if it is not at hand."""
    digest = payload.get("digest") if isinstance(payload, dict) else None
    return declared(digest) if isinstance(digest, str) else None


RULED: Final = frozenset({"workflow", SKIPPING})
"""The families of event types that charters declare and that have rules of their own here."""


def _with_families(report: Report, families: Collection[str], *, known: bool) -> Report:
    """Return *report* with what was not checked of the events of plugins."""
    unruled = sorted({*families} - RULED if known else families)
    if not unruled:
        return report
    names = ", ".join(unruled)
    note = f"events of plugins: the rules of {names} were not checked"
    more = "" if known else ", nor their payloads: the charter that declares them is not at hand"
    return attrs.evolve(report, notes=(*report.notes, note + more), families=tuple(unruled))
