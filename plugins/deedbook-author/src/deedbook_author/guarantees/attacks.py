"""What an attack is, and what can come of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from deedbook.workspace.site import SETTINGS

if TYPE_CHECKING:
    from .target import Target

Status: TypeAlias = Literal["holds", "not applicable", "broken", "error"]
"""``error``: the attack itself failed, so that nothing is known; it counts as a fault."""

KERNEL: Final = "no setting allows this: reinstall deedbook and its plugins, and report it if that does not help"
"""What to do where no configuration can be the reason."""
ENFORCEMENT: Final = f"{SETTINGS}: write enforcement: enforce"
"""What to do where policies are recorded and do not bind."""


class PromiseBroken(Exception):  # noqa: N818 - the result of an attack, not an error of the program
    """The attack succeeded: what was *found*, and what to *change* where."""

    def __init__(self, found: str, change: str = KERNEL) -> None:
        super().__init__(found)
        self.found = found
        self.change = change


class NotApplicable(Exception):  # noqa: N818 - as above
    """The workspace has nothing that could be attacked in this way; the text says why."""


def _applies(_target: "Target") -> str:
    return ""


@attrs.frozen(kw_only=True)
class Attack:
    """An attack: its *id*, and the *promise* in one sentence that it tries to break.

    *applies* returns why the promise has no meaning for a workspace, empty if it has one. *run* returns what was tried;
    it raises `PromiseBroken` if the promise does not hold, and `NotApplicable` if only the attempt shows that it has no
    meaning.
    """

    id: str
    promise: str
    run: Callable[["Target"], str]
    applies: Callable[["Target"], str] = _applies


@attrs.frozen(kw_only=True)
class AttackResult:
    """What came of one attack: *found* in words, and what to *change* where if the promise does not hold."""

    id: str
    promise: str
    status: Status
    found: str
    change: str = ""
    seconds: float = attrs.field(default=0.0, eq=False)

    @property
    def well(self) -> bool:
        """Whether it holds, or does not apply."""
        return self.status in ("holds", "not applicable")

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**attrs.asdict(self), "seconds": round(self.seconds, 3)}


def expect(condition: object, found: str, change: str = KERNEL) -> None:
    """Raise `PromiseBroken` unless *condition* holds."""
    if not condition:
        raise PromiseBroken(found, change)
