"""Find the pipeline that a command is about."""

from typing import TYPE_CHECKING, Any, Final

from deedbook.cli.common import GlobalOptions
from deedbook.format.errors import BindingError, fault

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace
    from deedbook_flow_swe.contract import Contract
    from deedbook_flow_swe.definition import Definition
    from deedbook_flow_swe.registry.registry import PipelineRegistry

SECTION: Final = "swe"
"""The name of the feature."""


def find_registry(workspace: "Workspace") -> "PipelineRegistry | None":
    """Return the pipelines of *workspace*; ``None`` if it has no such files."""
    found: Any = workspace.sections.get(SECTION)
    return found  # type: ignore[no-any-return]


def find_workspace(options: GlobalOptions, profile: str | None) -> "Workspace":
    """Read the workspace; raises `SourceError` with every fault."""
    from deedbook.workspace.workspace import read_workspace

    return read_workspace(options.workspace, profile)


def find_definition(workspace: "Workspace", name: str | None) -> "Definition":
    """Return the pipeline *name* of a workspace, or its only one; raises `BindingError`."""
    from deedbook.format.schema import suggest
    from deedbook_flow_swe.definition import PREFIX

    registry = find_registry(workspace)
    known = {} if registry is None else registry.definitions
    listed = ", ".join(sorted(known)) or "none"
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name is None:
        raise BindingError(fault("USAGE", f"name a pipeline with --pipeline; pipelines: {listed}"))
    found = known.get(name.removeprefix(PREFIX))
    if found is None:
        why = f"there is no pipeline {name!r}{suggest(name, known)}; pipelines: {listed}"
        raise BindingError(fault("USAGE", why))
    return found


def find_contract(definition: "Definition", phase: str) -> "Contract":
    """Return the contract of a phase; raises `BindingError`."""
    try:
        return definition.phase(phase)
    except KeyError:
        from deedbook.format.schema import suggest

        known = [each.phase for each in definition.phases]
        why = f"the pipeline {definition.id} has no phase {phase!r}{suggest(phase, known)}"
        raise BindingError(fault("USAGE", f"{why}; phases: {', '.join(known)}")) from None
