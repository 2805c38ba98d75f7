"""What a persona's pass gave: findings, the output of the phase, or nothing that counts; pure."""

import json
from collections.abc import Collection, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook import Failed, Object, Run
from deedbook.contract import RecordedOutcome
from deedbook.format import canonical
from deedbook.format.errors import IntakeError
from deedbook.format.schema import Schemas, data_folder, foreign
from deedbook_flow_workflow.aggregate import Report, ReportRefused, check_report
from deedbook_flow_workflow.definition import FINDINGS, Definition, Phase

State: TypeAlias = Literal["reported", "failed", "refused"]
_LONGEST: Final = 500
_END: Final = "COMPLETED"


@attrs.frozen(kw_only=True)
class PersonaAnswer:
    """The answer of one persona: it *reported* with *findings* or an *output*, or it did not, with the *reason*.

    *evidence* has the digests of what tools, or else models, answered to it.
    """

    persona: str
    state: State
    reason: str = ""
    findings: tuple[Object, ...] = ()
    output: Object | None = None
    evidence: frozenset[str] = frozenset()

    @property
    def has_reported(self) -> bool:
        """Whether it counts."""
        return self.state == "reported"

    def as_json(self) -> dict[str, Any]:
        """Return the row of the record of a phase."""
        return {"persona": self.persona, "state": self.state, "reason": self.reason, "findings": len(self.findings)}


class AnswerReader:
    """Reads the answers of the personas of a phase. *authors* are the personas whose output they review."""

    def __init__(self, definition: Definition, phase: Phase, authors: Collection[str]) -> None:
        self._definition, self._phase, self._authors = definition, phase, authors
        self._findings = Schemas.load(data_folder("schemas")).validator(FINDINGS)
        own = None if phase.is_review else phase.output_schema
        self._output = foreign(definition.schemas[own], place=f"schema {own}") if own else None

    def read(self, persona: str, result: "Object | Failed") -> PersonaAnswer:
        """Return the answer in what the pass of *persona* gave: its state and output, or a failure."""
        if isinstance(result, Failed):
            return _missing_answer(persona, "failed", f"{result.code}: {result}")
        if result["state"] != _END:
            return _missing_answer(persona, "failed", f"its pass ended {result['state']}: {result['output']}")
        try:
            given = canonical.parse(result["output"])
        except IntakeError:
            return _missing_answer(persona, "failed", f"its output is no JSON object: {result['output']}")
        return attrs.evolve(self._read_object(persona, given), evidence=frozenset(result["evidence"]))

    def _read_object(self, persona: str, given: Any) -> PersonaAnswer:
        if self._output is not None and self._output.valid(given):
            return PersonaAnswer(persona=persona, state="reported", output=given)
        violations = self._findings.violations(given)
        if violations:
            wanted = [FINDINGS, *([str(self._phase.output_schema)] if self._output is not None else [])]
            return _missing_answer(persona, "failed", f"its output does not fit {' or '.join(wanted)}: {violations[0]}")
        report = Report(reviewer=persona, findings=given["findings"])
        authors = self._authors if self._phase.is_review else ()
        try:
            check_report(report, personas=self._definition.personas, authors=authors)
        except ReportRefused as problem:
            return _missing_answer(persona, "refused", str(problem))
        return PersonaAnswer(persona=persona, state="reported", findings=tuple(given["findings"]))


def read_pass(run: Run, result: Any) -> dict[str, Any]:
    """Return the state, the output and the evidence of a nested pass, which was the only call of the branch *run*.

    State and output are those of its context, or of a standalone flow's result.
    """
    evidence = find_evidence(run.outcomes())
    if not (isinstance(result, dict) and set(result) == {"context"}):
        return {"state": _END, "output": result if isinstance(result, str) else json.dumps(result), **evidence}
    context = run.read_context(result)
    return {"state": context.state, "output": context.reply, **evidence}


def find_evidence(outcomes: Sequence[RecordedOutcome]) -> dict[str, list[str]]:
    """Return the digests of what tools and memories answered; if none did, of what models answered."""
    seen = [each.digest for each in outcomes if each.kind != "model"]
    return {"evidence": seen or [each.digest for each in outcomes]}


def _missing_answer(persona: str, state: State, reason: str) -> PersonaAnswer:
    return PersonaAnswer(persona=persona, state=state, reason=reason[:_LONGEST])
