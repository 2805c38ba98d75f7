"""The Five-Point Protocol: clarify, scope, plan, execute, verify, each audited.

``five-point`` writes each point to its context; ``five-point-audit`` returns the findings. Both get the metadata of a
work, ``output``, or call the ability that the setting ``work`` names for it:

| member of ``output`` | point | what is checked |
|---|---|---|
| ``clarification`` | clarify | an ``intent``, and no open ``questions`` |
| ``scope`` | scope | the ``constraints`` of the settings are there; used ``abilities`` are listed, if any are |
| ``plan`` | plan | the plan passes the validator |
| ``report`` | execute | a ``worker_report_v1`` that covers the plan |
| ``evidence`` | verify | an entry ``{criterion, passed: true}`` for each of the ``criteria`` of the settings |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook import Failed, HandlerSpec, Host, Object, Run
from deedbook.format.schema import Schemas, data_folder
from deedbook_flow_runcontext.coverage import check_coverage
from deedbook_flow_runcontext.findings import Finding, errors, quote_names
from deedbook_flow_runcontext.validation import validate_plan

NOTE: Final = "five_point"
"""The type of the entry in the execution log for one point."""

_TEXTS: Final = {"type": "array", "items": {"type": "string", "minLength": 1}, "default": []}
_SETTINGS: Final = {
    "type": "object",
    "properties": {
        "constraints": {**_TEXTS, "description": "What every scope must contain."},
        "criteria": {**_TEXTS, "description": "What every work must give evidence of."},
        "work": {
            "type": "string",
            "minLength": 1,
            "description": "The ability that gives the output, if none is given.",
        },
    },
    "additionalProperties": False,
}
_TAKES: Final = {
    "type": "object",
    "required": ["prompt"],
    "properties": {"prompt": {"type": "string"}, "output": {"type": "object"}},
    "additionalProperties": False,
}
_POINT: Final = {
    "type": "object",
    "required": ["point", "passed", "findings"],
    "properties": {
        "point": {"enum": ["clarify", "scope", "plan", "execute", "verify"]},
        "passed": {"type": "boolean"},
        "findings": {"type": "array", "items": {"type": "object"}},
    },
    "additionalProperties": False,
}
_GIVES: Final = {
    "type": "object",
    "required": ["passed", "points"],
    "properties": {"passed": {"type": "boolean"}, "points": {"type": "array", "items": _POINT}},
    "additionalProperties": False,
}

_ARTIFACTS: Final = {"clarify": "clarification_v1", "scope": "scope_v1"}


@attrs.frozen
class Point:
    """One audited point: its *artifact* in the output, and the *findings* about it."""

    name: str
    artifact: Object
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether no finding is an error."""
        return not errors(self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return it without the artifact."""
        return {"point": self.name, "passed": self.passed, "findings": [each.as_json() for each in self.findings]}


@attrs.frozen
class FivePointProtocol:
    """The protocol with its *constraints* and *criteria*; *work* is the ability that gives the output."""

    constraints: Sequence[str] = ()
    criteria: Sequence[str] = ()
    work: str | None = None

    def audit(self, run: Run, args: Object) -> Iterator[Point]:
        """Yield the points in order; the ability that gives the output is called first."""
        output = self._get_output(run, args)
        checks: Mapping[str, tuple[str, Callable[[Object], Iterator[Finding]]]] = {
            "clarify": ("clarification", _check_clarification),
            "scope": ("scope", self._check_scope),
            "plan": ("plan", _check_plan),
            "execute": ("report", _check_report),
            "verify": ("evidence", self._check_evidence),
        }
        for name, (member, check) in checks.items():
            yield Point(name, _object(output.get(member), member), tuple(check(output)))

    def _get_output(self, run: Run, args: Object) -> Object:
        if "output" in args:
            return dict(args["output"])
        if self.work is None:
            why = "there is no output to audit; give output, or name the ability that gives it in the setting work"
            raise Failed("NO_OUTPUT", why)
        output = run.call(self.work, {"prompt": args["prompt"]})
        if not isinstance(output, dict):
            raise Failed("NO_OUTPUT", f"{self.work} gave {type(output).__name__}; an object is expected")
        return output

    def _check_scope(self, output: Object) -> Iterator[Finding]:
        scope = _object(output.get("scope"), "scope")
        stated = scope.get("constraints", [])
        missing = [each for each in self.constraints if not isinstance(stated, list) or each not in stated]
        if missing:
            yield Finding("scope", f"scope.constraints does not have {quote_names(missing)}; add what limits the work")
        allowed = scope.get("abilities")
        report = output.get("report")
        used = report.get("tool_calls_made", []) if isinstance(report, dict) else []
        beyond = (
            sorted({str(call).partition(":")[0] for call in used} - {*allowed}) if isinstance(allowed, list) else []
        )
        if beyond:
            yield Finding("scope", f"the work used {quote_names(beyond)}, which scope.abilities does not have")

    def _check_evidence(self, output: Object) -> Iterator[Finding]:
        given = output.get("evidence", [])
        entries = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
        passed = {str(each.get("criterion")) for each in entries if each.get("passed") is True}
        failed = [str(each.get("criterion")) for each in entries if each.get("passed") is not True]
        if missing := [each for each in self.criteria if each not in passed and each not in failed]:
            yield Finding("verify", f"there is no evidence for {quote_names(missing)}; add it")
        if failed:
            yield Finding("verify", f"{quote_names(failed)} did not pass; mend the work")


def _check_clarification(output: Object) -> Iterator[Finding]:
    clarification = _object(output.get("clarification"), "clarification")
    if not clarification.get("intent"):
        yield Finding("clarify", "clarification.intent is empty; say what is wanted")
    if clarification.get("questions"):
        yield Finding("clarify", "clarification.questions is not empty; answer the questions first")


def _check_plan(output: Object) -> Iterator[Finding]:
    plan: Any = output.get("plan")
    if problem := _find_violation(plan, _plan_schema(plan)):
        yield Finding("plan", f"the plan is no plan: {problem}")
    else:
        yield from validate_plan(plan)


def _check_report(output: Object) -> Iterator[Finding]:
    plan: Any = output.get("plan")
    report: Any = output.get("report")
    if problem := _find_violation(report, "worker_report_v1"):
        yield Finding("execute", f"the report is no worker_report_v1: {problem}")
    elif not _find_violation(plan, _plan_schema(plan)):
        yield from check_coverage(plan, report)


def _plan_schema(plan: Any) -> str:
    return "plan_v2" if isinstance(plan, dict) and plan.get("schema_version") == "v2" else "plan_v1"


def _find_violation(value: Any, schema: str) -> str:
    """Return the first violation of a value, or nothing."""
    found = Schemas.load(data_folder("schemas")).interpreted(schema).violations(value)
    return str(found[0]) if found else ""


def _object(value: Any, member: str) -> dict[str, Any]:
    """Return a member as an object: what is none stands under its name."""
    return value if isinstance(value, dict) else {} if value is None else {member: value}


def _as_artifact(point: Point) -> Object:
    """Return the artifact of *point*, typed; one of another form stands under ``given``."""
    if point.name == "plan":
        return (
            point.artifact if not _find_violation(point.artifact, _plan_schema(point.artifact)) else _make_input(point)
        )
    typed = {**point.artifact, "schema_version": "v1"}
    if point.name == "scope":
        typed = {"constraints": [], **typed}
    return typed if not _find_violation(typed, _ARTIFACTS[point.name]) else _make_input(point)


def _make_input(point: Point) -> Object:
    return {"given": dict(point.artifact)}


class _FivePoint:
    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        texts = {name: tuple(settings.get(name, ())) for name in ("constraints", "criteria")}
        self._protocol = FivePointProtocol(**texts, work=settings.get("work"))


class FivePoint(_FivePoint):
    """The flow ``five-point``: each point is a stage of its context; it FAILS with the findings, or COMPLETES."""

    spec = HandlerSpec(settings=_SETTINGS, takes=_TAKES, effects="none", files="none")

    def __call__(self, args: Object, run: Run) -> None:
        """Take the points through the context."""
        context = run.context
        stages: Mapping[str, Callable[[Object], None]] = {
            "clarify": context.clarify,
            "scope": context.set_scope,
            "plan": context.plan,
        }
        refused: list[str] = []
        report: Object | None = None
        evidence: Object = {}
        for point in self._protocol.audit(run, args):
            if point.name in stages:
                stages[point.name](_as_artifact(point))
            elif point.name == "execute":
                context.begin_execution()
                report = None if _find_violation(point.artifact, "worker_report_v1") else point.artifact
            else:
                evidence = point.artifact
                if report is not None:
                    context.verify(report)
            context.note(NOTE, {"point": point.name, "passed": point.passed})
            for finding in point.findings:
                context.add_finding({**finding.as_json(), "point": point.name})
            refused += [each.message for each in errors(point.findings)]
        if refused:
            context.fail("; ".join(refused)[:2000])
        else:
            context.complete({**evidence, "verdict": "pass", "schema_version": "v1"})


class FivePointAudit(_FivePoint):
    """The flow ``five-point-audit``: returns ``{passed, points}`` and has no context."""

    spec = HandlerSpec(settings=_SETTINGS, takes=_TAKES, gives=_GIVES, effects="none", files="none")

    def __call__(self, args: Object, run: Run) -> dict[str, Any]:
        """Return the audited points."""
        points = list(self._protocol.audit(run, args))
        return {"passed": all(each.passed for each in points), "points": [each.as_json() for each in points]}
