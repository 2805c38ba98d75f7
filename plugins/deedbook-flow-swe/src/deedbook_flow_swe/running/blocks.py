"""Why a run of a phase is blocked."""

from typing import Any, Final

import attrs

from deedbook import Object

AGENT: Final = "agent"
INPUT: Final = "input"
MODEL: Final = "model"
"""What blocks a phase whose model cannot be asked. No phase can mend that: a person decides when the task goes on."""
BUDGET: Final = "budget"
"""The rule of a block by the budget of a prompt. No phase can mend that either: another run has the same files."""
LONGEST_REASON: Final = 4000
_LONGEST_ISSUE: Final = 600


@attrs.frozen(kw_only=True)
class Block:
    """A block: what it is *by* (`events.BLOCKERS`), the *rule* or finding, its *place*, and what is *missing*.

    *own*: the blocked phase can mend it, such as a fault of its own outputs, so it runs again itself. *for_person*: no
    phase can mend it.
    """

    by: str
    reason: str
    rule: str | None = None
    place: str | None = None
    severity: str | None = None
    missing: tuple[str, ...] = ()
    unit: str | None = None
    own: bool = False
    for_person: bool = False

    @property
    def needs_person(self) -> bool:
        """Whether no phase can mend it, so that a person decides at once."""
        return self.for_person or self.by == MODEL or (self.by == INPUT and self.rule == BUDGET)

    def issue(self, phase: str) -> str:
        """Return the issue: two blocks of the same phase, rule or finding, and place are the same issue."""
        return f"{phase}:{self.rule or self.by}:{self.place or ''}"[:_LONGEST_ISSUE]

    def as_event(self, task: str, phase: str, iteration: int) -> dict[str, Any]:
        """Return the payload of ``swe.phase_blocked``."""
        return {
            "task_id": task,
            "phase": phase,
            "iteration": iteration,
            "unit": self.unit,
            "by": self.by,
            "rule": self.rule,
            "place": self.place,
            "severity": self.severity,
            "issue": self.issue(phase),
            "reason": self.reason[:LONGEST_REASON],
            "missing": [each[:LONGEST_REASON] for each in self.missing],
        }


class Blocked(Exception):  # noqa: N818 - it names what happened
    """Ends a run of a phase with a `Block`."""

    def __init__(self, block: Block) -> None:
        super().__init__(block.reason)
        self.block = block


def read_block(value: Object, unit: str | None, place: str | None) -> Block:
    """Return the block that an agent's answer states in its ``blocked``."""
    return Block(by="agent", reason=str(value["reason"]), missing=tuple(value["missing"]), unit=unit, place=place)
