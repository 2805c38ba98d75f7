"""How each role's message is filled from a rule: honestly, or not at all."""

from typing import Any

from deedbook import Failed, Object

from .completion import compact, response
from .conversation import Conversation, Done
from .rule import Fit, Rule, Step, fit
from .template import references
from .work import Work


def lead(request: Object) -> dict[str, Any]:
    """``lead_directive_v1``: the request is the intent; a rule has to fit it."""
    told = Conversation.of(request)
    fit(request.get("skill"), told.request)
    return _message(request, {"intent": told.request.strip(), "constraints": [], "needs_advisor": False})


def planner(request: Object) -> dict[str, Any]:
    """``plan_v1``: the rule's steps as ``s1``, ``s2``, …; a step depends on those whose results it uses.

    A rule with an optional step makes a ``plan_v2``.
    """
    found = fit(request.get("skill"), Conversation.of(request).request)
    steps = [_plan_step(found, number, step) for number, step in enumerate(found.rule.steps, 1)]
    version = "v2" if any(step.optional for step in found.rule.steps) else "v1"
    return _message(request, {"steps": steps, "risks": _risks(found.rule), "needs_advisor": False}, version)


def worker(request: Object) -> dict[str, Any]:
    """``worker_report_v1``, or the next tool call; after the error of a required step, what was done until then."""
    told = Conversation.of(request)
    found = fit(request.get("skill"), told.request)
    if not found.rule.completes and "feedback" in told.brief:  # another attempt cannot do more
        return _message(request, {**told.part("report", "steps_completed"), "tool_calls_made": []})
    work = Work.of(found, _ids(told, found.rule), told.done, _find_offered(request))
    if work.call is not None:
        return response(request, tool_calls=[{"id": f"t{told.total + 1}", **work.call}])
    return _report(request, work.failure or work.answer(), work, told.done)


def reviewer(request: Object) -> dict[str, Any]:
    """``review_result_v1``: every planned step reported as done, none invented, and an output that says something.

    The report of a rule that does not complete the request never passes; the feedback is its output.
    """
    told = Conversation.of(request)
    steps = told.part("plan", "steps")["steps"]
    report = told.part("report", "steps_completed")
    skipped = [step["id"] for step in steps if step.get("optional") and step["id"] in report.get("steps_skipped", ())]
    plan = [step["id"] for step in steps if step["id"] not in skipped]
    faults = _faults(plan, report["steps_completed"], str(report.get("output", "")))
    if not faults and request.get("skill") and not fit(request["skill"], told.request).rule.completes:
        faults = [report["output"]]
    done = "The planned step is" if len(plan) == 1 else f"All {len(plan)} planned steps are"
    more = f" Optional steps without a result: {', '.join(skipped)}." if skipped else ""
    feedback = " ".join(faults) or f"{done} reported as completed, and there is an output.{more}"
    return _message(request, {"verdict": "fail" if faults else "pass", "feedback": feedback})


def advisor(request: Object) -> dict[str, Any]:
    """``advice_v1``: that rules have no view of their own."""
    advice = "None: the model in use is a set of rules, which has no view of its own. Ask a person or another model."
    return _message(request, {"advice": advice, "considerations": []})


def scaffolder(request: Object) -> dict[str, Any]:
    """``scaffold_v1``: that nothing was prepared."""
    summary = "Nothing was prepared; the steps of a rule need nothing beforehand."
    return _message(request, {"summary": summary, "created": [], "tool_calls_made": []})


def _message(request: Object, body: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    return response(request, text=compact({**body, "schema_version": version}))


def _plan_step(found: Fit, number: int, step: Step) -> dict[str, Any]:
    needs = sorted({reference.step for reference in references(step.args) if reference.step})
    description = found.filling(step=number).text(step.description)
    planned = {"id": f"s{number}", "description": description, "depends_on": [f"s{need}" for need in needs]}
    return {**planned, "optional": True} if step.optional else planned


def _risks(rule: Rule) -> list[str]:
    return [
        f"s{number} cannot run if the result of s{reference.step} has nothing at {reference.pointer}"
        for number, step in enumerate(rule.steps, 1)
        for reference in dict.fromkeys(references(step.args))
        if reference.pointer
    ]


def _find_offered(request: Object) -> frozenset[str] | None:
    """Return the names of the tools that the request offers; ``None`` if it does not list them."""
    return frozenset(tool["name"] for tool in request["tools"]) if "tools" in request else None


def _ids(told: Conversation, rule: Rule) -> list[str]:
    """Return the plan's step ids; a plan of another length is not the plan of *rule*."""
    ids = [step["id"] for step in told.part("plan", "steps")["steps"]]
    if len(ids) != len(rule.steps):
        raise Failed("NO_RULE", f"the plan has {len(ids)} steps, but {rule.place} has {len(rule.steps)}")
    return ids


def _report(request: Object, output: str, work: Work, done: tuple[Done, ...]) -> dict[str, Any]:
    made = [f"{call.ability}:{call.id}" for call in done]
    body = {"output": output, "steps_completed": work.completed, "tool_calls_made": made}
    return _message(request, {**body, "steps_skipped": list(work.skipped)} if work.skipped else body)


def _faults(plan: list[str], completed: list[Any], output: str) -> list[str]:
    faults = []
    if missing := [step for step in plan if step not in completed]:
        faults.append(f"Not completed: {', '.join(missing)}.")
    if invented := [str(step) for step in completed if step not in plan]:
        faults.append(f"Reported, but not planned: {', '.join(invented)}.")
    if not output.strip():
        faults.append("The output is empty.")
    return [*faults, f"The worker says: {output.strip()[:500]}"] if missing and output.strip() else faults
