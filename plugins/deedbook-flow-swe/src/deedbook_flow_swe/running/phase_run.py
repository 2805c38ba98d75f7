"""One run of a phase: its inputs are checked, its agent is asked, its outputs are written and checked by rules.

1. The inputs and the context are read inside a branch with the contract's limits. A missing or malformed input, or one
   that is not what an earlier gate approved, blocks the phase, and no model is asked.
2. In a phase that builds or merges, the task's copy of the repository is updated. Commands that run before the agent
   are called; the runner writes their results.
3. The prompt is assembled, and the tier of the model is chosen.
4. The agent is asked inside the branch.
5. Its outputs are written inside the branch: the door denies what the contract does not allow.
6. The rules are checked, with the commands that run after the agent.

A block ends the run. `task_run` writes gates and renderings, and moves the state.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from deedbook import Branch, Failed, Json, Object, Run
from deedbook.contract import Agent, TokenCount
from deedbook.policy.conditions import glob_test
from deedbook_flow_swe.context import ContextFile, PhaseContext, PhaseWork, assemble
from deedbook_flow_swe.contract import AFTER, BEFORE, Contract, Input, Output, Rule, fill
from deedbook_flow_swe.events import CONTEXT_ASSEMBLED, DENIED, MODEL_CHOSEN, PHASE_STARTED
from deedbook_flow_swe.globs import whole_glob

from .agents import ANSWER, DENIALS, AgentAnswer, AgentFault, Denial, Prompt, build_messages
from .blocks import AGENT, BUDGET, INPUT, MODEL, Block, Blocked, read_block
from .facts import collect_facts
from .files import File
from .gates import is_gate
from .material import TaskMaterial
from .rules import RuleValues, fill_arguments, units_of
from .values import DIFF, MalformedFile, read_value

_LONGEST: Final = 2000


@attrs.frozen(kw_only=True)
class PhaseOutcome:
    """What a run of a phase came to: the digests of its *inputs*, *outputs* and result files, and its values.

    *tier* is the tier of the model that was asked, with the files *seen*; empty in the outcome of all units. *block* is
    why it is blocked; ``None`` if it passed.
    """

    inputs: Mapping[str, str] = attrs.field(factory=dict)
    outputs: Mapping[str, str] = attrs.field(factory=dict)
    checked: Mapping[str, str] = attrs.field(factory=dict)
    values: Mapping[str, Any] = attrs.field(factory=dict)
    checks: Mapping[str, Any] = attrs.field(factory=dict)
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    tier: str = ""
    seen: tuple[ContextFile, ...] = ()
    block: Block | None = None


def _do_nothing(*_: Any) -> None:
    pass


@attrs.frozen(kw_only=True)
class CopyWork:
    """What a phase does in the task's copy of the repository; both may raise `Blocked`.

    *prepare* is called after the inputs were checked, and *apply* with the outputs and their values, before the
    commands that run after the agent.
    """

    prepare: "Callable[[], None]" = _do_nothing
    apply: "Callable[[Mapping[str, File], Mapping[str, Any]], None]" = _do_nothing


class PhaseRun:
    """Runs the phase of *contract* once, for the task of *material*, and for one *unit* where it works on units.

    *returned* is the signal of a later phase, or of an earlier run, that sent the task back here. *copy* is what the
    phase does in the task's copy of the repository.
    """

    def __init__(
        self, run: Run, material: TaskMaterial, contract: Contract, iteration: int, unit: Object | None,
        returned: File | None, copy: "CopyWork | None" = None,
    ) -> None:  # fmt: skip
        self._run, self._material, self._contract = run, material, contract
        self._copy = copy or CopyWork()
        self._iteration, self._unit, self._returned = iteration, unit, returned
        self._unit_id = None if unit is None else str(unit["id"])
        self._values = material.values(self._unit_id)
        self._limits = contract.limits(self._values)
        self._book = material.book(contract)
        self._branch_name = f"{contract.phase} {iteration}{f' {self._unit_id}' if unit else ''}"
        self._inputs: dict[str, str] = {}
        self._outputs: dict[str, str] = {}
        self._checked: dict[str, str] = {}
        self._input_values: dict[str, Any] = {}
        self._output_values: dict[str, Any] = {}
        self._checks: dict[str, Any] = {}
        self._tokens: dict[str, Any] = {}
        self._tier = ""
        self._seen: tuple[ContextFile, ...] = ()

    def go(self) -> PhaseOutcome:
        """Run the phase; a block is part of what is returned."""
        where = {"phase": self._contract.phase, "iteration": self._iteration, "unit": self._unit_id}
        self._record(PHASE_STARTED, {**where, "agent": self._contract.agent})
        block = None
        try:
            self._go()
        except Blocked as problem:
            block = problem.block
        return PhaseOutcome(
            inputs=self._inputs, outputs=self._outputs, checked=self._checked,
            values=self._output_values, checks=self._checks, block=block, tier=self._tier, seen=self._seen,
            facts={**collect_facts(self._contract, self._checks, self._material.criteria), **self._tokens},
        )  # fmt: skip

    def _go(self) -> None:
        files = self._read()
        self._check_inputs(files)
        self._copy.prepare()
        files = {**files, **self._run_commands(BEFORE)}
        outputs = self._in_branch("", partial(self._work, files, self._describe_work()))
        self._check_outputs(outputs)
        self._copy.apply({file.path: file for file in outputs}, self._output_values)
        self._run_commands(AFTER)
        values = RuleValues(
            inputs=self._input_values, outputs=self._output_values, checks=self._checks,
            task=self._material.task, unit=self._unit,
        )  # fmt: skip
        broken = self._book.find_broken(values, self._unit_id)
        if broken is not None:
            raise Blocked(broken)

    # --- inputs -------------------------------------------------------------------------------------------------------

    def _read(self) -> dict[str, File]:
        """Return the files of the inputs and of the context, by path, as the contract lets them be read."""
        contract = self._contract
        wanted = [self._fill(each.path) for each in contract.inputs]
        optional = [whole_glob(self._fill(each)) for each in contract.scope.include]
        excluded = [whole_glob(self._fill(each)) for each in (*contract.scope.exclude, *contract.forbidden_reads)]
        args = {"paths": wanted, "optional": [each for each in optional if each not in wanted], "exclude": excluded}
        try:
            found: Any = self._in_branch(" inputs", lambda run: run.call(self._material.ability("read"), args))
        except Failed as failure:
            if failure.lost or failure.code not in _UNREADABLE:
                raise
            self._material.learn("tool.error", {"code": failure.code})
            raise Blocked(self._blame(INPUT, f"{failure.code}: {failure}", place=_place_of(failure))) from None
        return {each["path"]: File(each["path"], each["text"], each["digest"]) for each in found["files"]}

    def _check_inputs(self, files: Mapping[str, File]) -> None:
        """Raise `Blocked` unless every input is there, is what a gate approved, and fits its schema."""
        lacking = [each for each in self._contract.inputs if not self._find(each, files)]
        if lacking:
            names = ", ".join(self._fill(each.path) for each in lacking)
            missing = tuple(f"{each.name}: {self._fill(each.path)}" for each in lacking)
            place = self._fill(lacking[0].path)
            raise Blocked(self._blame(INPUT, f"there is no {names}", place=place, missing=missing))
        for each in self._contract.inputs:
            found = self._find(each, files)
            values = [self._check_input(each, file) for file in found]
            self._inputs |= {file.path: file.digest for file in found}
            self._input_values[each.name] = values if each.many else values[0]

    def _check_input(self, wanted: Input, file: File) -> Any:
        approved = self._material.approved.get(file.path)
        if approved != file.digest and (approved is not None or self._material.is_produced(wanted.path)):
            why = "is not what the gate of its phase approved" if approved else "was approved by no gate"
            raise Blocked(self._blame(INPUT, f"{file.path} {why}", rule="digest", place=file.path))
        value = self._value_of(file, INPUT)
        violation = self._book.find_violation(wanted.schema, value)
        if violation:
            why = f"{file.path} does not fit {wanted.schema}: {violation}"
            raise Blocked(self._blame(INPUT, why, rule=wanted.schema, place=file.path))
        return value

    def _find(self, wanted: "Input | Output", files: Mapping[str, File]) -> list[File]:
        fits = glob_test([whole_glob(self._fill(wanted.path))])
        return [file for path, file in sorted(files.items()) if fits(path)]

    def _value_of(self, file: File, by: str) -> Any:
        if file.path.endswith(DIFF):
            return self._material.diff(self._run, file, self._unit)
        try:
            return read_value(file.path, file.text)
        except MalformedFile as problem:
            own = by == AGENT
            raise Blocked(self._blame(by, str(problem), rule="malformed", place=file.path, own=own)) from None

    # --- commands -----------------------------------------------------------------------------------------------------

    def _run_commands(self, runs: str) -> dict[str, File]:
        """Call the commands that run *before* or *after* the agent, and return the files with their results."""
        rules = [rule for rule in self._contract.commands if rule.command and rule.command.runs == runs]
        texts: dict[str, str] = {}
        for rule in rules:
            texts |= self._run_command(rule)
        if not texts:
            return {}
        digests = self._material.write(self._run, texts)
        self._checked |= digests
        return {path: File(path, text, digests[path]) for path, text in texts.items()}

    def _run_command(self, rule: Rule) -> dict[str, str]:
        command = rule.command
        assert command is not None
        units = self._material.units if self._unit is None else (self._unit,)
        results = [self._call_command(rule, unit) for unit in units_of(rule, units)]
        for result in results:
            violation = self._book.find_violation(command.schema, result)
            if violation:
                why = f"the result of {command.ability} does not fit {command.schema}: {violation}"
                raise Blocked(self._blame("rule", why, rule=rule.id, severity=rule.severity))
        value: Any = results if command.each == "unit" else results[0]
        self._checks[rule.check] = value
        return {
            self._fill(command.writes): f"{json.dumps(value, ensure_ascii=False)}\n"
        }  # one line: it is part of a prompt

    def _call_command(self, rule: Rule, unit: Object | None) -> Any:
        command = rule.command
        assert command is not None
        try:
            args = fill_arguments(command, self._material.arguments(unit), unit)
            result = self._run.call(command.ability, args)
            return self._material.parse(command, result, unit)
        except (ValueError, Failed) as problem:
            if isinstance(problem, Failed) and (problem.lost or problem.code in _ENDS_TASK):
                raise
            why = f"{command.ability} gave no result that counts: {problem}"
            raise Blocked(
                self._blame("rule", why, rule=rule.id, severity=rule.severity, place=self._fill(command.writes))
            ) from None

    # --- the agent ----------------------------------------------------------------------------------------------------

    def _describe_work(self) -> PhaseWork:
        return self._material.describe_work(self._run, self._contract, self._unit, self._returned, "")

    def _assemble(self, run: Run, files: Mapping[str, File], work: PhaseWork) -> Prompt:
        """Return the prompt; record what it is made of, and which model is asked."""
        where = {
            "task_id": self._material.id, "phase": self._contract.phase, "iteration": self._iteration,
            "unit": self._unit_id,
        }  # fmt: skip
        role = run.agent(self._contract.agent)
        added = {file.path for file in work.added}  # the signal to mend is required, also where the scope names it
        shown = [ContextFile(file.path, file.text) for file in files.values() if file.path not in added]
        self._seen = (*work.added, *shown)
        choice = self._material.choose_tier(run, self._contract, self._unit, self._seen)
        self._tier = choice.tier

        def count(text: str) -> TokenCount:
            request = {"messages": build_messages(role, text), "response_schema": ANSWER}
            return role.count_tokens(request, tier=choice.tier)

        work = attrs.evolve(work, persona=role.instructions)
        context = assemble(self._material.definition, self._contract, work, shown, _without_persona(count, role))
        self._material.note(run, CONTEXT_ASSEMBLED, {**where, **_describe_context(context)})
        self._material.note(
            run, MODEL_CHOSEN, {**where, "tier": choice.tier, "rule": choice.rule, "reason": choice.reason}
        )
        if not context.fits:
            raise Blocked(self._blame(INPUT, _describe_excess(self._contract, context), rule=BUDGET))
        return Prompt(role=role, text=context.text, tier=choice.tier)

    def _work(self, files: Mapping[str, File], work: PhaseWork, run: Run) -> list[File]:
        """Ask the agent inside its branch, and write what it gives."""
        prompt = self._assemble(run, files, work)
        try:
            answer = self._material.agent.work(run, prompt, self._check_answer)
        except AgentFault as fault:
            self._record_denials(run, fault.denials)
            raise Blocked(self._blame("agent", str(fault), rule=fault.code.lower())) from None
        except Failed as failure:
            if failure.lost or failure.code not in _OUTAGES:
                raise
            raise Blocked(self._blame(MODEL, f"{failure.code}: {failure}", rule=failure.code.lower())) from None
        self._record_denials(run, answer.denials)
        if answer.read:
            self._tokens = {"tokens": {"read": answer.read, "written": answer.written}}
        if answer.value["blocked"] is not None:
            raise Blocked(read_block(answer.value["blocked"], self._unit_id, None))
        return self._write(run, answer)

    def _check_answer(self, value: Object) -> str:
        """Return what is wrong with an answer beside its form: it lacks an output, or has a file that is none."""
        if value["blocked"] is not None:
            return ""
        paths = [each["path"] for each in value["outputs"]]
        doubled = sorted({path for path in paths if paths.count(path) > 1})
        if doubled:
            return f"{', '.join(doubled)} is there twice"
        for output in self._contract.outputs:
            fits = glob_test([self._fill(output.path)])
            count = sum(1 for path in paths if fits(path))
            if count < output.at_least or (count > 1 and not output.many):
                wanted = f"at least {output.at_least}" if output.many else "one"
                return f"the output {output.name} needs {wanted} at {self._fill(output.path)}, found {count}"
        return ""

    def _record_denials(self, run: Run, denials: Sequence[Denial]) -> None:
        for each in denials:
            self._record_denial(run, each.ability, each.code, each.reason)

    def _record_denial(self, run: Run, ability: str, code: str, reason: str) -> None:
        """Record a denied call below the branch, with phase, unit and agent."""
        self._material.learn("tool.denied", {"code": code})
        self._material.note(
            run,
            DENIED,
            {
                "phase": self._contract.phase,
                "iteration": self._iteration,
                "unit": self._unit_id,
                "agent": self._contract.agent,
                "ability": ability,
                "code": code,
                "reason": reason[:_LONGEST],
            },
        )  # fmt: skip

    def _write(self, run: Run, answer: AgentAnswer) -> list[File]:
        """Write the outputs inside the branch; raises `Blocked` if the contract does not allow one of them."""
        outputs = answer.value["outputs"]
        self._refuse_gates(run, [each["path"] for each in outputs])
        args = {
            "paths": [each["path"] for each in outputs],
            "texts": [each["text"] for each in outputs],
            "expected": [None] * len(outputs),
        }
        ability = self._material.ability("write")
        try:
            written: Any = run.call(ability, args)
        except Failed as failure:
            if failure.lost or failure.code not in DENIALS | _UNWRITABLE:
                raise
            if failure.code in DENIALS:
                self._record_denial(run, ability, failure.code, str(failure))
            place = self._find_denied(args["paths"])
            if failure.code not in DENIALS:
                raise Blocked(self._blame("agent", f"{failure.code}: {failure}", rule="write", place=place)) from None
            why = f"{failure.code}: the contract does not let {self._contract.agent} write {place}"
            raise Blocked(self._blame("denied", why, rule="write", place=place)) from None
        self._outputs |= written["digests"]
        return [File(each["path"], each["text"], written["digests"][each["path"]]) for each in outputs]

    def _refuse_gates(self, run: Run, paths: Sequence[str]) -> None:
        """Raise `Blocked` for a file with the name of a gate that the limits of the branch do not exclude by path."""
        own = {self._fill(each) for each in self._contract.gate_paths}
        gates = [path for path in paths if is_gate(self._contract, path) and path not in own]
        if gates:
            why = f"{gates[0]} has the name of a gate file, which only the runner writes"
            self._record_denial(run, self._material.ability("write"), "GATE_FILE", why)
            raise Blocked(self._blame("denied", why, rule="write", place=gates[0]))

    def _find_denied(self, paths: Sequence[str]) -> str | None:
        """Return the first path that the contract does not allow."""
        fits = glob_test([whole_glob(each) for each in self._limits.writes or () if each[:1] != "!"])
        unfit = glob_test([each[1:] for each in self._limits.writes or () if each[:1] == "!"])
        return next((path for path in paths if not fits(path) or unfit(path)), paths[0] if paths else None)

    # --- outputs ------------------------------------------------------------------------------------------------------

    def _check_outputs(self, files: Sequence[File]) -> None:
        """Raise `Blocked` unless every output has a value that fits its schema."""
        found = {file.path: file for file in files}
        for output in self._contract.outputs:
            values = [self._check_output(output, file) for file in self._find(output, found)]
            self._output_values[output.name] = values if output.many else values[0] if values else None

    def _check_output(self, output: Output, file: File) -> Any:
        value = self._value_of(file, AGENT)
        violation = self._book.find_violation(output.schema, value)
        if violation:
            why = f"{file.path} does not fit {output.schema}: {violation}"
            raise Blocked(self._blame("rule", why, rule=output.schema, place=file.path, own=True))
        return value

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _in_branch(self, more: str, work: Callable[[Run], Any]) -> Any:
        """Return what *work* returns inside a branch with the limits of the contract."""
        box: list[Any] = []

        def perform(run: Run) -> Json:
            box.append(work(run))
            return None

        self._run.parallel([Branch(f"{self._branch_name}{more}", perform, limits=self._limits)])
        return box[0]

    def _fill(self, path: str) -> str:
        return fill(path, self._values)

    def _record(self, event: str, payload: Mapping[str, Any]) -> None:
        self._material.note(self._run, event, payload)

    def _blame(
        self, by: str, reason: str, *, rule: str | None = None, place: str | None = None, severity: str | None = None,
        missing: tuple[str, ...] = (), own: bool = False,
    ) -> Block:  # fmt: skip
        return Block(
            by=by,
            reason=reason,
            rule=rule,
            place=place,
            severity=severity,
            missing=missing,
            unit=self._unit_id,
            own=own,
        )


_ENDS_TASK: Final = frozenset({"CANCELLED", "LEDGER_BROKEN", "NEEDS_HUMAN", "APPROVAL_REFUSED"})
_UNREADABLE: Final = frozenset({"PATH_REFUSED", "NOT_TEXT", "TOO_LARGE", "TOO_MANY", "BAD_PATTERN", *DENIALS})
"""The codes of a file that cannot be read: it is a link, no text, too large, or outside the limits."""
_UNWRITABLE: Final = frozenset({"TOO_LARGE", "ARGUMENT_REFUSED", "SCHEMA_VIOLATION", "WRITE_CONFLICT"})


def _place_of(failure: Failed) -> str | None:
    """Return the path that a failure of a host names first."""
    quoted = str(failure).partition("'")[2].partition("'")[0]
    return quoted or str(failure).partition(":")[0] or None


def _without_persona(count: Callable[[str], TokenCount], role: Agent) -> Callable[[str], TokenCount]:
    """Return a counter for prompts that begin with the persona of *role*, which its request has beside the prompt."""
    return lambda text: count(text.replace(f"{role.instructions.rstrip()}\n\n", "", 1))


def _describe_excess(contract: Contract, context: PhaseContext) -> str:
    """Return why a prompt cannot be asked, and what helps."""
    largest = sorted((each for each in context.parts if each.required), key=lambda each: -each.tokens)[:3]
    parts = ", ".join(f"{each.path} ({each.tokens})" for each in largest)
    return (
        f"the prompt has {context.tokens} tokens ({context.counted}), and the budget is {context.budget}; its largest "
        f"parts are {parts}. Every run of {contract.phase} has these files, so go-on cannot help. What can: rework, "
        f"with a note that asks for a smaller change; stop, and smaller tasks, or a larger budget in the contract of "
        f"{contract.phase} and the task again"
    )


def _describe_context(context: PhaseContext) -> dict[str, Any]:
    """Return what ``swe.context_assembled`` says about a prompt."""
    return {
        "tokens": context.tokens,
        "counted": context.counted,
        "budget": context.budget,
        "parts": [{"path": each.path, "digest": each.digest, "tokens": each.tokens} for each in context.parts],
        "left_out": [f"{each.path} ({each.reason})" for each in context.left_out],
    }


_OUTAGES: Final = frozenset({"PROVIDER_ERROR", "AGENT_TIMEOUT"})
"""The codes with which a model, or the process of an agent, cannot be reached."""
