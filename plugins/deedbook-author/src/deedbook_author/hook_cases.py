"""Tests of hooks: events from YAML or from a ledger, given to the real hook in its real isolation.

A file ends in ``.test.yaml`` and stands beside the hooks (``schemas/hook_test_v1.json``). Nothing is recorded.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.contract import Decision, Event, Object, Principal
from deedbook.contract.pointers import join_pointer
from deedbook.format import canonical
from deedbook.format.errors import SourceError, fault, raise_all
from deedbook.format.reader import read as read_ledger
from deedbook.format.schema import Schemas, suggest
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import EVERYTHING, Caller
from deedbook.policy.gates import BoundGate, answer
from deedbook.policy.judge import DecisionContext, make_call
from deedbook.programs.exchange import ARGUMENTS
from deedbook.workspace.trees import SourceTree

FOLDER: Final = "hooks"
NOW: Final = "2026-01-01T00:00:00.000Z"
"""The time of an event whose case gives none."""
SESSION: Final = "hook-test"


@attrs.frozen(kw_only=True)
class HookCase:
    """One case: the *hook*, its subject (*event*, or *recorded*: session and seq), and the expected answer."""

    name: str
    place: str
    hook: str
    expect: Object
    event: Object | None = None
    recorded: Object | None = None


@attrs.frozen(kw_only=True)
class HookCaseResult:
    """The result of a case: the hook's decision; *problem* is empty if the case passed."""

    trial: HookCase
    got: Object
    problem: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        trial = self.trial
        return {
            "name": trial.name, "place": trial.place, "hook": trial.hook, "ok": not self.problem,
            "expected": dict(trial.expect), "got": dict(self.got), "problem": self.problem,
        }  # fmt: skip


def read_cases(tree: SourceTree, path: str, schemas: Schemas) -> list[HookCase]:
    """Return the cases of one file. Raises `SourceError` with every fault of the file."""
    document = tree.yaml(path)
    found = schemas.interpreted("hook_test_v1").violations(document.value)
    raise_all(
        SourceError,
        (fault("SOURCE_INVALID", f"{each.path}: {each.message}", place=document.place(each.pointer)) for each in found),
    )
    said: Any = document.value
    return [
        HookCase(**body, place=document.line(join_pointer("cases", index))) for index, body in enumerate(said["cases"])
    ]


def run_case(bindings: Bindings, trial: HookCase, state: Path) -> HookCaseResult:
    """Run a case against its hook; *state* is the folder with the recorded sessions."""
    hooks = bindings.charter.document["hooks"]
    entry = hooks.get(trial.hook)
    if entry is None:
        return HookCaseResult(
            trial=trial, got={}, problem=f"no hook {trial.hook!r} is defined{suggest(trial.hook, hooks)}"
        )
    try:
        event = dict(trial.event) if trial.event is not None else _read_event(trial.recorded or {}, state)
        gate, subject = _question(bindings, trial.hook, entry["event"], event)
    except (LookupError, ValueError, OSError) as problem:
        return HookCaseResult(trial=trial, got={}, problem=f"cannot be asked: {problem}")
    got = _decision_as_json(answer(gate, time.perf_counter, *subject), entry["event"])
    return HookCaseResult(trial=trial, got=got, problem=_difference(trial.expect, got))


def _question(bindings: Bindings, hook: str, event: str, said: Mapping[str, Any]) -> tuple[BoundGate, tuple[Any, ...]]:
    """Return the hook's gate and its arguments: the values of the case, and defaults for the rest."""
    principal = Principal(said.get("principal", "local"), "cli", frozenset(said.get("roles", ())))
    plain: dict[str, Any] = {
        "principal": principal, "session": SESSION, "now": said.get("now", NOW), "facts": said.get("facts", {}),
        "prompt": "", "skill": "", "ok": True, "subject": {}, "result": None,
    }  # fmt: skip
    given = {**plain, **{name: said[name] for name in ("prompt", "skill", "ok", "subject", "result") if name in said}}
    if "call" not in ARGUMENTS[event]:
        gates = bindings.hooks[event]
    else:
        bound = bindings.find(said.get("ability", ""))
        if bound is None:
            raise LookupError(f"no ability {said.get('ability')!r} is declared")
        gates = (*bound.creators, *bound.rewriters, *bound.guards, *bound.observers)
        caller = Caller(principal=principal, actor="user", scope=EVERYTHING, role=said.get("role"))
        raw = canonical.admit(dict(said.get("args", {})))
        when = DecisionContext(given["now"], SESSION, {})
        call = make_call(bindings, caller, bound, canonical.decode(raw), raw, when)
        given["call"] = attrs.evolve(call, facts=given["facts"])
    found = next((gate for gate in gates if gate.id == hook), None)
    if found is None:
        raise LookupError(f"hook {hook!r} is not asked about {said.get('ability')!r}")
    return found, tuple(given[name] for name in ARGUMENTS[event])


def _read_event(where: Mapping[str, Any], state: Path) -> dict[str, Any]:
    """Return the subject of a recorded event: a prompt, or a call and perhaps its result."""
    session = _session(where["session"], state / "sessions")
    told = {event.seq: event for event in read_ledger(session)}
    event = told.get(where["seq"])
    if event is None:
        raise LookupError(f"session {session.name} has no event {where['seq']}")
    call = next((each for each in told.values() if each.span == event.parent), None)
    found = {"now": event.ts, "principal": event.principal or "local", **_about(event)}
    if "result" in event.payload and call is not None:
        found |= _about(call)
    return found


def _session(name: str, sessions: Path) -> Path:
    """Return the folder of the session whose id begins with *name*; only existing folders are considered."""
    found = [path for path in sorted(sessions.glob("*")) if path.name.startswith(name)]
    exact = [path for path in found if path.name == name] or found
    if len(exact) != 1:
        raise LookupError(f"{len(exact) or 'no'} sessions begin with {name!r}; `deedbook sessions` lists them")
    return exact[0]


def _about(event: Event) -> dict[str, Any]:
    payload, found = event.payload, {}
    for name, key in (("prompt", "text"), ("args", "args"), ("args", "request"), ("result", "result")):
        if key in payload:
            found[name] = payload[key]
    ability = next((payload[key] for key in ("tool_name", "ability", "flow", "name") if key in payload), None)
    return found if ability is None else {**found, "ability": ability}


def _decision_as_json(decision: Decision, event: str) -> dict[str, Any]:
    told: dict[str, Any] = {"decision": decision.outcome, "reason": decision.reason}
    if decision.args is not None:
        told["output"] = decision.args.get("result") if event == "PostToolUse" else dict(decision.args)
    return told | ({"signals": dict(decision.signals)} if decision.signals else {})


def _difference(expected: Mapping[str, Any], got: Mapping[str, Any]) -> str:
    """Return in which expected members the answer differs."""
    wrong = [name for name in expected if expected[name] != got.get(name)]
    return "; ".join(
        f"{name}: expected {_json_text(expected[name])}, got {_json_text(got.get(name))}" for name in wrong
    )


def _json_text(value: Any) -> str:
    return canonical.encode(value).decode()
