"""One run of a phase: fan-out to its personas, fan-in of their answers, and the decisions of policies."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

import attrs

from deedbook import Branch, Failed, Object, Run
from deedbook_flow_workflow.aggregate import Coverage, Report, build_aggregate, merge_findings
from deedbook_flow_workflow.definition import AGGREGATE, COVERAGE, DISPATCH, FINDINGS, WRITER, Definition, Phase

from .answers import AnswerReader, PersonaAnswer, read_pass
from .handoff import build_prompt
from .judgement import Judgement

_MANNERS: Final = ("deliverables", "ux")
"""What policies about dispatches may say to a persona."""
_ENDS: Final = frozenset({"CANCELLED", "LEDGER_BROKEN"})
"""Failures that end the cycle instead of counting as the failure of one persona."""


@attrs.frozen(kw_only=True)
class Material:
    """What a run of a phase works with: the *request*, the output of an earlier phase and its *authors*, and more.

    *earlier* is the aggregate of the last run of this phase, *fields* are those of the names of artifacts, *written*
    are the hashes of the files that the cycle has written.
    """

    request: str
    given: Object | None
    authors: Collection[str]
    earlier: Object | None
    generation: int
    fields: Mapping[str, str]
    written: Mapping[str, str]


@attrs.frozen(kw_only=True)
class PhaseOutcome:
    """What a run of a phase came to. *blocked* is why the cycle may not go on; empty if it may."""

    answers: tuple[PersonaAnswer, ...]
    aggregate: Object
    output: Object | None = None
    authors: frozenset[str] = frozenset()
    path: str = ""
    digest: str = ""
    blocked: str = ""


class PhaseRun:
    """Runs *phase* once."""

    def __init__(
        self, run: Run, definition: Definition, phase: Phase, judgement: Judgement, material: Material
    ) -> None:
        self._run, self._definition, self._phase = run, definition, phase
        self._judgement, self._material = judgement, material
        self._reader = AnswerReader(definition, phase, material.authors)
        self._manners: dict[str, dict[str, Any]] = {}

    def go(self) -> PhaseOutcome:
        """Ask the personas, and return what came of it."""
        refused = {each.persona: each for each in self._find_refused()}
        asked = [name for name in self._phase.personas if name not in refused]
        answers = refused | {each.persona: each for each in self._ask(asked)}
        outcome = self._join([answers[name] for name in self._phase.personas])
        return outcome if outcome.blocked else self._write(outcome)

    # --- fan-out ------------------------------------------------------------------------------------------------------

    def _find_refused(self) -> list[PersonaAnswer]:
        """Return the personas that are not asked: authors who would review their own output, and denied ones."""
        refused = []
        for name in self._phase.personas:
            reason = self._find_refusal(name)
            if reason:
                refused.append(PersonaAnswer(persona=name, state="refused", reason=reason))
        return refused

    def _find_refusal(self, name: str) -> str:
        persona = self._definition.personas[name]
        if self._phase.is_review and name in self._material.authors:
            return f"{name} would review its own output; name another persona for the phase {self._phase.id}"
        value = {
            "persona": name,
            "role": persona.role,
            "mode": self._run.mode,
            "cycle": self._definition.cycle.id,
            "phase": self._phase.id,
            "generation": self._material.generation,
            "flow": self._phase.flow,
            "writes": list(persona.writes),
        }
        decision = self._judgement.decide(DISPATCH, value)
        self._manners[name] = {key: decision.signals[key] for key in _MANNERS if key in decision.signals}
        return decision.reason if decision.outcome == "deny" else ""

    def _ask(self, personas: Collection[str]) -> list[PersonaAnswer]:
        branches = [Branch(name, self._prepare_pass(name), skill=name) for name in personas]
        found = self._run.parallel(branches, return_failures=True)
        for result in found:
            _raise_if_final(result)
        return [self._reader.read(name, result) for name, result in zip(personas, found, strict=True)]

    def _prepare_pass(self, persona: str) -> Callable[[Run], Any]:
        material, manners = self._material, self._manners[persona]
        prompt = build_prompt(self._phase, material.request, material.given, material.earlier, manners)
        return partial(_run_pass, flow=self._phase.flow, prompt=prompt)

    # --- fan-in -------------------------------------------------------------------------------------------------------

    def _join(self, answers: list[PersonaAnswer]) -> PhaseOutcome:
        reports = [
            Report(reviewer=each.persona, findings=each.findings, evidence=each.evidence)
            for each in answers
            if each.has_reported
        ]
        findings = merge_findings(reports)
        coverage = Coverage(asked=len(answers), failed=[each.persona for each in answers if not each.has_reported])
        aggregate = build_aggregate(findings, self._judgement.decide_findings(findings), coverage)
        output, authors = self._find_output(answers, aggregate)
        return PhaseOutcome(
            answers=tuple(answers),
            aggregate=aggregate,
            output=output,
            authors=authors,
            blocked=self._find_block(coverage, output),
        )

    def _find_output(self, answers: list[PersonaAnswer], aggregate: Object) -> tuple[Object | None, frozenset[str]]:
        """Return the output of the phase, with its authors: that of the first persona that gave one."""
        if self._phase.output_schema in (AGGREGATE, FINDINGS):
            found = aggregate if self._phase.output_schema == AGGREGATE else {"findings": aggregate["findings"]}
            return found, frozenset()
        given = next((each for each in answers if each.output is not None), None)
        return (given.output, frozenset({given.persona})) if given else (None, frozenset())

    def _find_block(self, coverage: Coverage, output: Object | None) -> str:
        """Return why the cycle may not go on: an answer is missing and no policy allows that, or the output is."""
        if coverage.failed:
            missing = f"no answer counts of {', '.join(sorted(coverage.failed))}"
            if not self._judgement.judges(COVERAGE):
                return f"{missing}, and no policy allows that"
            where = {"cycle": self._definition.cycle.id, "phase": self._phase.id, "mode": self._run.mode}
            decision = self._judgement.decide(COVERAGE, {**where, **coverage.as_json()})
            if decision.outcome == "deny":
                return f"{missing}: {decision.reason}"
        if self._phase.output_schema is not None and output is None:
            return f"no persona gave the output {self._phase.output_schema}"
        return ""

    # --- the artifact -------------------------------------------------------------------------------------------------

    def _write(self, outcome: PhaseOutcome) -> PhaseOutcome:
        """Write the artifact of the phase, in the scope of the persona that gave it."""
        name = self._phase.artifact
        if name is None or outcome.output is None:
            return outcome
        reported = (each.persona for each in outcome.answers if each.has_reported)
        author = next(iter(outcome.authors), None) or next(reported, None)
        if author is None:
            return attrs.evolve(outcome, blocked=f"the artifact {name} was not written: no persona reported")
        artifact = self._definition.artifacts[name]
        args = {
            "artifact": attrs.asdict(artifact),
            "schema": self._definition.schemas[artifact.schema],
            "value": outcome.output,
            "fields": self._material.fields,
            "why": f"the artifact {name} of the phase {self._phase.id}",
            "written": self._material.written,
        }
        branch = Branch(f"artifact {name}", lambda run: run.call(WRITER, args), skill=author)
        [found] = self._run.parallel([branch], return_failures=True)
        if not isinstance(found, Failed):
            return attrs.evolve(outcome, path=found["path"], digest=found["hash"])
        _raise_if_final(found)
        return attrs.evolve(outcome, blocked=f"the artifact {name} was not written: {found.code}: {found}")


def _raise_if_final(result: Any) -> None:
    """Raise a failure that ends the cycle."""
    if isinstance(result, Failed) and (result.lost or result.code in _ENDS):
        raise result


def _run_pass(run: Run, *, flow: str, prompt: str) -> Any:
    run.progress({"persona": run.skill.name if run.skill else "", "flow": flow})
    return read_pass(run, run.call(flow, {"prompt": prompt}))
