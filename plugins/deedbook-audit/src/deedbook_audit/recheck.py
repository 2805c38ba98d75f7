"""The third part of verification: facts, rules and decisions of a session, made again from what it recorded.

Everything is judged under the charter that the session names. What a gate answered that cannot be asked again is taken
from the record and counted, with the distribution that would have to be there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import attrs

from deedbook.contract import Call, Decision
from deedbook.format.canonical import decode
from deedbook.format.errors import DeedbookError, LedgerError
from deedbook.format.events import split_line
from deedbook.format.files import Folder
from deedbook.format.report import Decisions, Failure, Findings
from deedbook.format.sealed import open_values
from deedbook.format.terminal import excerpt
from deedbook.policy.bindings import Bindings
from deedbook.policy.gates import BoundGate, rule_of
from deedbook.policy.requests import call_digest
from deedbook_audit.verification.headers import MAX_LINE

from .calls import read_calls
from .charters import Invalid, judge_fault
from .recorded import NOBODY, Recorded
from .rederive import SAID_LATE, Rejudge, Settled, answers, compared, recorded_answer

Charters: TypeAlias = Callable[[str], Bindings | Invalid | str]
"""Returns a charter by its digest, bound to judge; a text says why it cannot be had here."""

_CALLS: Final = "session.calls"
_COMPILED: Final = "a charter that Deedbook compiled, whose bytes match its digest"


def recheck(ledger: Path, charters: Charters) -> Decisions:
    """Judge every call of a session's file *ledger* again; memory does not grow with it.

    Whatever a charter holds, there is an answer. Raises `LedgerError` (``LEDGER_UNSOUND``) for what is no line of
    format 1.1, `FileNotFoundError`.
    """
    with Folder.at(ledger.parent) as folder, folder.open(ledger.name) as file:
        bindings = _charter(file, str(ledger), folder, charters)
        file.seek(0)
        if not isinstance(bindings, Bindings):
            return _unchecked(bindings, sum(1 for _ in read_calls(file, str(ledger), folder)))
        checking: _Checking | None = None
        for call in read_calls(file, str(ledger), folder, bindings.reads):
            checking = checking or _Checking(attrs.evolve(bindings, enforcement=call.told.enforcement))
            checking.take(call)
        return checking.told() if checking else Decisions()


def _charter(file: BinaryIO, place: str, folder: Folder, charters: Charters) -> Bindings | Invalid | str:
    """Return the charter that the first line of a session names."""
    try:
        digest = open_values(folder, decode(split_line(file.readline(MAX_LINE), place=place).payload)).get("charter")
    except LedgerError:
        raise
    except (DeedbookError, OSError, ValueError) as problem:
        return f"what the session says of its charter cannot be read: {problem}"
    return charters(digest) if isinstance(digest, str) else "the session names no charter"


def _unchecked(why: Invalid | str, calls: int) -> Decisions:
    if isinstance(why, str):
        return Decisions(calls=calls, unknown={why: calls}, unchecked=why)
    return Decisions(calls=calls, failures=(Failure(1, "charter", _COMPILED, excerpt(why.why)),))


class _Checking:
    """One session's calls under the charter that it names."""

    def __init__(self, bindings: Bindings) -> None:
        self._rejudge = Rejudge(bindings)
        self._document = bindings.charter.document
        self._findings = Findings()
        self._same = 0
        self._recorded: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()

    def told(self) -> Decisions:
        """Return what was found."""
        part = self._findings.part()
        return Decisions(part.checked, self._same, part.failures, part.more, self._recorded, self._unknown)

    def take(self, call: Recorded) -> None:
        """Judge a call again; whatever the charter holds, there is an answer."""
        self._findings.checked += 1
        try:
            self._take(call)
        except Exception as problem:  # noqa: BLE001 - an ability is bound when it is first judged, and may be anything
            why = judge_fault(problem)
            if isinstance(why, str):
                self._unknown[why] += 1
            else:
                self._findings.add(call.seq + 1, "charter", _COMPILED, why.why)

    def _take(self, call: Recorded) -> None:
        if call.signed and call.why in ("", NOBODY):
            found = call_digest(call.ability, call.final, call.principal)
            if found != call.signed:
                self._findings.add(call.seq + 1, "approval", f"the call {call.signed}, which was signed for", found)
        if call.why:
            self._unknown[call.why] += 1
            return
        heard: list[BoundGate] = []

        def answer(gate: BoundGate, seen: Call) -> Decision | None:
            heard.append(gate)
            return recorded_answer(call, gate, seen)

        settled = self._rejudge.settle(call, answer)
        if settled is None:
            self._unknown[NOBODY] += 1
            return
        self._recorded.update({self._who(gate) for gate in heard})
        self._compare(call, settled)

    def _compare(self, call: Recorded, settled: Settled) -> None:
        found = compared(call, settled)
        if found.change == "undetermined":
            self._unknown[found.why] += 1
            return
        wrong = [*self._facts(call), *self._answers(call, settled)] if found.change == "same" else []
        if found.change != "same":
            verdict = settled.verdict
            said = f"{call.outcome} {call.code}".strip()
            wrong = [("decision", f"{verdict.outcome} {verdict.code} {verdict.reason}".strip(), said)]
        for check, expected, recorded in wrong:
            self._findings.add(call.seq + 1, check, expected, recorded)
        self._same += not wrong

    def _facts(self, call: Recorded) -> Iterator[tuple[str, str, str]]:
        """Yield each recorded fact that is not what the ledger comes to before the call."""
        now, held = call.folded, call.held
        if held is None or call.waited:
            return
        for name, value in {name: value for said in call.minutes() for name, value in _told_facts(said)}.items():
            if name in now and now[name] != value and not (_own(call, now, name, value) and held(name, value)):
                yield "facts", f"{name} {now[name]}", str(value)

    def _answers(self, call: Recorded, settled: Settled) -> Iterator[tuple[str, str, str]]:
        """Yield what gates that were asked again say otherwise than the record."""
        if call.waited:
            return
        verdict, lines = settled.verdict, answers(call)
        for gate, decision in (*verdict.rewrites, *verdict.hooks, *verdict.policies):
            if not gate.pure or call.lost()[gate.kind == "policy"]:
                continue
            line = next(
                (each for each in lines if each["digest"] == gate.digest and each.get(gate.kind) == gate.id), {}
            )
            rule = rule_of(gate, decision)
            said = line.get("decision"), line.get("rule")
            if said != (decision.outcome, rule) and not str(line.get("reason", "")).startswith(SAID_LATE):
                yield "answer", f"{gate.kind} {gate.id}: {decision.outcome}{_by(rule)}", f"{said[0]}{_by(said[1])}"

    def _who(self, gate: BoundGate) -> str:
        """Name what would have to be there to ask a gate again."""
        entry = self._document["hooks" if gate.kind == "hook" else "policies"][gate.id]
        plugin = self._document["plugins"]["/".join(entry["plugin"])] if "plugin" in entry else None
        if plugin is None:
            return f"{gate.kind} {gate.id}, a script"
        if not entry["pure"] or gate.waits:
            return f"{gate.kind} {gate.id}, which is not pure ({_wheel(plugin)})"
        return f"{gate.kind} {gate.id} of {_wheel(plugin)}"


def _wheel(plugin: Mapping[str, Any]) -> str:
    digest = plugin["digest"]
    return f"{plugin['distribution']} {plugin['version']}, {f'sha256 {digest}' if digest else 'editable'}"


def _told_facts(said: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    facts = said.get("facts")
    yield from facts.items() if isinstance(facts, dict) else ()


def _own(call: Recorded, now: Mapping[str, Any], name: str, value: Any) -> bool:
    """Say whether a fact may be older than the call: who reads facts takes turns, so its own count may not."""
    if name != _CALLS:
        return True
    return isinstance(value, dict) and value.get(call.ability) == now[name].get(call.ability)


def _by(rule: Any) -> str:
    return "" if rule is None else f" by {rule}"
