"""What a charter has of features that the workspace names, and of the event types that plugins declare."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook.contract import EventType
from deedbook.contract.features import FeatureSpec
from deedbook.format.events import EVENT_TYPE
from deedbook.format.families import family_of
from deedbook.plugins.plugins import FEATURE
from deedbook.workspace.declarations import FeatureSource, Workspace

from .linker import Linked, Linker, at, declared

_NO_SPEC: Final = FeatureSpec()


class Extensions:
    """Compiles the section ``features:`` of *workspace*, and collects the event types of all linked plugins.

    Create it after every ability was linked. Faults go to the *linker*.
    """

    def __init__(self, workspace: Workspace, linker: Linker) -> None:
        self._workspace, self._linker = workspace, linker

    def entries(self) -> dict[str, Any]:
        """Return the members ``features`` and ``records`` of a charter, each only where there are any."""
        features = {name: self._feature(source) for name, source in self._workspace.features.items()}
        records: dict[str, Any] = {}
        for event_type, row in self._records():
            if event_type in records:
                why = f"{row['by']} and {records[event_type]['by']} both declare the event type {event_type!r}"
                self._linker.refuse("BINDING_INVALID", f"{why}; use only one of them", row["by"])
            records[event_type] = row
        return {**({"features": features} if features else {}), **({"records": records} if records else {})}

    def _feature(self, source: FeatureSource) -> dict[str, Any]:
        linked = self._linker.link(FEATURE, source.id, source.place)
        if linked is not None:
            spec = _spec_of(linked)
            who = f"feature {source.id!r}"
            self._linker.check(source.settings, spec.settings, who, at(source), declared=declared(linked, "settings"))
        return {"settings": dict(source.settings), "place": source.place}

    def _records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for linked in self._linker.all_linked():
            for event_type, row in _types_of(linked).items():
                if self._is_own(linked, event_type):
                    where = declared(linked, f"records[{event_type!r}]")
                    digest = self._linker.schema(row.schema, where)
                    by = f"{linked.offer.kind}/{linked.offer.name}"
                    yield event_type, {"schema": digest, "text": row.text, "layer": row.layer, "by": by}

    def _is_own(self, linked: Linked, event_type: str) -> bool:
        """Return whether a plugin may declare an event type; a name that is not its own is a fault."""
        family = family_of(linked.offer.name)
        if event_type.startswith(f"{family}.") and EVENT_TYPE.fullmatch(event_type):
            return True
        why = f"{linked.offer} declares the event type {event_type!r}; its event types are named {family}.<name>"
        self._linker.refuse("BINDING_INVALID", why, str(linked.offer))
        return False


def _types_of(linked: Linked) -> Mapping[str, EventType]:
    if linked.offer.kind == FEATURE:
        return _spec_of(linked).records
    return getattr(getattr(linked.made, "spec", None), "records", {})


def _spec_of(linked: Linked) -> FeatureSpec:
    spec: FeatureSpec = getattr(linked.made, "spec", _NO_SPEC)
    return spec
