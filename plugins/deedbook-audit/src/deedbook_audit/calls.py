"""Reading the calls of a ledger: who asked, for what, with which arguments, what gates answered, what was decided.

One pass, in the order of the file, with memory for what is open and nothing else. Only lines that say something about a
decision are taken apart; what became of a call is passed over. Nothing here knows a charter.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, Final, TypeAlias

from deedbook.contract import Event, Principal
from deedbook.format.canonical import MAX_BYTES, decode, encode
from deedbook.format.errors import DeedbookError, LedgerError, fault
from deedbook.format.events import ALIASES
from deedbook.format.families import CATALOGUE, OUTCOMES
from deedbook.format.files import Folder
from deedbook.format.lines import Lines
from deedbook.format.sealed import is_sealed, open_values
from deedbook.policy.requests import read_statement

from .facts import FoldedFacts
from .history import JUDGED, Request, Requests
from .recorded import ERASED, EXCISED, NO_ARGUMENTS, NOBODY, SCRUBBED, Recorded, Told
from .standings import Standing, Standings

_LONGEST: Final = MAX_BYTES + 65536
_SEALED: Final = b'"$sealed":'
_MARK: Final = b"[secret:"
_GONE: Final = b'"payload":{"$excised":"'
_GONE_AT: Final = slice(-90, -67)
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
_PARENT: Final = b'"parent_span_id":"'
_PAYLOAD: Final = b',"payload":'
_FAR: Final = 300
_BEGIN: Final = re.compile(
    rb'\{"schema_version":"1\.1","session_id":"([A-Za-z0-9][A-Za-z0-9_-]{0,127})","trace_id":"[0-9a-f]{32}","seq":(?=0,)'
)


def read_calls(file: BinaryIO, place: str, folder: Folder, facts: frozenset[str] = frozenset()) -> Iterator[Recorded]:
    """Yield every call of the session in *file*; sealed values are opened from *folder*, *facts* are folded.

    The facts of a call are valid until the next is taken. Raises `LedgerError` (``LEDGER_UNSOUND``) for what is no line
    of format 1.1; hashes are not looked at.
    """
    yield from _Reading(place, folder, facts).calls(Lines(file, _LONGEST))


class _Bad(Exception):  # noqa: N818 - it says what the line is
    """A line that does not fit the template."""


class _Reading:
    """One pass over a session's lines."""

    def __init__(self, place: str, folder: Folder, facts: frozenset[str]) -> None:
        self.place, self.folder, self.wanted = place, folder, facts
        self.id = ""
        self.told: Told | None = None
        self.standings = Standings()
        self.requests = Requests()
        self.fired: _Minutes = None
        self.checked: _Minutes = None
        self.facts = FoldedFacts()
        self.tails: dict[str, int] = {}
        self.signed: dict[bytes, str] = {}
        self.whole = True

    def calls(self, lines: Lines) -> Iterator[Recorded]:
        take = self._takers()
        start = 0
        for number, line in enumerate(lines, 1):
            if start == 0:
                start = self._begun(line)
            comma = line.find(b",", start, start + 20)
            at = comma + _TYPE
            end = line.find(b'"', at, at + 70)
            how = take.get(line[at:end])
            if how is not None:
                try:
                    found = how(line, comma, end) if line[_GONE_AT] != _GONE else self._gone(how, line, comma, end)
                except (_Bad, ValueError, KeyError, TypeError, AttributeError):
                    why = "not a line that says what its type promises; verify the file"
                    raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{self.place}:{number}")) from None
                if found is not None:
                    yield found
                    if self.wanted:
                        self._fold(line, comma, end)
            elif comma < 0 or end < 0:
                why = "not a line of format 1.1; verify the file"
                raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{self.place}:{number}"))

    def _takers(self) -> "dict[bytes, _Taker]":
        """Return who takes each type of event; what is not here is passed over."""
        take: dict[str, _Taker] = {
            "session.start": self._start,
            "user.message": self._message,
            "skill.invoke": self._skill,
            "skill.complete": self._skill_end,
            "agent.transition": self._role,
            "tool.denied": self._denied,
            "approval.resumed": self._resumed,
            "approval.requested": self._requested,
            "approval.granted": self._granted,
            "task.started": self._below,
            "action.received": self._below,
            "approval.deferred": self._deferred,
            "hook.fired": self._hooks,
            "policy.check": self._policies,
            **dict.fromkeys(_INTENTS, self._intent),
            **dict.fromkeys(_ENDS, self._end),
            "llm.response": self._answer,
        }
        if self.wanted:
            take |= {name: self._fold for name in CATALOGUE if name.startswith("context.")}
        old = {name: take[now] for name, now in ALIASES.items() if now in take}
        return {name.encode(): how for name, how in (take | old).items()}

    def _begun(self, line: bytes) -> int:
        """Return where the sequence number stands in every line, after what all lines share."""
        found = _BEGIN.match(line)
        if not found:
            why = "not the first line of a session of format 1.1; verify the file"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{self.place}:1"))
        self.id = found[1].decode()
        return found.end()

    def _gone(self, how: "_Taker", line: bytes, comma: int, end: int) -> Recorded | None:
        """Take in a line whose payload was taken out: what its header says, and that nobody can tell the rest."""
        who, kind = _header(line, end), line[comma + _TYPE : end].decode()
        kind = ALIASES.get(kind, kind)
        if kind in ("skill.invoke", "agent.transition"):
            return None  # who asks below it cannot be told
        if kind == "hook.fired":
            self.fired = line, end
        elif kind == "approval.requested":
            self._minutes(who[3])
            self.signed[who[2]] = ""
        elif kind in _INTENTS or kind == "tool.denied":
            call = self._call(line, comma, who, kind, self.standings.at(who[3]))
            call.why = EXCISED
            if kind in _INTENTS:
                self.standings.open(who[2], None, kind, "")
            if kind == "llm.request":
                self.standings.asked(who[2], who[3])
            return self._with_minutes(call, who[3], b"")
        else:
            return how(line, comma, end)
        return None

    # --- who stands where ---------------------------------------------------------------------------------------------

    def _start(self, line: bytes, comma: int, end: int) -> None:
        who = _header(line, end)
        said = self._payload(line, who)
        principal = said["principal"]
        self.told = Told(
            self.id,
            Principal(principal["id"], principal["via"], frozenset(principal["roles"]), principal["on_behalf_of"]),
            said["charter"],
            said["enforcement"],
        )
        self.standings.begin(who[2])
        if self.wanted:
            self._fold(line, comma, end)

    def _message(self, line: bytes, _comma: int, end: int) -> None:
        self.standings.begin(_header(line, end)[2])

    def _skill(self, line: bytes, _comma: int, end: int) -> None:
        who = _header(line, end)
        self.standings.enter(who[2], who[3], "skill", str(self._payload(line, who)["skill"]))

    def _skill_end(self, line: bytes, _comma: int, end: int) -> None:
        self.standings.leave(_header(line, end)[3])

    def _role(self, line: bytes, _comma: int, end: int) -> None:
        who = _header(line, end)
        self.standings.enter(who[2], who[3], "role", str(self._payload(line, who)["to"]))

    def _end(self, line: bytes, _comma: int, end: int) -> None:
        at = line.index(_PARENT, end, end + _FAR) + len(_PARENT)
        self.standings.close(line[at : at + 16], None)

    def _answer(self, line: bytes, comma: int, end: int) -> None:
        who = _header(line, end)
        self.standings.close(who[3], who[2])
        if self.wanted:
            self._fold(line, comma, end)

    # --- who waited for a person --------------------------------------------------------------------------------------

    def _resumed(self, line: bytes, _comma: int, end: int) -> None:
        self.standings.resume(_header(line, end)[2])

    def _requested(self, line: bytes, comma: int, end: int) -> None:
        who = _header(line, end)
        try:
            said = self._payload(line, who)
        except (DeedbookError, OSError):
            return  # what was sealed is gone: nobody can tell who asked
        self.standings.request(who[2], who[3], said)
        fired, checked = self._minutes(who[3])
        self.requests.add(who[2], Request(_moment(line, comma), who[3], said, fired, checked))

    def _granted(self, line: bytes, _comma: int, end: int) -> None:
        who = _header(line, end)
        self.standings.follow(who[2], self.standings.at(who[3]))
        self.requests.grant(who[3], who[2])
        if who[3] in self.signed:
            with suppress(DeedbookError, OSError):  # else it is no answer, which the structure says
                self.signed[who[2]] = str(read_statement(self._payload(line, who)["signed"]).get("call"))

    def _below(self, line: bytes, _comma: int, end: int) -> None:
        """Let who runs a task, or asks for an action, stand where they stood: what is done for it hangs below."""
        who = _header(line, end)
        self.standings.follow(who[2], self.standings.at(who[3]))

    def _deferred(self, line: bytes, comma: int, end: int) -> None:
        who = _header(line, end)
        self.standings.follow(who[2], self.standings.at(who[3]))
        self.requests.defer(who[2], Request(_moment(line, comma), who[3], {}, *self._minutes(who[3])))

    # --- minutes ------------------------------------------------------------------------------------------------------

    def _hooks(self, line: bytes, _comma: int, end: int) -> None:
        if b'"event":"PreToolUse"' in line:
            self.fired = line, end

    def _policies(self, line: bytes, _comma: int, end: int) -> None:
        self.checked = line, end

    def _minutes(self, cause: bytes) -> Iterator[bytes | None]:
        """Yield the minutes of the call that is recorded now: they stand right before it, under the same cause."""
        for kept in (self.fired, self.checked):
            found = None
            if kept is not None:
                line, end = kept
                at = line.index(_PARENT, end, end + _FAR) + len(_PARENT)
                if line[at : at + 16] == cause:
                    found = line[line.index(_PAYLOAD, at) + len(_PAYLOAD) : -1]
            yield found
        self.fired = self.checked = None

    # --- calls --------------------------------------------------------------------------------------------------------

    def _intent(self, line: bytes, comma: int, end: int) -> Recorded:
        who = _header(line, end)
        cause, kind = who[3], line[comma + _TYPE : end].decode()
        kind = ALIASES.get(kind, kind)
        standing = self.standings.at(cause)
        payload = line[who.end() : -1]
        said = decode(payload)
        named, holds = _INTENTS[kind]
        ability, args = said[named], said[holds]
        call = self._call(line, comma, who, kind, standing)
        if _SEALED in payload:
            ability, args = self._unsealed(call, ability), self._unsealed(call, args)
            call.raw = call.final = b"" if call.why else encode(args)
        else:
            call.raw = call.final = self._raw(payload, ability, args, holds)
        call.ability, call.args = ability if type(ability) is str else "", args
        self.standings.open(who[2], standing, kind, call.ability)
        if kind == "llm.request":
            self.standings.asked(who[2], cause)
        return self._with_minutes(call, cause, payload)

    def _raw(self, payload: bytes, ability: str, args: Any, holds: str) -> bytes:
        """Return the canonical bytes of the arguments as they stand in the payload, cut out where that is certain."""
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

    def _denied(self, line: bytes, comma: int, end: int) -> Recorded:
        who = _header(line, end)
        payload = line[who.end() : -1]
        said = decode(payload)
        call = self._call(line, comma, who, "tool.denied", self.standings.at(who[3]))
        if _SEALED in payload:
            said = {key: self._unsealed(call, value) for key, value in said.items()}
        call.ability, call.code, call.reason, call.by = said["name"], said["code"], said["reason"], said.get("by")
        call.over = call.by == _OVER
        call.args = said.get("args")
        if "args" in said:
            call.raw = call.final = b"" if call.why else encode(call.args)
            self._after_waiting(call, who[3])
        elif call.code == "INTAKE_REFUSED" or (call.code == "TOOL_NOT_ALLOWED" and call.by is None):
            call.why = NO_ARGUMENTS
        return self._with_minutes(call, who[3], payload)

    def _after_waiting(self, call: Recorded, cause: bytes) -> None:
        """Let a denial after waiting for a person be what was judged before it."""
        request = None if call.code in JUDGED else self.requests.ended(cause, call.ability, call.args)
        if request is not None:
            call.ts, call.fired, call.checked = request.ts, request.fired, request.checked

    def _call(self, line: bytes, comma: int, who: re.Match[bytes], kind: str, standing: Standing | None) -> Recorded:
        if self.told is None:
            raise _Bad
        ts = _moment(line, comma)
        seq = int(line[line.rindex(b":", 0, comma) + 1 : comma])
        principal = who[1].decode() if who[1] else ""
        call = Recorded(self.told, seq, ts, who[2].decode(), kind, "", principal, standing, None, b"null", b"null")
        if self.wanted:
            call.facts = call.folded = self.facts.now()
            call.held = self.facts.held if self.whole else None
        return call

    def _with_minutes(self, call: Recorded, cause: bytes, payload: bytes) -> Recorded:
        fired, checked = self._minutes(cause)
        call.fired, call.checked = call.fired or fired, call.checked or checked
        left = self.requests.left(cause)
        if left is not None:
            call.fired, call.checked, call.deferred = left.fired, left.checked, True
            self.standings.leave(cause)
        request = self.requests.used(cause)
        call.approved = request.said if request else None
        call.signed = self.signed.pop(cause, "")
        call.open = self._opened
        try:
            if call.fired and b'"input":' in call.fired:
                first = self._opened(call.fired).get("input", call.args)
                call.args, call.raw = first, encode(first)
            if self.wanted:
                for raw in (call.fired, call.checked):
                    if raw and b'"facts":' in raw:
                        call.facts = {**call.facts, **self._opened(raw).get("facts", {})}
        except (DeedbookError, OSError):
            call.why = ERASED
        fired_gone, checked_gone = call.lost()
        if fired_gone or (checked_gone and (call.approved is not None or not self.whole)):
            call.why = call.why or EXCISED
        if call.standing is None and not call.over:
            call.why = call.why or NOBODY
        if _MARK in payload:
            call.why = call.why or SCRUBBED
        return call

    # --- payloads and facts -------------------------------------------------------------------------------------------

    def _payload(self, line: bytes, who: re.Match[bytes]) -> Any:
        return self._opened(line[who.end() : -1])

    def _opened(self, raw: bytes) -> Any:
        value = decode(raw)
        return open_values(self.folder, value) if _SEALED in raw else value

    def _unsealed(self, call: Recorded, value: Any) -> Any:
        try:
            return open_values(self.folder, value)
        except (DeedbookError, OSError):
            call.why = ERASED
            return None if is_sealed(value) else value

    def _fold(self, line: bytes, comma: int, end: int) -> None:
        """Take an event into the facts, as the folds behind a writer do."""
        if line[_GONE_AT] == _GONE:
            self.whole = False  # what it would have changed is not known from here on
            return
        name, ts = line[comma + _TYPE : end].decode(), _moment(line, comma)
        payload = decode(line[line.index(_PAYLOAD, end) + len(_PAYLOAD) : -1])
        self.facts.step(Event(0, ALIASES.get(name, name), "runtime", None, "", None, ts, payload))


def _header(line: bytes, end: int) -> re.Match[bytes]:
    """Take the rest of a header apart: principal, span and parent; what does not fit is no line of the format."""
    who = _WHO.match(line, end)
    if who is None:
        raise _Bad
    return who


def _moment(line: bytes, comma: int) -> str:
    return line[comma + _TS : comma + _TS + 24].decode()


_Minutes: TypeAlias = tuple[bytes, int] | None
_Taker: TypeAlias = Callable[[bytes, int, int], Recorded | None]
