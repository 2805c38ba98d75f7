"""The hashes of one ledger, line by line: each header's own, the previous line's, and the payload's."""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from deedbook.format import events
from deedbook.format.lines import Lines
from deedbook_audit.report import Findings

from .excisions import Excisions

WORKSPACE_ID: Final = re.compile(rb"ws-[0-9a-f]{32}")
OPENING: Final = re.compile(rb'\{"schema_version":"1\.1","session_id":"([A-Za-z0-9][A-Za-z0-9_-]{0,127})"')

_BEGINNING: Final = b'{"schema_version":"1.1","session_id":"'

MARK: Final = b',"envelope_hash":"'
"""The end of a header, at its first occurrence."""
BEHIND: Final = 76
"""The position of the payload after the mark: after 64 hex digits and ``","payload":``."""

_ENDING: Final = re.compile(rb'"payload_hash":"([0-9a-f]{64})","prev_envelope_hash":"([0-9a-f]{64})"\Z')
_CLOSING: Final = re.compile(rb'([0-9a-f]{64})","payload":(?=\{)')
_NEWLINE: Final = 10
_NO_HASH: Final = b"-"
_ANY: Final = (b"",)
"""The expected previous hash if it is unknown."""


class Link(NamedTuple):
    """A line with checked hashes: its *number*, its header without envelope hash, and the rest after `MARK`.

    If a hash is wrong, *rest* is empty and *head* the whole line.
    """

    number: int
    head: bytes
    rest: bytes


class Chain:
    """The hashes of one ledger, line by line.

    *opening* is the beginning of the file.
    """

    def __init__(self, opening: bytes, *, payloads: bool) -> None:
        self.findings = Findings()
        found = OPENING.match(opening)
        self.session_id = found[1].decode() if found else None
        self.workspace = bool(found and WORKSPACE_ID.fullmatch(found[1]))
        self.head: str | None = None
        self.excisions = Excisions()
        self._payloads = payloads

    def links(
        self, lines: Lines, *, quiet: bool = False, number: int = 0, prev: bytes | tuple[bytes, ...] | None = None
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield every line (`Link`) once its hashes are checked; if *quiet*, only those that fail.

        *number* lines come before, the last of which has the hash *prev*. Lines without a header are only counted after
        enough of them were yielded.
        """
        payloads, excised, line = self._payloads, self.excisions.open, b"\n"
        expected: bytes | tuple[bytes, ...] = self._first() if prev is None else prev
        for line in lines.whole():
            head, _, rest = line.partition(MARK)
            own = sha256(head).hexdigest().encode() if rest else _NO_HASH
            if (
                rest[:64] == own
                and (head[-65:-1] == expected or _may_name(head, expected))
                and (not payloads or _payload_fits(head, rest) or self.excisions.accept(number + 1, head, rest))
            ):
                number += 1
                expected = own
                if excised:
                    self.excisions.apply(head, rest)
                if quiet:
                    continue
            elif line[-1] != _NEWLINE:
                break
            elif not rest and len(line) < events.MAX_PAYLOAD and self.findings.is_full("header"):
                number, expected = number + 1, _ANY
                self.findings.count("header")
                continue
            else:
                number += 1
                expected = self._explain(number, line[:-1], expected)
                head, rest = line[:-1], b""
            yield number, head, rest
        else:
            if line[-1] != _NEWLINE:  # torn after its hashes, the only part that is checked here
                number, expected = number - 1, line.partition(MARK)[0][-65:-1]
        self.findings.checked = number
        self._finish(expected, torn=line[-1] != _NEWLINE and _may_begin(line))

    def _finish(self, last: bytes | tuple[bytes, ...], *, torn: bool) -> None:
        number = self.findings.checked
        if not number:
            if not torn:  # else the first line is torn, which the report says
                self.findings.add(0, "empty", "at least one line", "none")
        elif self.session_id is None:
            self.findings.add(1, "header", 'schema_version "1.1" and a session id at its beginning', "something else")
        self.excisions.report(self.findings)
        head = last[0] if isinstance(last, tuple) else last
        self.head = head.decode() if number and head else None

    def _first(self) -> bytes | tuple[bytes, ...]:
        if self.session_id is None:
            return _ANY
        first = events.first_workspace_hash if self.workspace else events.first_hash
        return first(self.session_id).encode()

    # --- failures ----------------------------------------------------------------------------------------------------

    def _explain(self, number: int, line: bytes, prev: bytes | tuple[bytes, ...]) -> tuple[bytes, bytes]:
        """Report which hash is wrong; return the hashes that the next line may name: the stored and the computed one.

        Either may be the changed one, and this line is reported already. Empty means unknown.
        """
        header, _, rest = line.partition(MARK)
        before, after = _ENDING.search(header), _CLOSING.match(rest)
        if not (before and after and rest.endswith(b"}")):
            self.findings.add(
                number, "header", "…_hash of 64 hex digits each, then the payload, then }", _excerpt(line)
            )
            return after[1] if after else b"", b""
        own = sha256(header).hexdigest().encode()
        self._compare(number, "envelope_hash", own, after[1])
        if not before[2].startswith(prev):
            self._compare(number, "prev_envelope_hash", prev[0] if isinstance(prev, tuple) else prev, before[2])
        if self._payloads:
            self._compare(number, "payload_hash", sha256(rest[after.end() : -1]).hexdigest().encode(), before[1])
        return after[1], own

    def _compare(self, number: int, check: str, expected: bytes, found: bytes) -> None:
        if expected == found:
            return
        if self.findings.is_full(check):
            self.findings.count(check)
        else:
            self.findings.add(number, check, expected.decode(), found)


def _may_begin(torn: bytes) -> bool:
    """Return whether *torn* may be the crashed first line of a ledger: its beginning, or zeros in its place."""
    return torn.startswith((b"\0", _BEGINNING)) or _BEGINNING.startswith(torn)


def _may_name(head: bytes, expected: bytes | tuple[bytes, ...]) -> bool:
    """Return whether a header names one of several hashes as the previous one; an empty one matches any."""
    return isinstance(expected, tuple) and head[-65:-1].startswith(expected)


def _payload_fits(head: bytes, rest: bytes) -> bool:
    """Return whether the payload is in its place and has the hash that the header names."""
    return (
        rest[64:77] == b'","payload":{'
        and sha256(rest[76:-2]).hexdigest().encode() == head[-153:-89]
        and head[-169:-153] == b'"payload_hash":"'
        and head[-89:-65] == b'","prev_envelope_hash":"'
        and rest.endswith(b"}\n")
    )


def _excerpt(line: bytes) -> bytes:
    return line[-100:] if MARK in line else line[:100]
