"""Notes about abilities that are flows: what they declare without effect, and whom they cannot ask."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from deedbook.contract.pointers import find_value
from deedbook.policy.requests import approvers
from deedbook.workspace.declarations import AbilitySource

_ASKING: Final = ("plan-and-run", "review")
"""Flows that ask a person with the ability in their setting ``approval``."""


def note_flows(document: Any, sources: Iterable[AbilitySource]) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each note about the flows among *sources*; *document* is the charter's."""
    entries, answered = document["abilities"], bool(approvers(document["principals"]))
    for source in sources:
        flow = source.handler.get("flow")
        if flow is None or source.id not in entries:
            continue
        without = [name for name in entries[source.id]["uses"] if entries[name]["kind"] != "flow"]
        if without and _is_written(source, "uses"):
            why = f"uses has {', '.join(without)}, which is no flow and which the flow cannot call for that"
            yield source.origin.place("/uses", key=True), f"{source.id}: {why}; let the skill of its run allow it"
        if flow in _ASKING and answered and "approval" not in source.settings:
            why = "no approval in with: a tagged plan or a report that never passes ends the run; no person is asked"
            yield source.origin.place("/handler", key=True), f"{source.id}: {why}; name an ability with plan-approval"


def _is_written(source: AbilitySource, member: str) -> bool:
    """Return whether the definition itself has *member*; that of a workflow or a pipeline is derived."""
    definition = find_value(source.origin.document.value, source.origin.at, None)
    return isinstance(definition, dict) and member in definition
