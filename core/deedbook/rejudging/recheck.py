"""The third part of verification: facts, rules and decisions of a session, made again from what it recorded.

Everything is judged under the charter that the session names. What a gate answered that cannot be asked again is taken
from the record and counted, with the distribution that would have to be there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from deedbook.approvals.requests import call_digest
from deedbook.bindings import Bindings
from deedbook.contracts import Call, Decision
from deedbook.files import Folder
from deedbook.gates import BoundGate, rule_of
from deedbook.verification.report import Decisions, Findings

from .calls import read_calls
from .recorded import NOBODY, Recorded
from .rederive import SAID_LATE, Rejudge, Settled, answers, compared, recorded_answer

Charters: TypeAlias = Callable[[str], Bindings | str]
"""Returns a charter by its digest, bound to judge; a text says why it is not."""

_CALLS: Final = "session.calls"


def recheck(ledger: Path, charters: Charters) -> Decisions:
    """Judge every call of a session's file *ledger* again; memory does not grow with it.

    Raises `LedgerError` (``LEDGER_UNSOUND``) for what is no line of format 1.1, `FileNotFoundError`.
    """
    with Folder.at(ledger.parent) as folder, folder.open(ledger.name) as file:
        told = next(read_calls(file, str(ledger), folder), None)
        if told is None:
            return Decisions()
        bindings = charters(told.told.charter)
        if isinstance(bindings, str):
            file.seek(0)
            calls = sum(1 for _ in read_calls(file, str(ledger), folder))
            return Decisions(calls=calls, unknown={bindings: calls})
        if told.told.enforcement != bindings.enforcement:
            bindings = attrs.evolve(bindings, enforcement=told.told.enforcement)
        file.seek(0)
        checking = _Checking(bindings)
        for call in read_calls(file, str(ledger), folder, bindings.reads):
            checking.take(call)
        return checking.told()


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
        """Judge a call again."""
        self._findings.checked += 1
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
