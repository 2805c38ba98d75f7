"""The charter's members for features that the workspace names, and for event types that plugins declare."""

from collections.abc import Iterator, Mapping
from typing import Any

from deedbook.contract import EventType
from deedbook.contract.features import FeatureSpec
from deedbook.format.events import EVENT_TYPE
from deedbook.format.families import family_of
from deedbook.plugins.event_families import read_granted_families
from deedbook.plugins.groups import FEATURE
from deedbook.workspace.declarations import FeatureSource, Workspace

from .linker import Linker, LoadedPlugin, declaration_place, locator


class Extensions:
    """Compiles the section ``features:`` of *workspace*, and collects the event types of all loaded plugins.

    Create it after every ability is linked. Faults go to the *linker*.
    """

    def __init__(self, workspace: Workspace, linker: Linker) -> None:
        self._workspace, self._linker = workspace, linker
        self._granted: dict[str, list[str]] = {}

    def entries(self) -> dict[str, Any]:
        """Return the members ``features`` and ``records`` of a charter, each only where there are any."""
        for family, distribution in sorted(read_granted_families().items()):
            self._granted.setdefault(distribution, []).append(family)
        self._linker.link_standing()
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
        spec: FeatureSpec | None = getattr(linked.plugin_class, "spec", None) if linked else None
        if linked is not None and spec is None:
            why = f"{source.id!r} declares no settings, so it is not named under features:; it has a section of its own"
            self._linker.refuse("BINDING_INVALID", why, source.place)
        elif linked is not None and spec is not None:
            who = f"feature {source.id!r}"
            where, declared = locator(source), declaration_place(linked, "settings")
            self._linker.check(source.settings, spec.settings, who, where, declared=declared)
        return {"settings": dict(source.settings), "place": source.place}

    def _records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for linked in self._linker.linked_plugins():
            types: Mapping[str, EventType] = getattr(getattr(linked.plugin_class, "spec", None), "records", {})
            for event_type, row in types.items():
                if self._is_own(linked, event_type):
                    where = declaration_place(linked, f"records[{event_type!r}]")
                    digest = self._linker.schema(row.schema, where)
                    by = f"{linked.offer.kind}/{linked.offer.name}"
                    yield event_type, {"schema": digest, "text": row.text, "layer": row.layer, "by": by}

    def _is_own(self, linked: LoadedPlugin, event_type: str) -> bool:
        """Return whether a plugin may declare an event type; a name that is not its own is a fault."""
        families = [family_of(linked.offer.name), *self._granted.get(linked.offer.distribution, ())]
        if event_type.startswith(tuple(f"{each}." for each in families)) and EVENT_TYPE.fullmatch(event_type):
            return True
        names = " or ".join(f"{each}.<name>" for each in families)
        why = f"it declares the event type {event_type!r}; the names of its event types are {names}"
        self._linker.refuse("BINDING_INVALID", why, str(linked.offer))
        return False
