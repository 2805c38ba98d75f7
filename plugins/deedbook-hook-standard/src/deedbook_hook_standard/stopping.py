"""When the loop ends."""

from typing import ClassVar, Final

from deedbook.contract import Decision, GateSpec, Host, Object, allow, deny, hookimpl

_AFTER: Final[Object] = {
    "type": "object",
    "properties": {
        "after": {
            "description": "Stop after a turn that succeeded, one that failed, or any; any if left out",
            "enum": ["any", "success", "failure"],
        }
    },
    "additionalProperties": False,
}


class Stop:
    """Ends the loop after one turn."""

    spec: ClassVar[GateSpec] = GateSpec(settings=_AFTER, pure=True)

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of every plugin
        self._after = settings.get("after", "any")

    @hookimpl
    def stop(self, session: str, ok: bool, now: str, facts: Object) -> Decision:  # noqa: ARG002 - the event's signature
        """Deny, which ends the loop, if the turn went as set; otherwise allow it to go on."""
        turn = "success" if ok else "failure"
        return deny(f"one turn is done: {turn}") if self._after in ("any", turn) else allow()
