"""The headers of one ledger's lines, after a proof that they have the format's one spelling."""

import re
from typing import Final, TypeAlias

from deedbook.format import events
from deedbook_audit.report import Findings

from .hashes import BEHIND, MARK

MAX_LINE: Final = events.MAX_PAYLOAD + 1024

HeaderFields: TypeAlias = tuple[str, bytes, bytes | None, bytes, bytes]
"""The fields of a line: its event's type, span, parent and ts, the last three as bytes, and the payload."""

_BEFORE, _TYPED, _AFTER = events.HEADER.pattern.partition(rb'","event_type"')
_LABEL: Final = re.compile(_TYPED + _AFTER.partition(rb',"span_id"')[0])
_SECOND: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_THOUSANDTHS: Final = frozenset(b".%03dZ" % n for n in range(1000))
_HEX: Final = b"0123456789abcdef"
_NO_SPAN: Final = b"0000000000000000"
_MAX_LABELS: Final = 4096


class Headers:
    """The headers of one ledger, in the order of its lines; failures go to *findings*.

    All lines share a prefix, which ends with ``"seq":``. A line is proved by comparing the bytes at the places that the
    format gives, counted from both ends of the header; only a line that differs is matched with the whole pattern.
    """

    def __init__(self, findings: Findings) -> None:
        self.prefix = b""
        self._findings = findings
        self._other_seq = -1
        self._labels: dict[bytes, str] = {}
        self._types: dict[bytes, str] = {}
        self._ts = b""

    def read(self, number: int, head: bytes, rest: bytes) -> HeaderFields | None:
        """Return the fields of the line (see `Link`); ``None`` for an unreadable one."""
        seq = number - 1
        start = b'%b%d,"ts":"' % (self.prefix, seq)
        at = len(start)
        ts, span, parent = head[at : at + 24], head[-223:-207], head[-187:-171]
        kind = self._labels.get(head[at + 24 : -235])
        if (
            kind
            and rest
            and head.startswith(start)
            and head[-235:-223] == b',"span_id":"'
            and head[-207:-187] == b'","parent_span_id":"'
            and head[-171:-153] == b'","payload_hash":"'
            and not span.strip(_HEX)
            and not parent.strip(_HEX)
            and (ts == self._ts or self._is_time(ts))
            and span != _NO_SPAN
        ):
            return kind, span, parent, ts, rest[BEHIND:-2]
        return self._match_header(number, b"%b%b%b" % (head, MARK, rest[:-1]) if rest else head, seq)

    def _is_time(self, ts: bytes) -> bool:
        if ts[19:] not in _THOUSANDTHS or (ts[:19] != self._ts[:19] and not _SECOND.fullmatch(ts, 0, 19)):
            return False
        self._ts = ts
        return True

    def _match_header(self, number: int, line: bytes, seq: int) -> HeaderFields | None:
        """Match the whole header, and compare the part that all lines share."""
        match = events.HEADER.match(line)
        if match is None:
            self._explain(number, line)
            return None
        self.prefix = self.prefix or line[: match.start("seq")]
        if not line.startswith(self.prefix):
            self._findings.add(number, "session_id, trace_id", "those of the first line", line[: match.start("seq")])
        if match["seq"] != b"%d" % seq:
            self._explain_seq(number, seq, int(match["seq"]))
        if match["span_id"] == _NO_SPAN:
            self._findings.add(number, "span_id", "not all zero", match["span_id"])
        kind = self._resolve_type(number, match["event_type"])
        label = line[match.end("ts") : match.end("principal") + 1 if match["principal"] else line.index(b',"span_id"')]
        if kind and _LABEL.fullmatch(label):
            if len(self._labels) >= _MAX_LABELS:
                self._labels.clear()
            self._labels[label] = kind
        return (
            kind or match["event_type"].decode(),
            match["span_id"],
            match["parent_span_id"],
            match["ts"],
            line[match.end() : -1],
        )

    def _resolve_type(self, number: int, kind: bytes) -> str:
        """Return the current name of an event type; empty if the format has no such type."""
        if kind not in self._types:
            text = kind.decode()
            if not events.EVENT_TYPE.fullmatch(text):
                self._findings.add(number, "event_type", "at most 64 characters", kind)
                return ""
            self._types[kind] = events.ALIASES.get(text, text)
        return self._types[kind]

    def _explain_seq(self, number: int, expected: int, found: int) -> None:
        """Report a wrong number: either this line was changed and the next one continues, or lines are missing."""
        if found != self._other_seq:
            self._findings.add(number, "seq", str(expected), str(found))
        self._other_seq = found + 1

    def _explain(self, number: int, line: bytes) -> None:
        if len(line) > MAX_LINE:
            self._findings.add(number, "size", f"a line of at most {MAX_LINE} bytes", "a longer one")
            return
        if self._findings.is_full("header"):
            self._findings.count("header")
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
