"""The policy kind ``loop-halt``: whether a bounded loop runs another generation."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from deedbook.contract import GateSpec, Object, SubjectCase

from .subject_rules import SubjectPolicy, settings_schema, subject_spec
from .subjects import GENERATION

_DERIVED: Final = {
    "oscillates": {"description": "Whether the same was unresolved after an earlier generation", "type": "boolean"},
    "regresses": {"description": "Whether its grade is below that of the one before", "type": "boolean"},
}


class LoopHalt(SubjectPolicy):
    """Judges a generation of a loop that has ended: ``deny`` halts the loop, ``allow`` and ``advisory`` let it go on.

    Conditions see two more members of ``generation``, which are computed from its history: ``oscillates`` and
    ``regresses``. A generation without unresolved items never oscillates.
    """

    subject: ClassVar[str] = "generation"
    is_computed: ClassVar[bool] = True
    spec: ClassVar[GateSpec] = subject_spec(
        settings_schema("When a loop ends before its work is done"), "generation", GENERATION
    )

    @classmethod
    def variables(cls) -> Object:
        """Return the schema of a generation with the computed members."""
        return {**GENERATION, "properties": {**GENERATION["properties"], **_DERIVED}}

    @classmethod
    def read(cls, case: SubjectCase) -> Object:
        """Return the generation with the computed members."""
        return {**case.value, **dict(_compute(case.value))}


def _compute(generation: Object) -> Iterator[tuple[str, Any]]:
    left = set(generation["fingerprints"])
    history = generation["history"]
    yield "oscillates", bool(left) and any(left == set(earlier["fingerprints"]) for earlier in history)
    before = history[-1].get("grade") if history else None
    grade = generation.get("grade")
    yield "regresses", before is not None and grade is not None and grade < before
