"""An independent reader of ledgers: bytes and structure, line by line, in flat memory.

It shares the format with the writer and nothing else, so that a writer's mistake cannot hide itself. A line is first
proved sound in the fewest steps; only one that is not is looked at closely, to say which rule it breaks.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import attrs

from . import canonical, events
from .approvals.consents import Approvers
from .errors import DeedbookError, IntakeError
from .files import Folder
from .schema import Schemas, Validator
from .terminal import excerpt
from .upcasting.seed_000 import FORM
from .upcasting.table import form_of
from .verification import envelope_1_0, seed_000
from .verification.excisions import EXCISED, EXCISED_LENGTH, Excisions, is_excised
from .verification.lines import Lines
from .verification.report import UNWITNESSED, Findings, Part, Report
from .verification.structure import Header, Structure

Level: TypeAlias = Literal["chain", "hashes", "full"]
"""``chain``: each header's hash and that of the one before. ``hashes``: the payload's hash, too. ``full``: also the
template, the canonical form, sealed values beside the file, and structure."""

MAX_LINE: Final = events.MAX_PAYLOAD + 1024
SALT: Final = 32
WORKSPACE_ID: Final = re.compile(rb"ws-[0-9a-f]{32}")

_MARK: Final = b',"envelope_hash":"'
_SHORTEST: Final = 390
"""No header of the format is shorter, so the mark is looked for behind it."""
_OPENING: Final = re.compile(rb'\{"schema_version":"1\.1","session_id":"([A-Za-z0-9][A-Za-z0-9_-]{0,127})"')
_VARYING: Final = re.compile(b',"ts"' + events.HEADER.pattern.split(b',"ts"')[1].split(b"(?P<payload_hash>")[0])
"""The part of a header from ``ts`` to where the payload's hash begins: what hashes and the first line do not fix."""
_ENDING: Final = re.compile(rb'"payload_hash":"([0-9a-f]{64})","prev_envelope_hash":"([0-9a-f]{64})"\Z')
_CLOSING: Final = re.compile(rb'([0-9a-f]{64})","payload":(?=\{)')
_HEX64: Final = re.compile("[0-9a-f]{64}")
_UNDECLARED: Final[Mapping[str, Validator]] = MappingProxyType({})


def verify_file(
    path: str | Path,
    *,
    schemas: Schemas,
    level: Level = "full",
    declared: Mapping[str, Validator] = _UNDECLARED,
    approvers: Approvers | None = None,
) -> Report:
    """Check the ledger at *path*, of format 1.1 or 1.0, and report; everything is opened for reading only.

    *declared* holds validators of event types that a charter added; *approvers* tells whose keys a charter declares,
    without it signatures are checked with the keys that the ledger itself names. Sealed values are looked for in the
    folder ``sealed`` beside the file. Raises `FileNotFoundError`, and `FileRefused` for what is no regular file.
    """
    where = Path(path)
    with Folder.at(where.parent) as folder, folder.open(where.name) as file:
        opening = file.readline(MAX_LINE)
        file.seek(0)
        lines = Lines(file, MAX_LINE)
        form = form_of(opening)
        if form != events.FORMAT:
            return (seed_000.verify if form == FORM else envelope_1_0.verify)(str(path), lines)
        run = _Run(str(path), level, lines, Chain(opening, payloads=level != "chain"))
        return run.full(folder, schemas, declared, approvers) if level == "full" else run.hashes()


