"""Calls as a ledger holds them: who asked, for what, with which arguments, what gates answered and what was decided.

One pass, in the order of the file, with memory for what is open and nothing else. Only lines that say something about a
decision are taken apart; what became of a call is passed over. Nothing here knows a charter.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final, Literal, TypeAlias

import attrs

from .canonical import MAX_BYTES, decode, encode
from .context import ContextFold
from .contracts import Event, Object, Principal
from .errors import DeedbookError, LedgerError, fault
from .events import ALIASES, OUTCOMES
from .files import Folder
from .folds import MetricsFold
from .lines import Lines
from .sealed import is_sealed, opened

Way: TypeAlias = Literal["session", "skill", "call", "flow", "role"]

NO_ARGUMENTS: Final = "its arguments are not recorded"
ERASED: Final = "a sealed value is gone"
SCRUBBED: Final = "it held a secret's value, which is kept nowhere"
NOBODY: Final = "who asked cannot be told"

_LONGEST: Final = MAX_BYTES + 65536
_SEALED: Final = b'"$sealed":'
_MARK: Final = b"[secret:"
_OVER: Final = {"scope": "a call that is over"}
_INTENTS: Final = {
    "tool.call": ("tool_name", "args"),
    "flow.call": ("flow", "args"),
    "llm.request": ("ability", "request"),
}
_ENDS: Final = frozenset(outcome for outcomes in OUTCOMES.values() for outcome in outcomes)
_TS: Final = len(b',"ts":"')
_TYPE: Final = _TS + 24 + len(b'","event_type":"')
_WHO: Final = re.compile(
    rb'","actor":"[a-z]+","principal":(?:null|"([^"]+)"),"span_id":"([0-9a-f]{16})","parent_span_id":(?:null|"([0-9a-f]{16})")'
    rb',"payload_hash":"[0-9a-f]{64}","prev_envelope_hash":"[0-9a-f]{64}","envelope_hash":"[0-9a-f]{64}","payload":(?=\{)'
)
_BEGIN: Final = re.compile(
    rb'\{"schema_version":"1\.1","session_id":"([A-Za-z0-9][A-Za-z0-9_-]{0,127})","trace_id":"[0-9a-f]{32}","seq":(?=0,)'
)


@attrs.frozen(eq=False)
class Standing:
    """Where in a run somebody stands who asks: *way* says how they got there from *above*, *name* in what.

    The session's principal, a ``skill`` that was invoked, a ``call`` of an ability that calls again, a ``flow``, a
    ``role`` in it. Who stands in the same place shares one object.
    """

    way: Way
    name: str = ""
    above: "Standing | None" = None


@attrs.frozen(eq=False)
class Told:
    """What ``session.start`` says: the session's id, its principal, the charter's digest, and whether it enforced."""

    id: str
    principal: Principal
    charter: str
    enforcement: str


@attrs.define(eq=False)
class Recorded:
    """One intent or denial. *args* are those that were asked for, *raw* their canonical bytes, *final* what was judged.

    *code* is empty where the call went on; *by* says who refused it. *fired* and *checked* are the payloads of the
    ``hook.fired`` and the ``policy.check`` before it. *standing* is ``None`` if nobody can tell who asked, *over* says
    that they asked for a call that had its outcome. *why* is what keeps the call from being judged again.
    """

    told: Told
    seq: int
    ts: str
    span: str
    kind: str
    ability: str
    principal: str
    standing: Standing | None
    args: Any
    raw: bytes
    final: bytes
    code: str = ""
    reason: str = ""
    by: Object | None = None
    over: bool = False
    fired: bytes | None = None
    checked: bytes | None = None
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    why: str = ""
    open: Callable[[bytes], Any] = decode

    @property
    def outcome(self) -> Literal["allow", "ask", "deny"]:
        """What was decided."""
        return "ask" if self.code == "NEEDS_HUMAN" else "deny" if self.code else "allow"

    def minutes(self) -> tuple[Object, Object]:
        """Return ``hook.fired`` and ``policy.check``, opened; empty where there was none."""
        return tuple(self.open(raw) if raw else {} for raw in (self.fired, self.checked))


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
        self.root = Standing("session")
        self.standings: dict[tuple[Standing, Way, str], Standing] = {}
        self.spans: dict[str, Standing] = {}
        self.open: dict[str, tuple[Standing | None, str, str]] = {}
        self.asking: dict[str, str] = {}
        self.answers: dict[str, str] = {}
        self.handed: dict[str, list[str]] = {}
        self.fired: tuple[str, bytes] | None = None
        self.checked: tuple[str, bytes] | None = None
        self.metrics, self.context = MetricsFold(), ContextFold()
        self.spent, self.state = self.metrics.start(), self.context.start()
        self.tails: dict[str, int] = {}

    def calls(self, lines: Lines) -> Iterator[Recorded]:
        take: dict[bytes, Callable[..., Recorded | None]] = {
            name.encode(): getattr(self, method) for method, names in _TAKEN.items() for name in names
        }
        for old, new in ALIASES.items():
            if new.encode() in take:
                take[old.encode()] = take[new.encode()]
        folded = self._folds()
        start = 0
        for number, line in enumerate(lines, 1):
            if start == 0:
                start = self._begun(line)
            comma = line.find(b",", start, start + 20)
            at = comma + _TYPE
            end = line.find(b'"', at, at + 70)
            name = line[at:end]
            how = take.get(name)
            if how is None and not (folded and folded(name)):
                continue
            try:
                who = _WHO.match(line, end)
                if comma < 0 or end < 0 or who is None:
                    raise _Bad  # noqa: TRY301 - one place says where
                found = how(line, int(line[start:comma]), who, name.decode()) if how else None
                if found is not None:
                    yield found
                if folded and folded(name):
                    self._fold(line, who, name.decode())
            except (_Bad, ValueError, KeyError, TypeError, AttributeError):
                why = "not a line that says what its type promises; verify the file"
                raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{self.place}:{number}")) from None

    def _begun(self, line: bytes) -> int:
        """Return where the sequence number stands in every line, after what all lines share."""
        found = _BEGIN.match(line)
        if not found:
            why = "not the first line of a session of format 1.1; verify the file"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{self.place}:1"))
        self.id = found[1].decode()
        return found.end()

    # --- who stands where ---------------------------------------------------------------------------------------------

    def _start(self, line: bytes, _seq: int, who: re.Match[bytes], _name: str) -> None:
        said = self._payload(line, who)
        principal = said["principal"]
        roles = principal["roles"] if isinstance(principal["roles"], list) else []
        self.told = Told(
            self.id,
            Principal(principal["id"], principal["via"], frozenset(roles), principal["on_behalf_of"]),
            said["charter"],
            said["enforcement"],
        )
        self.spans[who[2].decode()] = self.root

    def _message(self, _line: bytes, _seq: int, who: re.Match[bytes], _name: str) -> None:
        self.spans[who[2].decode()] = self.root

    def _skill(self, line: bytes, _seq: int, who: re.Match[bytes], _name: str) -> None:
        self._place(who, "skill", self._payload(line, who)["skill"])

    def _role(self, line: bytes, _seq: int, who: re.Match[bytes], _name: str) -> None:
        flow = self._above(who)
        self._place(who, "role", self._payload(line, who)["to"], flow)
        self.handed.setdefault((who[3] or b"").decode(), []).append(who[2].decode())

    def _place(self, who: re.Match[bytes], way: Way, name: Any, above: Standing | None = None) -> None:
        above = above or self._above(who)
        if above is not None and type(name) is str:
            self.spans[who[2].decode()] = self._standing(above, way, name)

    def _standing(self, above: Standing, way: Way, name: str) -> Standing:
        key = (above, way, name)
        found = self.standings.get(key)
        if found is None:
            found = self.standings[key] = Standing(way, name, above)
        return found

    def _above(self, who: re.Match[bytes]) -> Standing | None:
        return self._at((who[3] or b"").decode())

    def _at(self, span: str) -> Standing | None:
        """Return who stands at *span*: an open call stands for itself as soon as it calls again."""
        found = self.spans.get(span)
        if found is None and span in self.open:
            above, ability, kind = self.open[span]
            if above is not None:
                found = self.spans[span] = self._standing(above, "flow" if kind == "flow.call" else "call", ability)
        return found

    # --- what ends ----------------------------------------------------------------------------------------------------

    def _skill_end(self, _line: bytes, _seq: int, who: re.Match[bytes], _name: str) -> None:
        self.spans.pop((who[3] or b"").decode(), None)

    def _end(self, _line: bytes, _seq: int, who: re.Match[bytes], name: str) -> None:
        """Forget a call that has its outcome; a model's answer stands for the role that asked, until its next."""
        span = (who[3] or b"").decode()
        self.open.pop(span, None)
        self.spans.pop(span, None)
        asker = self.asking.pop(span, "")
        if name == "llm.response" and asker in self.spans:
            self.spans.pop(self.answers.get(asker, ""), None)
            self.answers[asker] = who[2].decode()
            self.spans[who[2].decode()] = self.spans[asker]
        for handed in self.handed.pop(span, ()):
            self.spans.pop(handed, None)
            self.spans.pop(self.answers.pop(handed, ""), None)

    # --- minutes ------------------------------------------------------------------------------------------------------

    def _hooks(self, line: bytes, _seq: int, who: re.Match[bytes], _name: str) -> None:
        payload = line[who.end() : -1]
        if b'"event":"PreToolUse"' in payload:
            self.fired = (who[3] or b"").decode(), payload

    def _policies(self, line: bytes, _seq: int, who: re.Match[bytes], _name: str) -> None:
        self.checked = (who[3] or b"").decode(), line[who.end() : -1]

    def _minutes(self, cause: str) -> tuple[bytes | None, bytes | None]:
        """Return the minutes of the call that is recorded now: they stand right before it, under the same cause."""
        fired, checked, self.fired, self.checked = self.fired, self.checked, None, None
        return (
            fired[1] if fired and fired[0] == cause else None,
            checked[1] if checked and checked[0] == cause else None,
        )

    # --- calls --------------------------------------------------------------------------------------------------------

    def _intent(self, line: bytes, seq: int, who: re.Match[bytes], name: str) -> Recorded:
        cause, span = (who[3] or b"").decode(), who[2].decode()
        standing = self._at(cause)
        payload = line[who.end() : -1]
        said = decode(payload)
        named, holds = _INTENTS[name]
        ability, args = said[named], said[holds]
        call = self._call(seq, line, who, name, standing)
        if _SEALED in payload:
            ability, args = self._unsealed(call, ability), self._unsealed(call, args)
            call.raw = call.final = b"" if call.why else encode(args)
        else:
            call.raw = call.final = self._raw(payload, ability, args, holds)
        call.ability, call.args = ability if type(ability) is str else "", args
        self.open[span] = (standing, call.ability, name)
        if name == "llm.request":
            self.asking[span] = cause
        return self._with_minutes(call, cause, payload)

    def _raw(self, payload: bytes, ability: str, args: Any, holds: str) -> bytes:
        """Return the canonical bytes of the arguments as they stand in the payload, cut out where that is certain."""
        tail = self.tails.get(ability)
        if tail is None:
            tail = self.tails[ability] = len(encode(ability)) + 1
        if holds == "request":
            return payload[len(b'{"ability":,"request":') - 1 + tail : -1]
        cut = payload[len(b'{"args":') : -tail] if payload.startswith(b'{"args":') else b""
        for name in (b',"tool_name":', b',"flow":'):
            if cut.endswith(name):
                return cut[: -len(name)]
        return encode(args)

    def _denied(self, line: bytes, seq: int, who: re.Match[bytes], name: str) -> Recorded:
        cause = (who[3] or b"").decode()
        payload = line[who.end() : -1]
        said = decode(payload)
        call = self._call(seq, line, who, name, self._at(cause))
        if _SEALED in payload:
            said = {key: self._unsealed(call, value) for key, value in said.items()}
        call.ability, call.code, call.reason, call.by = said["name"], said["code"], said["reason"], said.get("by")
        call.over = call.by == _OVER
        call.args = said.get("args")
        if "args" in said:
            call.raw = call.final = b"" if call.why else encode(call.args)
        elif call.code == "INTAKE_REFUSED" or (call.code == "TOOL_NOT_ALLOWED" and call.by is None):
            call.why = NO_ARGUMENTS
        return self._with_minutes(call, cause, payload)

    def _call(self, seq: int, line: bytes, who: re.Match[bytes], name: str, standing: Standing | None) -> Recorded:
        assert self.told is not None
        principal = who[1].decode() if who[1] else ""
        ts, span = self._moment(line, who), who[2].decode()
        call = Recorded(self.told, seq, ts, span, name, "", principal, standing, None, b"null", b"null")
        if self.wanted:
            call.facts = {**self.spent.facts(), "context.state": self.state.state if self.state else None}
        return call

    def _moment(self, line: bytes, who: re.Match[bytes]) -> str:
        start = line.index(b'"ts":"', 0, who.start()) + 6
        return line[start : start + 24].decode()

    def _with_minutes(self, call: Recorded, cause: str, payload: bytes) -> Recorded:
        call.fired, call.checked = self._minutes(cause)
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
        if call.standing is None and not call.over:
            call.why = call.why or NOBODY
        if _MARK in payload:
            call.why = call.why or SCRUBBED
        return call

    # --- payloads -----------------------------------------------------------------------------------------------------

    def _payload(self, line: bytes, who: re.Match[bytes]) -> Any:
        raw = line[who.end() : -1]
        return self._opened(raw)

    def _opened(self, raw: bytes) -> Any:
        value = decode(raw)
        return opened(self.folder, value) if _SEALED in raw else value

    def _unsealed(self, call: Recorded, value: Any) -> Any:
        try:
            return opened(self.folder, value)
        except (DeedbookError, OSError):
            call.why = ERASED
            return None if is_sealed(value) else value

    # --- facts --------------------------------------------------------------------------------------------------------

    def _folds(self) -> Callable[[bytes], bool] | None:
        """Return which types of events facts are made of, if any is wanted."""
        if not self.wanted:
            return None
        named = {name.encode() for name in (*OUTCOMES, "llm.response", "session.start")}
        return lambda name: name in named or name.startswith(b"context.")

    def _fold(self, line: bytes, who: re.Match[bytes], name: str) -> None:
        payload = decode(line[who.end() : -1])
        event = Event(0, name, "runtime", None, who[2].decode(), None, self._moment(line, who), payload)
        self.spent = self.metrics.step(self.spent, event)
        self.state = self.context.step(self.state, event)


_TAKEN: Final[Mapping[str, tuple[str, ...]]] = {
    "_start": ("session.start",),
    "_message": ("user.message",),
    "_skill": ("skill.invoke",),
    "_skill_end": ("skill.complete",),
    "_role": ("agent.transition",),
    "_intent": tuple(_INTENTS),
    "_denied": ("tool.denied",),
    "_hooks": ("hook.fired",),
    "_policies": ("policy.check",),
    "_end": tuple(_ENDS),
}
