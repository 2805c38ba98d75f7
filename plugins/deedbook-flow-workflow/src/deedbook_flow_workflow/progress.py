"""Lines that tell a person how a cycle goes on, from the events of its session as they are recorded."""

from collections.abc import Callable
from typing import Any, Final

from deedbook import Event

from .definition import NOTE

_WIDTH: Final = 8


class CycleProgress:
    """A listener on a session's ledger: passes a line to *say* for each phase and for each persona."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._personas: dict[str, str] = {}
        self._passes: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Show what *event* says about a cycle, if it says anything."""
        said: Any = event.payload
        match event.type:
            case "workflow.started":
                self._tell("phase", said["entry_phase"])
            case "workflow.phase_advanced":
                self._tell("phase", said["to_phase"])
            case "workflow.policy_gated" if said["decision"] != "allow":
                self._tell(said["decision"], f"{said['policy_id']}: {said['reason']}")
            case "workflow.completed":
                self._tell("verdict", said["verdict"])
            case "workflow.aborted":
                self._tell("verdict", f"abort: {said['reason']}")
            case "run.branch" if "skill" in said:
                self._personas[event.span] = str(said["name"])
                self._tell("asks", said["name"])
            case "flow.call" if event.parent in self._personas:
                self._passes[event.span] = self._personas[event.parent]
            case "flow.result" | "flow.error" if event.parent in self._passes:
                word = "answers" if event.type == "flow.result" else "fails"
                more = f": {said['message']}" if event.type == "flow.error" else ""
                self._tell(word, f"{self._passes.pop(event.parent)}{more}")
            case "context.noted" if said["event_type"] == NOTE:
                self._tell_phase(said["data"])

    def _tell_phase(self, note: Any) -> None:
        if not isinstance(note, dict) or "aggregate" not in note:
            return
        aggregate = note["aggregate"]
        counts = (
            f"{len(aggregate['findings'])} findings, {len(aggregate['suppressed'])} suppressed, "
            f"{aggregate['p0_unresolved']} P0"
        )
        self._tell("came to", f"{note['phase']} ({note['generation']}): {aggregate['verdict']}, {counts}")
        if note["path"]:
            self._tell("wrote", note["path"])
        if note["blocked"]:
            self._tell("held", note["blocked"])

    def _tell(self, word: str, what: Any) -> None:
        self._say(f"· {word:<{_WIDTH}} {what}")
