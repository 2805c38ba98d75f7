"""The policy kind ``review-gating``: whether work goes on without a person."""

from typing import ClassVar

from deedbook.contract import GateSpec

from .subject_rules import SubjectPolicy, settings_schema, subject_spec
from .subjects import REVIEW


class ReviewGating(SubjectPolicy):
    """Judges what a review found: ``allow`` and ``advisory`` let the work go on, ``deny`` leaves it to a person."""

    subject: ClassVar[str] = "review"
    spec: ClassVar[GateSpec] = subject_spec(settings_schema("When a person has to look at work"), "review", REVIEW)