@attrs.frozen
class _Run:
    """One verification of a file of format 1.1."""

    path: str
    level: Level
    lines: Lines
    chain: "Chain"

    def hashes(self) -> Report:
        for _ in self.chain.links(self.lines):
            pass
        return self._report("unknown", Part(), ("template, canonical form and structure were not checked",))

    def full(
        self, folder: Folder, schemas: Schemas, declared: Mapping[str, Validator], approvers: Approvers | None
    ) -> Report:
        findings = Findings()
        structure = Structure(schemas, findings, workspace=self.chain.workspace, declared=declared, approvers=approvers)
        reading = Reading(folder, self.chain.findings)
        for number, line, cut in self.chain.links(self.lines):
            header, payload = reading.read(number, line, cut)
            if header:
                structure.check(header, payload)
        state = "workspace" if self.chain.workspace else "ended" if structure.ended else "open"
        return self._report(state, findings.part(), (*structure.notes(), *reading.notes()))

    def _report(self, state: str, structure: Part, notes: tuple[str, ...]) -> Report:
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
            torn=self.lines.torn,
        )


# --- hashes and chain -------------------------------------------------------------------------------------------------


class Chain:
    """The hashes of one ledger, line by line."""

    def __init__(self, opening: bytes, *, payloads: bool) -> None:
        self.findings = Findings()
        found = _OPENING.match(opening)
        self.session_id = found[1].decode() if found else None
        self.workspace = bool(found and WORKSPACE_ID.fullmatch(found[1]))
        self.head: str | None = None
        self._payloads = payloads
        self._excisions = Excisions()

    def links(self, lines: Lines) -> Iterator[tuple[int, bytes, int]]:
        """Yield every line with its number and where its header ends, once its hashes are checked; -1 if they fail."""
        payloads, number, own = self._payloads, 0, b""
        prev: bytes | tuple[bytes, ...] = self._first()
        for number, line in enumerate(lines, 1):
            cut = line.find(_MARK, _SHORTEST)
            own = sha256(line[:cut]).hexdigest().encode()
            if not (
                cut > 0
                and line.startswith(own, cut + 18)
                and line.startswith(prev, cut - 65)
                and (not payloads or _payload_fits(line, cut))
            ):
                if self._excisions.take(number, line, cut, own, prev):
                    prev = own
                else:
                    own, computed = self._explain(number, line, prev)
                    prev, cut = (own, computed), -1
            else:
                prev = own
                if self._excisions.open:
                    self._excisions.look(line, cut)
            yield number, line, cut
        self._excisions.report(self.findings)
        if not number:
            self.findings.add(0, "empty", "at least one line", "none")
        elif self.session_id is None:
            self.findings.add(1, "header", 'schema_version "1.1" and a session id at its beginning', "something else")
        self.findings.checked = number
        self.head = own.decode() or None

    def _first(self) -> bytes:
        if self.session_id is None:
            return b""
        first = events.first_workspace_hash if self.workspace else events.first_hash
        return first(self.session_id).encode()

    def _explain(self, number: int, line: bytes, prev: bytes | tuple[bytes, ...]) -> tuple[bytes, bytes]:
        """Say which hash is wrong; return what the next line may name: this line's stored hash, and the computed one.

        Either may be what was changed, and this line is reported already. Empty means that nobody knows.
        """
        header, _, rest = line.partition(_MARK)
        before, after = _ENDING.search(header), _CLOSING.match(rest)
        if not (before and after and rest.endswith(b"}")):
            self.findings.add(number, "header", "…_hash of 64 hex digits each, then the payload, then }", _odd(line))
            return after[1] if after else b"", b""
        own = sha256(header).hexdigest().encode()
        self._compare(number, "envelope_hash", own, after[1])
        if not before[2].startswith(prev):
            self._compare(number, "prev_envelope_hash", prev[0] if isinstance(prev, tuple) else prev, before[2])
        if self._payloads:
            self._compare(number, "payload_hash", sha256(rest[after.end() : -1]).hexdigest().encode(), before[1])
        return after[1], own

    def _compare(self, number: int, check: str, expected: bytes, found: bytes) -> None:
        if expected != found:
            self.findings.add(number, check, expected.decode(), found)


