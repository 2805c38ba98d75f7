"""Show how reliably the phases of pipelines pass on good outputs: `deedbook swe metrics`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, json_option
from deedbook.cli.output import as_json, message, say, table

if TYPE_CHECKING:
    from deedbook_flow_swe.task_record import TaskRecord

WIDTH: Final = 24
"""The most groups of tasks in a sparkline."""


@click.command("metrics", short_help="Show the metrics of pipelines.")
@click.option("--pipeline", metavar="ID", help="Count only the tasks of this pipeline.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Count only the N tasks that began last.")
@click.option("--generated", is_flag=True, help="Count generated tasks as well.")
@json_option
@click.pass_obj
def metrics(options: GlobalOptions, pipeline: str | None, last: int | None, *, generated: bool) -> int:
    """Show the eleven metrics over all tasks, computed from the ledgers of their sessions.

    A sparkline has one block for each group of tasks, the oldest first; a dot is a group without any case.
    """
    from deedbook_flow_swe.learning.metrics import compute_metrics

    found = _read(options)
    asked = [each for each in found if pipeline in (None, each.pipeline)]
    counted = [each for each in asked if generated or not each.generated][-(last or 0) :]
    values = compute_metrics(counted)
    rows = _build_rows(values, counted)
    if options.json:
        told = {"tasks": len(counted), "generated": sum(each.generated for each in counted)}
        as_json({"schema_version": "v1", **told, "metrics": values, "trends": rows})
    elif not counted:
        say("no task has begun")
    else:
        table((each["metric"], each["part"], _show(each["value"]), each["sparkline"]) for each in rows)
    if left_out := sum(each.generated for each in asked) * (not generated):
        message(f"{left_out} generated tasks are left out; count them with --generated")
    return 0


def _read(options: GlobalOptions) -> "list[TaskRecord]":
    from deedbook.cli.ledgers import read_leniently
    from deedbook_flow_swe.learning.ledger_files import read_records

    workspace, notes = read_leniently(options.workspace)
    for note in notes:
        message(note)
    return read_records(workspace.state)


def _build_rows(values: dict[str, Any], records: "Sequence[TaskRecord]") -> list[dict[str, Any]]:
    """Return a row for each number, with its values in groups of tasks."""
    from deedbook_flow_swe.learning.metrics import compute_metrics, draw_sparkline, flatten, split_into

    groups = [flatten(compute_metrics(group)) for group in split_into(records, WIDTH)]
    rows = []
    for (name, part), value in flatten(values).items():
        trend = [group.get((name, part)) for group in groups]
        rows.append({"metric": name, "part": part, "value": value, "trend": trend, "sparkline": draw_sparkline(trend)})
    return rows


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
