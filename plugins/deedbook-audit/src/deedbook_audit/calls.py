"""Reads the calls of a ledger: the caller, the ability, the arguments, the answers of gates, and the decision.

One pass in the order of the file, whose memory holds only what is open. Only lines about a decision are parsed;
outcomes of calls are skipped. This module knows no charter.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, Final, TypeAlias

import attrs

from deedbook.contract import Event, Principal
from deedbook.contract.facts import empty_facts
from deedbook.format.canonical import MAX_BYTES, decode, encode
from deedbook.format.context import REPORT
from deedbook.format.errors import DeedbookError, LedgerError, fault
from deedbook.format.events import ALIASES
from deedbook.format.families import CATALOGUE, OUTCOMES
from deedbook.format.files import Folder
from deedbook.format.lines import Lines
from deedbook.format.sealed import MASK_PREFIX, is_sealed, open_values
from deedbook.policy.callers import requested_limits
from deedbook.policy.limits import BranchLimits, compile_limits
from deedbook.policy.requests import read_statement
from deedbook.policy.subjects import is_about_subject

from .facts import FoldedFacts
from .history import JUDGE_CODES, Request, Requests, SessionInfo
from .positions import CallPosition, CallPositions
from .recorded import ERASED, EXCISED, NO_ARGUMENTS, SCRUBBED, UNKNOWN_CALLER, RecordedCall, RecordedSubject

_MAX_LINE: Final = MAX_BYTES + 65536
_SEALED: Final = b'"$sealed":'
_MARK: Final = MASK_PREFIX.encode()
_EXCISED_MARK: Final = b'"payload":{"$excised":"'
_EXCISED_AT: Final = slice(-90, -67)
_OVER: Final = {"scope": "a call that is over"}
_INTENTS: Final = {
    "tool.call": ("tool_name", "args"),
    "flow.call": ("flow", "args"),
    "llm.request": ("ability", "request"),
    "memory.call": ("ability", "args"),
}
_ENDS: Final = frozenset(outcome for outcomes in OUTCOMES.values() for outcome in outcomes)
_TS: Final = len(b',"ts":"')
_TYPE: Final = _TS + 24 + len(b'","event_type":"')
_WHO: Final = re.compile(
    rb'","actor":"[a-z]+","principal":(?:null|"([^"]+)"),"span_id":"([0-9a-f]{16})","parent_span_id":(?:null|"([0-9a-f]{16})")'
    rb',"payload_hash":"[0-9a-f]{64}","prev_envelope_hash":"[0-9a-f]{64}","envelope_hash":"[0-9a-f]{64}","payload":(?=\{)'
)
_VERSION_2: Final = b'"schema_version":"v2"'
_PARENT: Final = b'"parent_span_id":"'
_PAYLOAD: Final = b',"payload":'
_MAX_HEADER: Final = 300
_BEGIN: Final = re.compile(
    rb'\{"schema_version":"1\.1","session_id":"([A-Za-z0-9][A-Za-z0-9_-]{0,127})","trace_id":"[0-9a-f]{32}","seq":(?=0,)'
)


def read_calls(
    file: BinaryIO, place: str, folder: Folder, facts: frozenset[str] = frozenset()
) -> Iterator[RecordedCall]:
    """Yield every call of the session in *file*; sealed values are opened from *folder*, *facts* are folded.

    The facts of a call are valid until the next call is read. Raises `LedgerError` (``LEDGER_UNSOUND``) for a line that
    is not of format 1.1; hashes are not checked.
    """
    yield from (each for each in read_decisions(file, place, folder, facts) if isinstance(each, RecordedCall))


def read_decisions(
    file: BinaryIO, place: str, folder: Folder, facts: frozenset[str] = frozenset()
) -> Iterator[RecordedCall | RecordedSubject]:
    """Yield every call, as `read_calls` does, and every decision about a subject, in the order of the file."""
    yield from _CallReader(place, folder, facts).decisions(Lines(file, _MAX_LINE))


def _limits_of(payload: Any) -> tuple[BranchLimits, ...]:
    """Return the limits of a branch; raises `ValueError` for globs that do not compile."""
    limits = payload.get("limits")
    return () if limits is None else (compile_limits(str(payload["name"]), limits),)


class _BadLineError(Exception):
    """A line that does not match the template."""


class _CallReader:
    """One pass over a session's lines."""

    def __init__(self, place: str, folder: Folder, facts: frozenset[str]) -> None:
        self.place, self.folder, self.fact_names = place, folder, facts
        self.id = ""
        self.session: SessionInfo | None = None
        self.positions = CallPositions()
        self.requests = Requests()
        self.fired: _GateLine = None
        self.checked: _GateLine = None
        self.facts = FoldedFacts()
        self.tails: dict[str, int] = {}
        self.signed_calls: dict[bytes, str] = {}
        self.is_complete = True

    def decisions(self, lines: Lines) -> Iterator[RecordedCall | RecordedSubject]:
        readers = self._build_readers()
        start = 0
        for number, line in enumerate(lines, 1):
            if start == 0:
                start = self._read_first_line(line)
            comma = line.find(b",", start, start + 20)
            at = comma + _TYPE
            end = line.find(b'"', at, at + 70)
            read_event = readers.get(line[at:end])
            if read_event is not None:
                try:
                    found = (
                        read_event(line, comma, end)
                        if line[_EXCISED_AT] != _EXCISED_MARK
                        else self._read_excised(read_event, line, comma, end)
                    )
                except (_BadLineError, ValueError, KeyError, TypeError, AttributeError):
                    why = "not a line that says what its type promises; verify the file"
                    raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{self.place}:{number}")) from None
                if found is not None:
                    yield found
                    if self.fact_names and isinstance(found, RecordedCall):
                        self._fold(line, comma, end)
            elif comma < 0 or end < 0:
                why = "not a line of format 1.1; verify the file"
                raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{self.place}:{number}"))

    def _build_readers(self) -> "dict[bytes, _Reader]":
        """Return the reader of each type of event; other types are skipped."""
        readers: dict[str, _Reader] = {
            "session.start": self._start,
            "session.resumed": self._resume_session,
            "user.message": self._message,
            "skill.invoke": self._skill,
            "skill.complete": self._skill_end,
            "agent.transition": self._role,
            "run.branch": self._branch,
            "tool.denied": self._read_denied,
            "approval.resumed": self._read_resumed,
            "approval.requested": self._read_requested,
            "approval.granted": self._read_granted,
            "task.started": self._follow_cause,
            "action.received": self._follow_cause,
            "approval.deferred": self._read_deferred,
            "approval.served": self._read_deferred,
            "hook.fired": self._hooks,
            "policy.check": self._policies,
            **dict.fromkeys(_INTENTS, self._intent),
            **dict.fromkeys(_ENDS, self._end),
            "llm.response": self._answer,
        }
        if self.fact_names:
            readers |= {name: self._fold for name in CATALOGUE if name.startswith("context.") or name == REPORT}
        old = {name: readers[now] for name, now in ALIASES.items() if now in readers}
        return {name.encode(): read_event for name, read_event in (readers | old).items()}

    def _read_first_line(self, line: bytes) -> int:
        """Return the position of the sequence number, which is the same in every line."""
        found = _BEGIN.match(line)
        if not found:
            why = "not the first line of a session of format 1.1; verify the file"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{self.place}:1"))
        self.id = found[1].decode()
        return found.end()

    def _read_excised(
        self, read_event: "_Reader", line: bytes, comma: int, end: int
    ) -> RecordedCall | RecordedSubject | None:
        """Read a line whose payload was excised: only its header is known."""
        who, kind = _header(line, end), line[comma + _TYPE : end].decode()
        kind = ALIASES.get(kind, kind)
        if kind in ("skill.invoke", "agent.transition", "run.branch"):
            return None  # the callers below it are unknown
        if kind == "session.resumed":
            self._set_charter("", "enforce")
            return None
        if kind == "hook.fired":
            self.fired = line, end
        elif kind == "approval.requested":
            self._take_gate_records(who[3])
            self.signed_calls[who[2]] = ""
        elif kind in _INTENTS or kind == "tool.denied":
            call = self._build_call(line, comma, who, kind, self.positions.find(who[3]))
            call.why = EXCISED
            if kind in _INTENTS:
                self.positions.open(who[2], None, kind, "")
            if kind == "llm.request":
                self.positions.record_model_call(who[2], who[3])
            return self._with_gate_records(call, who[3], b"")
        else:
            return read_event(line, comma, end)
        return None

    # --- callers -----------------------------------------------------------------------------------------------------

    def _start(self, line: bytes, comma: int, end: int) -> None:
        who = _header(line, end)
        payload = self._payload(line, who)
        principal = payload["principal"]
        self.session = SessionInfo(
            self.id,
            Principal(principal["id"], principal["via"], frozenset(principal["roles"]), principal["on_behalf_of"]),
            payload["charter"],
            payload["enforcement"],
            payload.get("mode", "interactive"),
        )
        self.positions.begin(who[2])
        if self.fact_names:
            self._fold(line, comma, end)

    def _resume_session(self, line: bytes, _comma: int, end: int) -> None:
        """Apply that the session goes on under another charter, perhaps; later calls are judged under that."""
        payload = self._payload(line, _header(line, end))
        self._set_charter(payload["charter"], payload["enforcement"])

    def _set_charter(self, charter: str, enforcement: str) -> None:
        if self.session is None:
            raise _BadLineError
        self.session = attrs.evolve(self.session, charter=charter, enforcement=enforcement)

    def _message(self, line: bytes, _comma: int, end: int) -> None:
        self.positions.begin(_header(line, end)[2])

    def _skill(self, line: bytes, _comma: int, end: int) -> None:
        who = _header(line, end)
        self.positions.enter(who[2], who[3], "skill", str(self._payload(line, who)["skill"]))

    def _skill_end(self, line: bytes, _comma: int, end: int) -> None:
        self.positions.leave(_header(line, end)[3])

    def _role(self, line: bytes, _comma: int, end: int) -> None:
        who = _header(line, end)
        self.positions.enter(who[2], who[3], "role", str(self._payload(line, who)["to"]))

    def _branch(self, line: bytes, _comma: int, end: int) -> None:
        who = _header(line, end)
        payload = self._payload(line, who)
        allowed = payload["allowed"]
        within = None if allowed is None else frozenset(allowed)
        self.positions.branch(who[2], who[3], within, payload.get("skill"), _limits_of(payload))

    def _end(self, line: bytes, _comma: int, end: int) -> None:
        at = line.index(_PARENT, end, end + _MAX_HEADER) + len(_PARENT)
        self.positions.close(line[at : at + 16], None)

    def _answer(self, line: bytes, comma: int, end: int) -> None:
        who = _header(line, end)
        self.positions.close(who[3], who[2])
        if self.fact_names:
            self._fold(line, comma, end)

    # --- approvals ---------------------------------------------------------------------------------------------------

    def _read_resumed(self, line: bytes, _comma: int, end: int) -> None:
        self.positions.resume(_header(line, end)[2])

    def _read_requested(self, line: bytes, comma: int, end: int) -> None:
        who = _header(line, end)
        try:
            payload = self._payload(line, who)
        except (DeedbookError, OSError):
            return  # the sealed value was erased: the caller is unknown
        requested_limits(payload)  # globs that do not compile are no record of this program
        self.positions.request(who[2], who[3], payload)
        fired, checked = self._take_gate_records(who[3])
        self.requests.add(who[2], Request(_timestamp(line, comma), who[3], payload, fired, checked, self.session))

    def _read_granted(self, line: bytes, _comma: int, end: int) -> None:
        who = _header(line, end)
        self.positions.follow(who[2], self.positions.find(who[3]))
        self.requests.grant(who[3], who[2])
        if who[3] in self.signed_calls:
            with suppress(DeedbookError, OSError):  # a failure is no answer, which the structure check reports
                self.signed_calls[who[2]] = str(read_statement(self._payload(line, who)["signed"]).get("call"))

    def _follow_cause(self, line: bytes, _comma: int, end: int) -> None:
        """Give a task's run, or an action, the position of its cause: its calls hang below it."""
        who = _header(line, end)
        self.positions.follow(who[2], self.positions.find(who[3]))

    def _read_deferred(self, line: bytes, comma: int, end: int) -> None:
        who = _header(line, end)
        self.positions.follow(who[2], self.positions.find(who[3]))
        fired, checked = self._take_gate_records(who[3])
        self.requests.defer(who[2], Request(_timestamp(line, comma), who[3], {}, fired, checked, self.session))

    # --- records of gates --------------------------------------------------------------------------------------------

    def _hooks(self, line: bytes, _comma: int, end: int) -> None:
        if b'"event":"PreToolUse"' in line:
            self.fired = line, end

    def _policies(self, line: bytes, comma: int, end: int) -> RecordedSubject | None:
        """Keep the answers of policies for the call that follows, or return the decision about a subject."""
        if _VERSION_2 in line:
            who = _header(line, end)
            payload = decode(line[who.end() : -1])
            if is_about_subject(payload):
                return self._subject(line, comma, who, payload)
        self.checked = line, end
        return None

    def _subject(self, line: bytes, comma: int, who: re.Match[bytes], payload: Any) -> RecordedSubject:
        call = self._build_call(line, comma, who, "policy.check", self.positions.find(who[3]))
        found = RecordedSubject(call.session, call.seq, call.ts, call.span, call.principal, call.position)
        found.folded, found.had_recently = call.folded, call.had_recently
        try:
            payload = open_values(self.folder, payload)
        except (DeedbookError, OSError):
            found.why = ERASED
            return found
        found.line, found.facts = payload["asked"][0], payload.get("facts", {})
        found.policy = str(found.line["policy"])
        found.name, found.value = str(payload["subject"]["name"]), payload["subject"]["value"]
        if _MARK in encode(found.value):
            found.why = SCRUBBED
        elif found.position is None:
            found.why = UNKNOWN_CALLER
        return found

    def _take_gate_records(self, cause: bytes) -> Iterator[bytes | None]:
        """Yield the gate records of the call being read: they stand right before it, under the same cause."""
        for gate_line in (self.fired, self.checked):
            found = None
            if gate_line is not None:
                line, end = gate_line
                at = line.index(_PARENT, end, end + _MAX_HEADER) + len(_PARENT)
                if line[at : at + 16] == cause:
                    found = line[line.index(_PAYLOAD, at) + len(_PAYLOAD) : -1]
            yield found
        self.fired = self.checked = None

    # --- calls -------------------------------------------------------------------------------------------------------

    def _intent(self, line: bytes, comma: int, end: int) -> RecordedCall:
        who = _header(line, end)
        cause, kind = who[3], line[comma + _TYPE : end].decode()
        kind = ALIASES.get(kind, kind)
        position = self.positions.find(cause)
        payload = line[who.end() : -1]
        members = decode(payload)
        named, holds = _INTENTS[kind]
        ability, args = members[named], members[holds]
        call = self._build_call(line, comma, who, kind, position)
        if _SEALED in payload:
            ability, args = self._unseal(call, ability), self._unseal(call, args)
            call.raw = call.final = b"" if call.why else encode(args)
        else:
            call.raw = call.final = self._cut_args(payload, ability, args, holds)
        call.ability, call.args = ability if type(ability) is str else "", args
        self.positions.open(who[2], position, kind, call.ability)
        if kind == "llm.request":
            self.positions.record_model_call(who[2], cause)
        return self._with_gate_records(call, cause, payload)

    def _cut_args(self, payload: bytes, ability: str, args: Any, holds: str) -> bytes:
        """Return the canonical bytes of the arguments in the payload, cut out if their position is certain."""
        tail = self.tails.get(ability)
        if tail is None:
            tail = self.tails[ability] = len(encode(ability)) + 1
        if holds == "args" and payload.startswith(b'{"args":'):
            cut = payload[len(b'{"args":') : -tail]
            for name in (b',"tool_name":', b',"flow":'):
                if cut.endswith(name):
                    return cut[: -len(name)]
        if holds == "request" and payload.startswith(b'{"ability":"'):
            return payload[len(b'{"ability":,"request":') - 1 + tail : -1]
        return encode(args)

    def _read_denied(self, line: bytes, comma: int, end: int) -> RecordedCall:
        who = _header(line, end)
        payload = line[who.end() : -1]
        members = decode(payload)
        call = self._build_call(line, comma, who, "tool.denied", self.positions.find(who[3]))
        if _SEALED in payload:
            members = {key: self._unseal(call, value) for key, value in members.items()}
        call.ability, call.code, call.reason, call.by = (
            members["name"],
            members["code"],
            members["reason"],
            members.get("by"),
        )
        call.is_over = call.by == _OVER
        call.args = members.get("args")
        if "args" in members:
            call.raw = call.final = b"" if call.why else encode(call.args)
            self._apply_request(call, who[3])
        elif call.code == "INTAKE_REFUSED" or (call.code == "TOOL_NOT_ALLOWED" and call.by is None):
            call.why = NO_ARGUMENTS
        return self._with_gate_records(call, who[3], payload)

    def _apply_request(self, call: RecordedCall, cause: bytes) -> None:
        """Give a denial that ends an approval request the decision that was made before the request."""
        decided = call.code in JUDGE_CODES and not call.is_prevented
        request = None if decided else self.requests.take_ended(cause, call.ability, call.args)
        if request is not None:
            call.ts, call.fired, call.checked = request.ts, request.fired, request.checked
            call.session = request.session or call.session

    def _build_call(
        self, line: bytes, comma: int, who: re.Match[bytes], kind: str, position: CallPosition | None
    ) -> RecordedCall:
        if self.session is None:
            raise _BadLineError
        ts = _timestamp(line, comma)
        seq = int(line[line.rindex(b":", 0, comma) + 1 : comma])
        principal = who[1].decode() if who[1] else ""
        call = RecordedCall(
            self.session, seq, ts, who[2].decode(), kind, "", principal, position, None, b"null", b"null"
        )
        if self.fact_names:
            call.folded = self.facts.now()
            call.facts = {**empty_facts(self.fact_names), **call.folded}
            call.had_recently = self.facts.had_recently if self.is_complete else None
        return call

    def _with_gate_records(self, call: RecordedCall, cause: bytes, payload: bytes) -> RecordedCall:
        fired, checked = self._take_gate_records(cause)
        call.fired, call.checked = call.fired or fired, call.checked or checked
        deferred = self.requests.take_deferred(cause)
        if deferred is not None:
            call.fired, call.checked, call.deferred = deferred.fired, deferred.checked, True
            self.positions.leave(cause)
        request = self.requests.take_granted(cause)
        call.approved = request.payload if request else None
        call.signed = self.signed_calls.pop(cause, "")
        call.open = self._decode
        try:
            if call.fired and b'"input":' in call.fired:
                first = self._decode(call.fired).get("input", call.args)
                call.args, call.raw = first, encode(first)
            if self.fact_names:
                for raw in (call.fired, call.checked):
                    if raw and b'"facts":' in raw:
                        call.facts = {**call.facts, **self._decode(raw).get("facts", {})}
        except (DeedbookError, OSError):
            call.why = ERASED
        hooks_excised, policies_excised = call.find_excised()
        if hooks_excised or (policies_excised and (call.approved is not None or not self.is_complete)):
            call.why = call.why or EXCISED
        if call.position is None and not call.is_over:
            call.why = call.why or UNKNOWN_CALLER
        if _MARK in payload:
            call.why = call.why or SCRUBBED
        return call

    # --- payloads and facts ------------------------------------------------------------------------------------------

    def _payload(self, line: bytes, who: re.Match[bytes]) -> Any:
        return self._decode(line[who.end() : -1])

    def _decode(self, raw: bytes) -> Any:
        value = decode(raw)
        return open_values(self.folder, value) if _SEALED in raw else value

    def _unseal(self, call: RecordedCall, value: Any) -> Any:
        try:
            return open_values(self.folder, value)
        except (DeedbookError, OSError):
            call.why = ERASED
            return None if is_sealed(value) else value

    def _fold(self, line: bytes, comma: int, end: int) -> None:
        """Apply an event to the facts, like the folds behind a writer."""
        if line[_EXCISED_AT] == _EXCISED_MARK:
            self.is_complete = False  # later facts may depend on the excised payload
            return
        name, ts = line[comma + _TYPE : end].decode(), _timestamp(line, comma)
        if not self.is_complete and (name == REPORT or name.startswith("context.")):
            return  # a move may depend on one whose payload is gone
        payload = decode(line[line.index(_PAYLOAD, end) + len(_PAYLOAD) : -1])
        span, parent = (each.decode() if each else None for each in _header(line, end).group(2, 3))
        self.facts.step(Event(0, ALIASES.get(name, name), "runtime", None, span or "", parent, ts, payload))


def _header(line: bytes, end: int) -> re.Match[bytes]:
    """Return the other fields of a header: principal, span and parent; raises if the line does not match the format."""
    who = _WHO.match(line, end)
    if who is None:
        raise _BadLineError
    return who


def _timestamp(line: bytes, comma: int) -> str:
    return line[comma + _TS : comma + _TS + 24].decode()


_GateLine: TypeAlias = tuple[bytes, int] | None
_Reader: TypeAlias = Callable[[bytes, int, int], RecordedCall | RecordedSubject | None]