def _payload_fits(line: bytes, cut: int) -> bool:
    """Say whether the payload is where it has to be, and has the hash that the header ending at *cut* names."""
    return (
        line.startswith(b'","payload":{', cut + 82)
        and line.startswith(sha256(line[cut + 94 : -1]).hexdigest().encode(), cut - 153)
        and line.startswith(b'"payload_hash":"', cut - 169)
        and line.startswith(b'","prev_envelope_hash":"', cut - 89)
        and line.endswith(b"}")
    )


def _odd(line: bytes) -> bytes:
    return line[-100:] if _MARK in line[_SHORTEST:] else line[:100]


# --- template, canonical form, sealed values --------------------------------------------------------------------------


class Reading:
    """One ledger's lines as events, after a proof that they are spelled in the one way the format has."""

    def __init__(self, folder: Folder, findings: Findings) -> None:
        self._findings = findings
        self._sealed = SealedFiles(folder, findings)
        self._seq, self._other_seq = 0, -1
        self._prefix = b""
        self._types: dict[bytes, str] = {}

    def read(self, number: int, line: bytes, cut: int) -> tuple[Header | None, Any]:
        """Return the line's causal fields and its payload; ``None`` for what cannot be read.

        Where the hashes hold, the header ending at *cut* is proved once what varies in it stands between the two.
        """
        seq, self._seq = self._seq, self._seq + 1
        start = b"%b%d" % (self._prefix, seq)
        match, payload = _VARYING.match(line, len(start)) if line.startswith(start) else None, cut + 94
        if match is None or match.end() != cut - 153:
            match = self._closely(number, line, seq)
            if match is None:
                return None, None
            payload = match.end()
        kind, span, parent, ts = match.group("event_type", "span_id", "parent_span_id", "ts")
        if span == b"0000000000000000":
            self._findings.add(number, "span_id", "not all zero", span)
        header = Header(number, self._types.get(kind) or self._type(number, kind), span, parent, ts)
        if len(line) - cut == EXCISED_LENGTH and is_excised(line, cut):
            return header, EXCISED
        value = self._payload(number, line[payload:-1])
        if header.type == "payload.erased":
            self._sealed.erased(value)
        return header, value

    def _closely(self, number: int, line: bytes, seq: int) -> re.Match[bytes] | None:
        """Match the whole header, and compare what all lines share."""
        match = events.HEADER.match(line)
        if match is None:
            self._explain(number, line)
            return None
        self._prefix = self._prefix or line[: match.start("seq")]
        if not line.startswith(self._prefix):
            self._findings.add(number, "session_id, trace_id", "those of the first line", line[: match.start("seq")])
        if match["seq"] != b"%d" % seq:
            self._explain_seq(number, seq, int(match["seq"]))
        return match

    def notes(self) -> Iterator[str]:
        """Yield what is known of sealed values."""
        return self._sealed.notes()

    def _type(self, number: int, kind: bytes) -> str:
        text = kind.decode()
        if events.EVENT_TYPE.fullmatch(text):
            self._types[kind] = text = events.ALIASES.get(text, text)
        else:
            self._findings.add(number, "event_type", "at most 64 characters", kind)
        return text

    def _payload(self, number: int, payload: bytes) -> Any:
        if len(payload) > events.MAX_PAYLOAD:
            self._findings.add(number, "size", f"a payload of at most {events.MAX_PAYLOAD} bytes", f"{len(payload)}")
            return None
        try:
            value = canonical.decode(payload)
            exact = canonical.encode_payload(value)
        except (ValueError, IntakeError) as problem:
            self._findings.add(number, *_unreadable(payload, problem))
            return None
        if exact != payload:
            self._findings.add(number, "canonical", *_difference(exact, payload))
        if b'"$sealed"' in payload:
            self._sealed.check(number, value)
        return value

    def _explain_seq(self, number: int, expected: int, found: int) -> None:
        """Either this line was changed, and the next one goes on as expected; or lines are missing, and it does not."""
        if found != self._other_seq:
            self._findings.add(number, "seq", str(expected), str(found))
        self._other_seq = found + 1

    def _explain(self, number: int, line: bytes) -> None:
        if len(line) > MAX_LINE:
            self._findings.add(number, "size", f"a line of at most {MAX_LINE} bytes", "a longer one")
            return
        pieces, good = events.HEADER.pattern.split(b',"'), 0
        for n in range(1, len(pieces) + 1):
            match = re.match(b',"'.join(pieces[:n]), line)
            if match is None:
                name = pieces[n - 1].partition(b'"')[0].decode() if n > 1 else "schema_version"
                self._findings.add(
                    number, "header", f"{name} as the format has it at byte {good}", line[good : good + 80]
                )
                return
            good = match.end()


