"""Read the files of pipelines: list, show, lint."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deedbook.cli.common import GlobalOptions, json_option, profile_option
from deedbook.cli.output import as_json, say, table
from deedbook.format.terminal import plain

from .lookup import find_contract, find_definition, find_registry, find_workspace

if TYPE_CHECKING:
    from deedbook_flow_swe.contract import Contract
    from deedbook_flow_swe.definition import Definition


@click.command("list", short_help="List the files of pipelines.")
@profile_option
@json_option
@click.pass_obj
def listing(options: GlobalOptions, profile: str | None) -> int:
    """List pipelines, contracts, routing policies and schemas: id, title, and the file that declares them."""
    registry = find_registry(find_workspace(options, profile))
    files = [] if registry is None else [file for axis in registry.files.values() for file in axis.values()]
    from deedbook_flow_workflow.commands.file_list import print_files

    print_files(options, files, none="there are no pipelines; add .system/swe/pipeline.yaml, or a pack that has one")
    return 0


@click.command("show", short_help="Show a pipeline, or one of its phases.")
@click.argument("phase", metavar="[PHASE]", required=False)
@click.option("--pipeline", metavar="ID", help="The pipeline, if there are several.")
@profile_option
@json_option
@click.pass_obj
def show(options: GlobalOptions, phase: str | None, pipeline: str | None, profile: str | None) -> int:
    """Show the phases of a pipeline in order, or what the contract of PHASE says."""
    definition = find_definition(find_workspace(options, profile), pipeline)
    if phase is not None:
        contract = find_contract(definition, phase)
        if options.json:
            as_json({"schema_version": "v1", "pipeline": definition.id, "phases": [_as_json(definition, contract)]})
        else:
            for line in _describe(definition, contract):
                say(plain(line))
        return 0
    if options.json:
        phases = [_as_json(definition, each) for each in definition.phases]
        as_json({"schema_version": "v1", "pipeline": definition.id, "phases": phases})
        return 0
    say(plain(f"{definition.id}: {definition.title}"))
    table((each.phase, each.agent, each.tier, f"{each.tokens} tokens", each.objective) for each in definition.phases)
    return 0


def _as_json(definition: "Definition", contract: "Contract") -> dict[str, Any]:
    return {
        "phase": contract.phase,
        "place": definition.places[f"contracts/{contract.phase}"],
        "agent": contract.agent,
        "objective": contract.objective,
        "tier": contract.tier,
        "tokens": contract.tokens,
        "each_unit": definition.works_units(contract.phase),
        "inputs": [each.path for each in contract.inputs],
        "outputs": [each.path for each in contract.outputs],
        "rules": [{"id": rule.id, "severity": rule.severity, "message": rule.message} for rule in contract.rules],
        "writes": list(contract.mutations),
        "reads": [*contract.scope.include],
        "excluded": [*contract.scope.exclude],
        "forbidden": [
            *(f"write {each}" for each in contract.forbidden_writes),
            *(f"read {each}" for each in contract.forbidden_reads),
            *(f"use {each}" for each in contract.forbidden_uses),
        ],
        "gate": list(contract.gate.names),
        "on_rollback": contract.on_rollback,
    }


def _describe(definition: "Definition", contract: "Contract") -> Iterator[str]:
    shown = _as_json(definition, contract)
    yield f"{contract.phase} ({shown['place']}): {contract.objective}"
    each = ", once for each unit" if shown["each_unit"] else ""
    tokens = f"{contract.tokens} tokens{_describe_growth(contract)}"
    yield f"agent {contract.agent}, tier {contract.tier}, at most {tokens}{each}"
    for key, title in (
        ("inputs", "needs"), ("outputs", "gives"), ("reads", "reads"), ("excluded", "never reads"),
        ("writes", "writes"), ("forbidden", "may not"), ("gate", "gate files"),
    ):  # fmt: skip
        yield from (f"{title}: {each}" for each in shown[key])
    for rule in contract.rules:
        how = "command" if rule.command is not None else "schema" if rule.schema is not None else "cel"
        yield f"rule {rule.id} ({how}, {rule.severity}): {rule.message}"


@click.command("lint", short_help="Check the files of pipelines.")
@profile_option
@json_option
@click.pass_obj
def lint(options: GlobalOptions, profile: str | None) -> int:
    """Check all files of pipelines, and compile them: every fault with its place, and notes on unused files.

    Exit status 1 if there is a fault; notes alone are no failure.
    """
    from deedbook.workspace.sources import find_workspace as find_root
    from deedbook.workspace.workspace import survey_workspace
    from deedbook_flow_swe.registry.notes import lint_files
    from deedbook_flow_workflow.commands.lint_report import find_charter_faults, print_report

    workspace, faults = survey_workspace(find_root(Path(options.workspace)))
    registry = None if workspace is None else find_registry(workspace)
    found = faults or list(find_charter_faults(options, profile)[0])
    notes = [] if workspace is None or registry is None or found else list(lint_files(registry, workspace.abilities))
    count = 0 if registry is None else sum(map(len, registry.files.values()))
    return print_report(options, "files of pipelines", count, found, notes)


def _describe_growth(contract: "Contract") -> str:
    """Return what a task adds to the budget of a prompt."""
    grown = [
        *([f"up to {contract.tokens_request} for the request"] if contract.tokens_request else []),
        *([f"{contract.tokens_each_criterion} for each criterion"] if contract.tokens_each_criterion else []),
        *(f"{more} for each {size} unit" for size, more in contract.tokens_each_unit.items()),
    ]
    return f" and {', '.join(grown)}" if grown else ""
