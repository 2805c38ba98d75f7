"""The flow ``workflow``: runs the cycle that its settings describe. It calls the flows of phases, and nothing else."""

from functools import cached_property
from typing import TYPE_CHECKING, Final

from deedbook import HandlerSpec, Host, Object, Run

from .definition import SETTINGS, Definition, check_settings
from .running.events import EVENTS

if TYPE_CHECKING:
    from .running.signal_set import SignalSet

_TEXT: Final = {"type": "string", "minLength": 1}
_TAKES: Final = {
    "type": "object",
    "properties": {
        "request": {"description": "What the cycle is about", **_TEXT},
        "prompt": {"description": "The same, as the prompt of a session", **_TEXT},
    },
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}


class Workflow:
    """The flow: takes ``{request}`` or ``{prompt}``, and has the compiled cycle as its settings.

    COMPLETED: the verdict is done. HALTED: a bound or a policy stopped it. FAILED: it was aborted by a signal, a hook
    or a failure.
    """

    spec = HandlerSpec(
        settings=SETTINGS, takes=_TAKES, effects="none", records=EVENTS, check=check_settings, files="none"
    )

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._settings = settings

    def __call__(self, args: Object, run: Run) -> None:
        """Run the cycle."""
        from .running.cycle_run import CycleRun

        CycleRun(run, self._definition, self._signals).go(args["request"] if "request" in args else args["prompt"])

    @cached_property
    def _definition(self) -> Definition:
        return Definition.parse(self._settings)

    @cached_property
    def _signals(self) -> "SignalSet":
        from .running.signal_set import SignalSet

        return SignalSet(self._definition)