def _unreadable(payload: bytes, problem: Exception) -> tuple[str, str, str]:
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError as wrong:
        return "utf-8", "well-formed UTF-8", f"{wrong.reason} at byte {wrong.start} of the payload"
    check = "canonical" if isinstance(problem, IntakeError) else "json"
    return check, "a payload of acceptable JSON", str(problem)


def _difference(expected: bytes, found: bytes) -> tuple[str, bytes]:
    """Return the canonical bytes and the stored ones, from a little before where they part."""
    at = next((i for i, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), len(expected))
    at = max(0, min(at, len(found)) - 20)
    return excerpt(expected[at : at + 80]), found[at : at + 80]


class SealedFiles:
    """The sealed values beside a ledger: each is present and is what the line commits to, or absent and counted."""

    def __init__(self, folder: Folder, findings: Findings) -> None:
        self._folder = folder
        self._findings = findings
        self._present = self._absent = 0
        self._erased: set[str] = set()

    def notes(self) -> Iterator[str]:
        """Yield how many sealed values are there, and which are there that were to be erased."""
        left = sorted(digest for digest in self._erased if self._folder.exists(f"sealed/{digest}"))
        if left:
            yield f"erasure not finished: {len(left)} sealed values are still there, such as {left[0]}"
        if self._present or self._absent:
            gone = f"{len(self._erased) - len(left)} erased" if self._erased else "erased"
            yield f"sealed values: {self._present} present, {self._absent} absent ({gone}, or not copied along)"

    def erased(self, payload: Any) -> None:
        """Take in what a ``payload.erased`` says is gone."""
        digests = payload.get("digests") if isinstance(payload, dict) else None
        if isinstance(digests, list):
            self._erased.update(each for each in digests if isinstance(each, str) and _HEX64.fullmatch(each))

    def check(self, number: int, value: Any) -> None:
        """Check every commitment inside *value*."""
        if isinstance(value, list):
            for item in value:
                self.check(number, item)
        elif isinstance(value, dict) and canonical.SEALED_KEY in value:
            self._check_one(number, value)
        elif isinstance(value, dict):
            for item in value.values():
                self.check(number, item)

    def _check_one(self, number: int, value: dict[str, Any]) -> None:
        digest, size = value[canonical.SEALED_KEY], value.get("size")
        if len(value) != 2 or not isinstance(digest, str) or not _HEX64.fullmatch(digest) or type(size) is not int:
            self._findings.add(number, "sealed", 'an object of "$sealed" (64 hex digits) and "size"', str(value))
            return
        try:
            raw = self._folder.read(f"sealed/{digest}", limit=canonical.MAX_BYTES + SALT)
        except FileNotFoundError:
            self._absent += 1
        except (DeedbookError, OSError) as problem:
            self._findings.add(number, "sealed", f"a readable file sealed/{digest}", str(problem))
        else:
            self._present += 1
            if (canonical.digest(raw), len(raw) - SALT) != (digest, size):
                found = f"{canonical.digest(raw)} with {len(raw) - SALT}"
                self._findings.add(number, "sealed", f"{digest} with {size} bytes behind the salt", found)
