"""The entries of hooks and policies in a charter: event, match, settings and plugin."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import attrs

from deedbook.contract import GateSpec
from deedbook.contract.facts import FACTS
from deedbook.contract.lifecycle import EVENTS
from deedbook.format.errors import fault
from deedbook.format.schema import suggest
from deedbook.plugins.groups import FEATURE
from deedbook.plugins.plugins import find_implementation
from deedbook.plugins.policy_kinds import Kind
from deedbook.policy.match import Match
from deedbook.programs.scripts import find_missing
from deedbook.workspace.declarations import HookSource, PackSource, PolicySource

from .linker import Linker, LoadedPlugin, declaration_place, locator
from .policies import Targets, place_of


class GuardCompiler:
    """Compiles the hooks and policies of the workspace at *root* and reports faults to the *linker*.

    *known* are the script files of the previous charter. A missing one is a fault, even if the source names it in
    another way. *packs* are those of the workspace.
    """

    def __init__(
        self, linker: Linker, root: Path, known: Collection[str] = (), packs: Collection[PackSource] = ()
    ) -> None:
        self._linker, self._root, self._known, self._packs = linker, root, known, packs

    def hook(self, source: HookSource) -> dict[str, Any] | None:
        """Return the entry of a hook; ``None`` where its plugin is missing, which is a fault."""
        where, life = locator(source), EVENTS[source.event_type]
        self._check_match(source)
        if source.match is not None and not life.call:
            why = f"{life.name} has no call to match; leave match out"
            self._linker.refuse("BINDING_INVALID", why, where("/match"))
        found = self._script_entry(source) if "script" in source.handler else self._plugin_entry(source)
        if found is None:
            return None
        code, spec = found
        if not life.facts and spec.reads:
            why = f"{_who(source)} reads {', '.join(sorted(spec.reads))}; no facts are given at {life.name}"
            self._linker.refuse("BINDING_INVALID", why, where("/event_type"))
        return {
            "event": life.name,
            **code,
            "settings": dict(source.settings),
            "match": source.match,
            "priority": source.priority,
            "timeout_ms": source.timeout_ms,
            "place": source.place,
            **self._gate(spec, source.place),
        }

    def _plugin_entry(self, source: HookSource) -> tuple[dict[str, Any], GateSpec] | None:
        """Return the plugin part of a hook's entry.

        The plugin must answer the event; this is checked without constructing it.
        """
        linked = self._linker.link("hook", source.handler["hook"], source.place)
        if linked is None:
            return None
        of = declaration_place(linked, "settings")
        self._linker.check(source.settings, linked.spec.settings, _who(source), locator(source, "/with"), declared=of)
        with self._linker.collect_errors():
            find_implementation(linked.offer, linked.plugin_class, source.event_type, locator(source)("/event_type"))
        stands = {} if source.isolation == "inline" else {"isolation": source.isolation}
        return {"plugin": ["hook", linked.offer.name], **stands}, linked.spec

    def _script_entry(self, source: HookSource) -> tuple[dict[str, Any], GateSpec]:
        for index, why in find_missing(source.handler["script"], self._root, self._known):
            self._linker.refuse(
                "BINDING_INVALID", f"{_who(source)}: {why}", locator(source)(f"/handler/script/{index}")
            )
        script = {
            "argv": list(source.handler["script"]),
            "protocol": source.protocol,
            "env": dict(source.env),
            "files": dict(source.files),
        }
        return {"script": script, "isolation": "worker"}, GateSpec(reads=source.reads, rewrites=source.rewrites)

    def policy(self, source: PolicySource) -> dict[str, Any] | None:
        """Return the entry of a policy; ``None`` where its kind is missing, which is a fault."""
        self._check_match(source)
        linked = self._linker.link("policy", source.kind, source.place)
        if linked is None:
            return None
        if source.match is not None and not linked.spec.calls:
            why = f"policy kind {source.kind!r} judges no calls, so there is nothing to match; leave match out"
            self._linker.refuse("BINDING_INVALID", why, locator(source)("/match"))
        reads = linked.spec.reads
        with self._linker.collect_errors(source.place):
            reads = Kind(source.kind, linked.plugin_class).reads(source.settings)
        rules = source.settings.get("rules")
        return {
            "plugin": ["policy", source.kind],
            "settings": dict(source.settings),
            "match": source.match,
            "inline": source.inline,
            "place": source.place,
            "rules": [source.rule_place(index) for index in range(len(rules) if isinstance(rules, list) else 0)],
            **self._gate(attrs.evolve(linked.spec, reads=reads), source.place),
            **self._subjects(linked),
            **({"limits": True} if linked.spec.limits else {}),
            **self._loosens(source),
        }

    def _loosens(self, source: PolicySource) -> dict[str, Any]:
        """Return what a policy of a pack may loosen; a policy of the workspace itself may loosen everything."""
        if not source.origin.packed:
            return {}
        pack = next((each for each in self._packs if source.place.startswith(f"{each.label}: ")), None)
        return {"loosens": sorted(pack.may_loosen) if pack else []}

    def _subjects(self, linked: LoadedPlugin) -> dict[str, Any]:
        """Return the members for the subjects of a kind, each only where it differs from a kind that judges calls."""
        spec: GateSpec = linked.spec
        subjects = {
            name: {
                "schema": self._linker.schema(subject.schema, declaration_place(linked, f"subjects[{name!r}].schema")),
                "answers": sorted(subject.answers),
            }
            for name, subject in spec.subjects.items()
        }
        return {**({} if spec.calls else {"calls": False}), **({"subjects": subjects} if subjects else {})}

    def check_policy(self, source: PolicySource, entry: dict[str, Any], targets: Targets) -> None:
        """Check a policy by its kind against the abilities that it applies to, then by its settings schema."""
        linked = self._linker.get("policy", source.kind)
        assert linked is not None  # else the policy has no entry
        count = len(self._linker.faults)
        with self._linker.collect_errors(source.place):
            about = targets.of_policy(source.id, entry)
            for each in Kind(source.kind, linked.plugin_class).check(source.settings, about):
                if not (each.own and source.origin.packed):
                    self._linker.faults.append(fault(each.code, each.message, place=place_of(each, source.origin)))
        if len(self._linker.faults) == count:
            who, of = f"policy kind {source.kind!r}", declaration_place(linked, "settings")
            self._linker.check(source.settings, linked.spec.settings, who, locator(source), declared=of)

    def _check_match(self, source: HookSource | PolicySource) -> None:
        if source.match is not None:
            with self._linker.collect_errors():
                Match.compile(source.match, source.place, at=("match",))

    def _gate(self, spec: GateSpec, place: str) -> dict[str, Any]:
        for name in sorted(spec.reads - FACTS.keys()):
            if self._is_offered_fact(name, place):
                continue
            why = f"reads {name!r}, which is no fact{suggest(name, FACTS)}; facts: {', '.join(sorted(FACTS))}"
            self._linker.refuse("BINDING_INVALID", why, place)
        return {"reads": sorted(spec.reads), "pure": spec.pure, "rewrites": spec.rewrites}

    def _is_offered_fact(self, name: str, place: str) -> bool:
        """Return whether an installed feature offers the fact *name*; it is then linked, and so active."""
        owner = name.partition(".")[0]
        linked = self._linker.link(FEATURE, owner, place) if self._linker.is_installed(FEATURE, owner) else None
        return linked is not None and name in getattr(getattr(linked.plugin_class, "spec", None), "facts", {})


def _who(source: HookSource) -> str:
    return f"hook {source.handler['hook']!r}" if "hook" in source.handler else f"the script of {source.id!r}"
