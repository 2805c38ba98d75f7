"""The results of commands, in the forms of their schemas."""

from collections.abc import Sequence
from typing import Any

from deedbook import Json, Object
from deedbook_flow_swe.contract import Command
from deedbook_flow_swe.tools.reports import ReportSubject, parse_report


def parse_result(
    command: Command, result: Json, *, task: str, unit: Object | None, criteria: Sequence[Object] = ()
) -> Any:
    """Return what *result* says; raises `ValueError` where it says nothing that counts.

    *criteria* are those of the task, each with its ``id`` and ``test``: which of them are verified follows from the
    tests that ran and passed.
    """
    return parse_report(command.reads, result, ReportSubject(task=task, unit=unit, criteria=criteria))
