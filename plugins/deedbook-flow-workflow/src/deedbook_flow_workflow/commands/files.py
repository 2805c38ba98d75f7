"""Read the workflow files of a workspace: list, show, lint."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deedbook.cli.common import GlobalOptions, json_option, profile_option
from deedbook.cli.output import as_json, message, say
from deedbook.format.terminal import plain

from .file_list import find_title, print_files
from .lint_report import find_charter_faults, print_report

if TYPE_CHECKING:
    from deedbook_flow_workflow.registry.registry import WorkflowRegistry
    from deedbook_flow_workflow.views.cycle import CycleView


@click.command("list", short_help="List the workflow files.")
@profile_option
@json_option
@click.pass_obj
def listing(options: GlobalOptions, profile: str | None) -> int:
    """List cycles, phases, policies, personas and artifacts: id, title, and the file that declares them."""
    from deedbook.workspace.workspace import read_workspace

    registry: Any = read_workspace(options.workspace, profile).sections.get("workflows")
    files = [] if registry is None else [file for axis in registry.files.values() for file in axis.values()]
    print_files(options, files, none="there are no workflow files; add a cycle in .system/workflows/cycles/")
    return 0


@click.command("show", short_help="Show a cycle.")
@click.argument("cycle", metavar="CYCLE")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart.")
@click.option("--html", type=click.Path(dir_okay=False), metavar="FILE", help="Write one HTML page to this file.")
@profile_option
@json_option
@click.pass_obj
def show(options: GlobalOptions, cycle: str, html: str | None, profile: str | None, *, mermaid: bool) -> int:
    """Show CYCLE: its phases in order, their signals, personas, policies and artifacts.

    CYCLE is the id of a cycle, or that of its ability (workflow/ID).
    """
    if mermaid and (options.json or html is not None):
        raise click.UsageError("--mermaid prints a diagram; leave --json and --html out")
    view = _find_cycle(options, cycle, profile)
    if html is not None:
        from deedbook_flow_workflow.views.page import render_page

        _write_page(Path(html), render_page(view))
    if options.json:
        as_json({"schema_version": "v1", **view.as_json()})
    elif mermaid:
        from deedbook_flow_workflow.views.mermaid import draw_mermaid

        say("\n".join(draw_mermaid(view)))
    elif html is None:
        from deedbook_flow_workflow.views.text import show_text

        for line in show_text(view):
            say(plain(line))
    else:
        message(f"wrote {html}")
    return 0


def _find_cycle(options: GlobalOptions, name: str, profile: str | None) -> "CycleView":
    from deedbook.format.errors import BindingError, fault
    from deedbook.format.schema import suggest
    from deedbook.workspace.workspace import read_workspace
    from deedbook_flow_workflow.definition import PREFIX
    from deedbook_flow_workflow.registry.files import PHASES
    from deedbook_flow_workflow.views.cycle import CycleView

    registry: Any = read_workspace(options.workspace, profile).sections.get("workflows")
    known = {} if registry is None else registry.definitions
    found = known.get(name.removeprefix(PREFIX))
    if found is None:
        listed = ", ".join(sorted(known)) or "none"
        raise BindingError(fault("USAGE", f"there is no cycle {name!r}{suggest(name, known)}; cycles: {listed}"))
    return CycleView.of(found, {phase: find_title(file) for phase, file in registry.files[PHASES].items()})


def _write_page(path: Path, page: str) -> None:
    from deedbook.format.errors import SourceError, fault

    try:
        path.write_text(page, encoding="utf-8")
    except OSError as problem:
        why = f"cannot be written: {problem.strerror}"
        raise SourceError(fault("PATH_REFUSED", why, place=str(path))) from None


@click.command("lint", short_help="Check the workflow files.")
@profile_option
@json_option
@click.pass_obj
def lint(options: GlobalOptions, profile: str | None) -> int:
    """Check all workflow files, and compile them: every fault with its place, and notes on files that nothing names.

    Exit status 1 if there is a fault; notes alone are no failure.
    """
    from deedbook.workspace.sources import find_workspace
    from deedbook.workspace.workspace import survey_workspace
    from deedbook_flow_workflow.registry.lint import lint_files

    workspace, faults = survey_workspace(find_workspace(Path(options.workspace)))
    registry: Any = workspace.sections.get("workflows") if workspace else None
    policies: Mapping[str, Any] = {}
    if not faults:
        found, policies = find_charter_faults(options, profile)
        faults = list(found)
    notes = [] if registry is None or faults else list(lint_files(registry, policies))
    return print_report(options, "workflow files", 0 if registry is None else _count(registry), faults, notes)


def _count(registry: "WorkflowRegistry") -> int:
    return sum(map(len, registry.files.values()))
