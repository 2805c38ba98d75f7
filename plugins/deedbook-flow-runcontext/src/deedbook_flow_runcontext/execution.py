"""Execute a sound plan: group by group, the steps of a group side by side.

A step ends COMPLETED, SKIPPED, FAILED, or UNKNOWN if its effect may or may not have happened. Each group is noted in
the context of the run when it has ended. The results themselves stand in the records of the calls.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import attrs

from deedbook import Failed, Json, Object, Run
from deedbook.contract import Branch
from deedbook.contract.pointers import find_value

from .approval import APPROVAL_MISSING, call_approval
from .plans import RISKS, AbilityFacts, is_approval, iterate_dependencies
from .step_graph import StepGraph

NOTE: Final = "plan_step"
"""The type of the entry in the execution log that says how a step ended."""
INPUT_MISSING: Final = "INPUT_MISSING"
"""The code of a step whose input is not in the result of the earlier step."""

_AT_ONCE: Final = 500
"""How many steps of a group are started side by side."""
_LONGEST: Final = 2000
_NOTHING: Final = object()


class State(Enum):
    """How a step ended."""

    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"
    UNKNOWN = "unknown"


@attrs.frozen
class StepOutcome:
    """How the *step* ended: its *result* if it is completed, otherwise the *reason*."""

    step: str
    state: State
    result: Json = None
    reason: str = ""


Outcomes: TypeAlias = Mapping[str, StepOutcome]


class StepWorker(Protocol):
    """Performs steps without an ability: a role works on them."""

    def allowed(self, step: Object) -> frozenset[str]:
        """Return the abilities that the work on *step* may use."""

    def work(self, run: Run, step: Object, inputs: Object) -> Json:
        """Work on *step* in a branch, and return its result; raises `Failed`."""


@attrs.frozen(eq=False)
class PlanExecution:
    """The execution of *plan*, which is sound, in *run*.

    *abilities* has the facts about the abilities in scope. *worker* performs steps without an ability. *approval* is
    the ability that asks a person about a step.
    """

    run: Run
    plan: Object
    abilities: Mapping[str, AbilityFacts]
    worker: StepWorker
    approval: str | None = None
    outcomes: dict[str, StepOutcome] = attrs.field(factory=dict, init=False)

    def execute(self) -> None:
        """Execute the groups in order, up to the first one with a step that ends the run."""
        steps = {step["id"]: step for step in self.plan["steps"]}
        groups = self.plan.get("parallel_groups") or StepGraph.of(self.plan["steps"]).groups
        for number, group in enumerate(groups, 1):
            ended = list(self._execute_group([steps[name] for name in group]))
            for outcome in ended:
                self.outcomes[outcome.step] = outcome
                reason = {"reason": outcome.reason[:_LONGEST]} if outcome.reason else {}
                note = {"step": outcome.step, "group": number, "state": outcome.state.value, **reason}
                self.run.context.note(NOTE, note)
            if any(outcome.state in (State.FAILED, State.UNKNOWN) for outcome in ended):
                return

    def report(self) -> dict[str, Any]:
        """Return the report of the work (``worker_report_v1``, with ``steps_skipped``)."""
        steps = {step["id"]: step for step in self.plan["steps"]}
        completed = [outcome.step for outcome in self.find(State.COMPLETED)]
        return {
            "output": _describe_results(self.plan, self.outcomes),
            "steps_completed": completed,
            "steps_skipped": [outcome.step for outcome in self.find(State.SKIPPED)],
            "tool_calls_made": [f"{steps[name]['ability']}:{name}" for name in completed if "ability" in steps[name]],
            "schema_version": "v1",
        }

    def find(self, state: State) -> list[StepOutcome]:
        """Return the steps that ended in *state*, in the order of the execution."""
        return [outcome for outcome in self.outcomes.values() if outcome.state is state]

    def _execute_group(self, group: Sequence[Object]) -> Iterator[StepOutcome]:
        prepared = {step["id"]: prepare_step(step, self.outcomes) for step in group}
        branches = {
            step["id"]: Branch(step["id"], partial(self._perform, step, made), self._list_allowed(step))
            for step in group
            if isinstance(made := prepared[step["id"]], Mapping)
        }
        ended: dict[str, Any] = {}
        for names in _cut(list(branches), _AT_ONCE):
            ended.update(zip(names, self.run.parallel([branches[name] for name in names]), strict=True))
        for name, made in prepared.items():
            yield made if isinstance(made, StepOutcome) else ended[name]

    def _list_allowed(self, step: Object) -> frozenset[str]:
        own = {step["ability"]} if "ability" in step else self.worker.allowed(step)
        return frozenset({*own, *({self.approval} if self.approval else ())})

    def _perform(self, step: Object, inputs: Object, run: Run) -> Any:
        """Perform one step in its branch; return its outcome."""
        try:
            self._approve(run, step, inputs)
            return StepOutcome(step["id"], State.COMPLETED, self._act(run, step, inputs))
        except Failed as failure:
            if failure.code in ("CANCELLED", "LEDGER_BROKEN"):
                raise
            reason = f"{failure.code}: {failure}"
            if self._is_unknown(step, failure):
                return StepOutcome(step["id"], State.UNKNOWN, reason=reason)
            return StepOutcome(step["id"], skip_or_fail(step), reason=reason)

    def _act(self, run: Run, step: Object, inputs: Object) -> Json:
        if "ability" in step:
            return run.call(step["ability"], inputs)
        if is_approval(step):
            return None
        return self.worker.work(run, step, inputs)

    def _approve(self, run: Run, step: Object, inputs: Object) -> None:
        """Ask a person about a step whose tags its ability does not have: the door asks about those of abilities."""
        facts = self.abilities.get(step.get("ability", ""))
        asked = {*step.get("tags", ())} - (facts.tags | facts.risks if facts else frozenset())
        if "ability" not in step:
            asked -= {*RISKS}  # every call of the worker is judged by itself
        if not asked:
            return
        work = {"ability": step["ability"], "args": dict(inputs)} if "ability" in step else {}
        told = {"step": step["id"], "description": step["description"], "tags": sorted(asked), **work}
        why = f'step "{step["id"]}" is tagged {", ".join(sorted(asked))}'
        call_approval(run, self.approval, self.abilities.get(self.approval or ""), told, why)

    def _is_unknown(self, step: Object, failure: Failed) -> bool:
        facts = self.abilities.get(step.get("ability", ""))
        late = failure.code == "TOOL_TIMEOUT" and facts is not None and facts.effects in ("write", "irreversible")
        return failure.lost or late or failure.code in ("NEEDS_HUMAN", APPROVAL_MISSING)


def prepare_step(step: Object, outcomes: Outcomes) -> StepOutcome | dict[str, Any]:
    """Return the arguments of *step*, or its outcome if it cannot be performed with the results of earlier steps."""
    args = dict(step.get("args", {}))
    for argument, source in step.get("inputs", {}).items():
        earlier = outcomes[source["step"]]
        value = find_value(earlier.result, source["pointer"], _NOTHING)
        if earlier.state is State.SKIPPED:
            value = source.get("default", _NOTHING)
        if value is _NOTHING:
            why = f'{INPUT_MISSING}: "{argument}" comes from {source["pointer"] or "the result"} of step '
            why += f'"{source["step"]}", which {"was skipped" if earlier.state is State.SKIPPED else "lacks it"}'
            return StepOutcome(step["id"], skip_or_fail(step), reason=why)
        args[argument] = value
    return args


def skip_or_fail(step: Object) -> State:
    """Return how *step* ends if it cannot be completed."""
    return State.SKIPPED if step.get("optional") else State.FAILED


def _describe_results(plan: Object, outcomes: Outcomes) -> str:
    """Return the results that no other step takes, as text."""
    taken = {name for step in plan["steps"] for name in iterate_dependencies(step)}
    done = [each for each in outcomes.values() if each.state is State.COMPLETED and each.result is not None]
    last = [each for each in done if each.step not in taken] or done
    if len(last) == 1:
        return _text(last[0].result)
    return "\n".join(f"{each.step}: {_text(each.result)}" for each in last)


def _text(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and len(value) == 1 and isinstance(only := next(iter(value.values())), str):
        return only
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _cut(names: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (names[at : at + size] for at in range(0, len(names), size))
