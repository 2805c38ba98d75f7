"""The flow ``phase-pipeline``: takes a task through the phases that its settings describe."""

from functools import cached_property
from typing import Final

from deedbook import HandlerSpec, Host, Object, Run

from .definition import SETTINGS, Definition, check_settings
from .events import EVENTS

_TEXT: Final = {"type": "string", "minLength": 1}
_TAKES: Final = {
    "type": "object",
    "properties": {
        "task": {"description": "The task: members of swe_task_v1", "type": "object"},
        "prompt": {"description": "The task as JSON, or the request in plain words", **_TEXT},
    },
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}


class PhasePipeline:
    """The flow: takes ``{prompt}`` or ``{task}``, and has the compiled pipeline as its settings.

    COMPLETED: the task is done. HALTED: a person stopped it. FAILED: it could not go on.
    """

    spec = HandlerSpec(
        settings=SETTINGS, takes=_TAKES, effects="none", records=EVENTS, check=check_settings, files="none"
    )

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._settings = settings

    def __call__(self, args: Object, run: Run) -> None:
        """Run the task."""
        from .running.intake import read_task  # noqa: PLC0415 - only a run needs the runner
        from .running.task_run import run_task  # noqa: PLC0415

        run_task(run, self._definition, read_task(args, run, self._definition))

    @cached_property
    def _definition(self) -> Definition:
        return Definition.parse(self._settings)
