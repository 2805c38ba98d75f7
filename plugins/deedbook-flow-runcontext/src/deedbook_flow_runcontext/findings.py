"""A finding about a plan or a report: which check, which steps, and what to change."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import attrs

_NAMED: Final = 5


@attrs.frozen
class Finding:
    """One finding of a *check*. An ``error`` refuses the plan or the report; a ``warning`` does not.

    *steps* has the ids of the steps that it is about; *message* names them and says what to change.
    """

    check: str
    message: str
    steps: tuple[str, ...] = ()
    level: Literal["error", "warning"] = "error"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"check": self.check, "level": self.level, "steps": list(self.steps), "message": self.message}


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that refuse."""
    return tuple(each for each in findings if each.level == "error")


def quote_names(names: Sequence[str]) -> str:
    """Return names for a message: the first five in quotes, and the number of the others."""
    shown = ", ".join(f'"{name}"' for name in names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
