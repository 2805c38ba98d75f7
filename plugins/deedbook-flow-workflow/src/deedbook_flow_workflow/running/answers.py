"""What a persona's pass gave: findings, the output of the phase, or nothing that counts; pure."""

import json
from collections.abc import Callable, Collection
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook import Failed, Object
from deedbook.format.schema import Schemas, data_folder, foreign
from deedbook_flow_workflow.aggregate import Report, ReportRefused, check_report
from deedbook_flow_workflow.definition import FINDINGS, Definition, Phase

State: TypeAlias = Literal["reported", "failed", "refused"]
_LONGEST: Final = 500
_END: Final = "COMPLETED"


@attrs.frozen(kw_only=True)
class PersonaAnswer:
    """The answer of one persona: it *reported* with *findings* or an *output*, or it did not, with the *reason*."""

    persona: str
    state: State
    reason: str = ""
    findings: tuple[Object, ...] = ()
    output: Object | None = None

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
        given = phase.output_schema
        own = None if phase.is_review or given is None else given
        self._output = foreign(definition.schemas[own], place=f"schema {own}") if own else None

    def read(self, persona: str, result: "Object | Failed") -> PersonaAnswer:
        """Return the answer in what the pass of *persona* gave: its state and output, or a failure."""
        if isinstance(result, Failed):
            return _unanswered(persona, "failed", f"{result.code}: {result}")
        if result["state"] != _END:
            return _unanswered(persona, "failed", f"its pass ended {result['state']}: {result['output']}")
        try:
            given = json.loads(result["output"])
        except (ValueError, RecursionError):
            return _unanswered(persona, "failed", f"its output is no JSON object: {result['output']}")
        return self._read_object(persona, given)

    def _read_object(self, persona: str, given: Any) -> PersonaAnswer:
        if self._output is not None and self._output.valid(given):
            return PersonaAnswer(persona=persona, state="reported", output=given)
        violations = self._findings.violations(given)
        if violations:
            wanted = [FINDINGS, *([str(self._phase.output_schema)] if self._output is not None else [])]
            return _unanswered(persona, "failed", f"its output does not fit {' or '.join(wanted)}: {violations[0]}")
        report = Report(reviewer=persona, findings=given["findings"])
        authors = self._authors if self._phase.is_review else ()
        try:
            check_report(report, personas=self._definition.personas, authors=authors)
        except ReportRefused as problem:
            return _unanswered(persona, "refused", str(problem))
        return PersonaAnswer(persona=persona, state="reported", findings=tuple(given["findings"]))


def read_pass(read_context: Callable[[Any], Any], result: Any) -> dict[str, str]:
    """Return the state and the output of a nested pass: of its context, or of a standalone flow's result."""
    if not (isinstance(result, dict) and set(result) == {"context"}):
        return {"state": _END, "output": result if isinstance(result, str) else json.dumps(result)}
    context = read_context(result)
    return {"state": context.state, "output": context.reply}


def _unanswered(persona: str, state: State, reason: str) -> PersonaAnswer:
    return PersonaAnswer(persona=persona, state=state, reason=reason[:_LONGEST])
