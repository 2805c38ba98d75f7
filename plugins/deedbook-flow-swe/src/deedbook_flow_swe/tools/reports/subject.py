"""What a report is about, and how it is refused; pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook.contract import Object

VERSION: Final = "v1"


class ReportRefused(ValueError):  # noqa: N818 - a refusal, not a fault
    """A result of the sandbox that says nothing that can be relied on; the text says why."""


@attrs.frozen(kw_only=True)
class ReportSubject:
    """The *task* that a report is about, its *unit* (``None``: all of it), and the *criteria*, each with its test."""

    task: str
    unit: Object | None = None
    criteria: Sequence[Object] = ()

    @property
    def unit_id(self) -> str | None:
        """The id of the unit."""
        return None if self.unit is None else str(self.unit["id"])

    def own_criteria(self) -> tuple[Object, ...]:
        """Return the criteria that the unit has to meet; without a unit, all."""
        named = None if self.unit is None else self.unit.get("criteria", ())
        return tuple(each for each in self.criteria if named is None or each["id"] in named)


def read_status(result: Any) -> int:
    """Return the exit status in a result of the sandbox; raises `ReportRefused`."""
    status = result.get("status") if isinstance(result, Mapping) else None
    if not isinstance(status, int) or isinstance(status, bool) or not 0 <= status <= 255:
        raise ReportRefused("this is no result of the sandbox: it has no exit status")
    return status


def read_output(result: Mapping[str, Any], suffix: str) -> str | None:
    """Return the one requested file whose name ends with *suffix*; ``None`` if the program left none."""
    outputs = result.get("outputs")
    found = [text for name, text in outputs.items() if name.endswith(suffix)] if isinstance(outputs, Mapping) else []
    if len(found) > 1:
        raise ReportRefused(f"the result has {len(found)} files that end with {suffix}; ask for one")
    return found[0] if found and isinstance(found[0], str) else None


def as_list(value: Any, what: str, most: int) -> list[Any]:
    """Return *value*, a list of at most *most* entries; raises `ReportRefused`."""
    if not isinstance(value, list):
        raise ReportRefused(f"{what} is no list")
    if len(value) > most:
        raise ReportRefused(f"{what} has {len(value)} entries; at most {most} are read")
    return value


def as_object(value: Any, what: str) -> Mapping[str, Any]:
    """Return *value*, an object; raises `ReportRefused`."""
    if not isinstance(value, Mapping):
        raise ReportRefused(f"{what} is no object")
    return value


def as_count(value: Any, what: str) -> int:
    """Return *value*, a whole number that is not negative; raises `ReportRefused`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ReportRefused(f"{what} is no count")
    return value


def as_text(value: Any, what: str, most: int) -> str:
    """Return *value*, a text that is not empty and has at most *most* letters; raises `ReportRefused`."""
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise ReportRefused(f"{what} is no text of 1 to {most} letters")
    return value
