"""The policy kind ``coverage-gating``: whether work goes on although an answer is missing."""

from typing import ClassVar

from deedbook.contract import GateSpec

from .subject_rules import SubjectPolicy, settings_schema, subject_spec
from .subjects import COVERAGE


class CoverageGating(SubjectPolicy):
    """Judges the answers that a phase got: ``allow`` and ``advisory`` let it go on without those that are missing."""

    subject: ClassVar[str] = "coverage"
    spec: ClassVar[GateSpec] = subject_spec(
        settings_schema("When work goes on although answers are missing"), "coverage", COVERAGE
    )
