"""The content pipeline: analyze, bridge, validate, refine, execute, review.

Each stage is an ability, called with ``{prompt, results}``: the results of the earlier stages by name. A stage that the
settings do not name is left out. The record of a stage is written when it ends. A result ``{"ok": false, "reason": …}``
ends the pipeline.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from deedbook import HandlerSpec, Host, Object, Run

from .modes import (
    PROMPT,
    ContextRecords,
    Records,
    ResultRecords,
    build_chain,
    build_clarification,
    build_report,
    describe_value,
)

NOTE: Final = "pipeline_stage"
"""The type of the record of one stage: ``{stage, ok, result}``."""
STAGES: Final = ("analyze", "bridge", "validate", "refine", "execute", "review")

_SETTINGS: Final = {
    "type": "object",
    "required": ["execute"],
    "properties": {
        name: {"type": "string", "minLength": 1, "description": f"The ability for {name}."} for name in STAGES
    },
    "additionalProperties": False,
}
_GIVES: Final = {
    "type": "object",
    "required": ["passed", "reason", "stages"],
    "properties": {
        "passed": {"type": "boolean"},
        "reason": {"type": "string"},
        "stages": {"type": "array", "items": {"type": "object"}},
    },
    "additionalProperties": False,
}


@attrs.frozen
class ContentPipeline:
    """The pipeline: the ability of each stage, in their order."""

    abilities: Mapping[str, str]

    def run(self, run: Run, prompt: str, records: Records, begin: Callable[[str], None] = lambda _: None) -> str:
        """Run the stages, and return why one of them ended the pipeline; empty if none did.

        *begin* is called before each stage.
        """
        for stage, ability in self.abilities.items():
            begin(stage)
            results = {each["stage"]: each["result"] for each in records.read(NOTE)}
            result = run.call(ability, {"prompt": prompt, "results": results})
            ok = not (isinstance(result, dict) and result.get("ok") is False)
            records.write(NOTE, {"stage": stage, "ok": ok, "result": result})
            if not ok:
                reason = result.get("reason") if isinstance(result, dict) else None
                return f"the stage {stage} did not pass: {reason or 'without a reason'}"
        return ""


class _Pipeline:
    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._pipeline = ContentPipeline({name: settings[name] for name in STAGES if name in settings})


class Pipeline(_Pipeline):
    """The flow ``content-pipeline``: each stage is a note ``pipeline_stage``, written when it ends.

    The context is CLARIFIED after ``analyze``, SCOPED after ``bridge``, PLANNED and EXECUTING before ``execute``.
    """

    spec = HandlerSpec(settings=_SETTINGS, takes=PROMPT, effects="none", files="none")

    def __call__(self, args: Object, run: Run) -> None:
        """Run the pipeline in the context."""
        context, records = run.context, ContextRecords(run)
        failed = self._pipeline.run(run, args["prompt"], records, lambda stage: self._begin(run, args["prompt"], stage))
        if failed:
            context.fail(failed[:2000])
            return
        made = {each["stage"]: each["result"] for each in records.read(NOTE)}
        calls = [f"{self._pipeline.abilities[stage]}:{stage}" for stage in made]
        context.verify(build_report(describe_value(made["execute"]), completed=list(made), calls=calls))
        context.complete({"verdict": "pass", "stages": len(made), "schema_version": "v1"})

    def _begin(self, run: Run, prompt: str, stage: str) -> None:
        """Move the context to the state in which *stage* runs."""
        context = run.context
        at = STAGES.index(stage)
        made = {entry.data["stage"]: entry.data["result"] for entry in context.read().log}
        if at > STAGES.index("analyze") and context.state == "CREATED":
            context.clarify(build_clarification(prompt, result=made.get("analyze")))
        if at > STAGES.index("bridge") and context.state == "CLARIFIED":
            context.set_scope({"constraints": [], "result": made.get("bridge"), "schema_version": "v1"})
        if at >= STAGES.index("execute") and context.state == "SCOPED":
            context.plan(build_chain(self._pipeline.abilities))
            context.begin_execution()


class PipelineResult(_Pipeline):
    """The flow ``content-pipeline-result``: returns ``{passed, reason, stages}`` and has no context."""

    spec = HandlerSpec(settings=_SETTINGS, takes=PROMPT, gives=_GIVES, effects="none", files="none")

    def __call__(self, args: Object, run: Run) -> dict[str, Any]:
        """Return the stages, and whether all passed."""
        records = ResultRecords()
        failed = self._pipeline.run(run, args["prompt"], records)
        return {"passed": not failed, "reason": failed, "stages": records.read(NOTE)}
