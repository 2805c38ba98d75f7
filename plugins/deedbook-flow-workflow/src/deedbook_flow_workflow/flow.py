"""The flow ``workflow``: runs the cycle that its settings describe."""

from typing import Final

from deedbook import Failed, HandlerSpec, Host, Object, Run

from .definition import SETTINGS

_TAKES: Final = {
    "type": "object",
    "required": ["request"],
    "properties": {"request": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}


class Workflow:
    """The flow: takes ``{request}``, and has the compiled cycle as its settings."""

    spec = HandlerSpec(settings=SETTINGS, takes=_TAKES, effects="none")

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._settings = settings

    def __call__(self, args: Object, run: Run) -> None:
        """Refuse: this version compiles workflows and does not run them."""
        del args, run
        raise Failed("NOT_AVAILABLE", "this version of deedbook-flow-workflow does not run workflows")
