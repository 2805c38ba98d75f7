"""The ability entries of a charter: each declaration in YAML, completed by its plugin.

Each model of the profile is also an ability.
"""

from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Final

from deedbook.contract import PATHS, AbilityDeclaration, Object
from deedbook.contract.pointers import find_value
from deedbook.policy.bound import RUN_REFERENCE
from deedbook.policy.conditions import glob_test, too_large
from deedbook.policy.kinds import KIND_OF_TOOL, KINDS
from deedbook.policy.match import EFFECTS
from deedbook.workspace.declarations import AbilitySource, ModelSource, Profile, Workspace

from .linker import Linker, LoadedPlugin, Locator, accepts_everything, declaration_place, locator, profile_place
from .narrowing import Widening, widenings

KIND_OF_PLUGIN: Final[Mapping[str, str]] = MappingProxyType({"tool": "tool", "provider": "model", "flow": "flow"})
"""Kind of plugin, and the kind of ability that it makes."""

_OBJECT: Final[Object] = MappingProxyType({"type": "object"})
_MOMENTS: Final = (("pre_create", "PreAbilityCreate"), ("pre_call", "PreToolUse"), ("post_call", "PostToolUse"))


def result_schema(linked: LoadedPlugin) -> Object:
    """Return the schema of a plugin's results.

    The completion contract checks those of a provider. A flow without ``gives`` returns a reference to its context.
    """
    gives: Object | None = linked.spec.gives
    return gives if gives is not None else RUN_REFERENCE if linked.offer.kind == "flow" else _OBJECT


class AbilityCompiler:
    """Compiles the abilities of a workspace and reports faults to the *linker*."""

    def __init__(self, workspace: Workspace, profile: Profile, linker: Linker) -> None:
        self._workspace = workspace
        self._profile = profile
        self._linker = linker
        self._kinds = {f"model/{tier}": "model" for tier in profile.models}
        self._kinds |= {name: _kind_of(source) for name, source in workspace.abilities.items()}
        self._invalid: set[str] = set()
        self._widenings: dict[tuple[str, ...], list[Widening]] = {}
        self._names = sorted(self._kinds)

    def entries(self) -> dict[str, Any]:
        """Return the entries by ability id. An entry is ``None`` where a plugin is missing, which is a fault."""
        made = {name: self._ability(source) for name, source in self._workspace.abilities.items()} | self._models()
        for name, source in self._workspace.abilities.items():
            entry = made[name]
            if entry is not None:
                self._run_plugin_check(source, entry, made)
        return made

    def _ability(self, source: AbilitySource) -> dict[str, Any] | None:
        self._check_references(source)
        kind, name = next(iter(source.handler.items()))
        self._check_kind(source, kind, name)
        linked = self._linker.link(kind, name, source.place)
        if linked is None:
            return None
        before = len(self._linker.faults)
        acting = self._plugin_part(linked, source.settings, locator(source, "/with"))
        if len(self._linker.faults) > before:
            self._invalid.add(source.id)
        return {
            **acting,
            "kind": source.kind or acting["kind"],
            "effects": self._effects(source, linked),
            "summary": source.summary,
            "tags": sorted(source.tags),
            "timeout_ms": source.timeout_ms,
            "uses": self._uses(source),
            "scopes": sorted(source.scopes),
            "intents": sorted(source.intents),
            "paths": list(source.paths or PATHS),
            "big_integers": source.big_integers == "string",
            "hooks": {moment: list(names) for moment, names in source.hooks.items()},
            "policies": list(source.policies),
            "schema_in": self._check_narrowing(source.schema_in, linked, "takes", locator(source, "/schema_in")),
            "schema_out": self._schema_out(source, linked),
            "place": source.place,
        }

    def _run_plugin_check(self, source: AbilitySource, entry: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        """Let the plugin report faults of an ability that its settings schema cannot express."""
        kind, name = entry["plugin"]
        linked = self._linker.link(kind, name, source.place)
        if linked is None or linked.spec.check is None or source.id in self._invalid:
            return
        uses = {used: made[used]["effects"] for used in entry["uses"] if made[used]}
        declaration = AbilityDeclaration(
            id=source.id,
            settings=deepcopy(dict(source.settings)),
            effects=source.effects,
            schema_in=deepcopy(source.schema_in),
            schema_out={} if source.schema_out is True else deepcopy(source.schema_out),
            uses=uses,
            tags=source.tags,
        )
        with self._linker.collect_crashes(f"{linked.offer} fails while it checks an ability", source.place):
            for pointer, message in linked.spec.check(declaration):
                self._linker.refuse("BINDING_INVALID", f"{kind} {name!r}: {message}", locator(source)(pointer))

    def _models(self) -> dict[str, dict[str, Any] | None]:
        made: dict[str, dict[str, Any] | None] = {}
        for tier, model in self._profile.models.items():
            place = profile_place(self._workspace.profile, "models", tier)
            linked = self._linker.link("provider", model.provider, place)
            if linked is not None:
                if linked.spec.named and not model.model:
                    self._linker.refuse("BINDING_INVALID", f"provider {model.provider!r} needs model: NAME", place)
                made[f"model/{tier}"] = {
                    **self._plugin_part(linked, model.settings, _inside(f"{place}.with")),
                    "summary": f"{model.model} by {model.provider}",
                    "timeout_ms": model.timeout_ms,
                    "uses": self._tiers(model, linked, place),
                    **{name: [] for name in ("tags", "scopes", "intents", "paths", "policies")},
                    "big_integers": False,
                    "hooks": {},
                    "schema_in": None,
                    "schema_out": None,
                    "place": place,
                }
        return made

    def _tiers(self, model: ModelSource, linked: LoadedPlugin, place: str) -> list[str]:
        """Return the models that a model asks by its settings, in their order; these ask no others."""
        pointer, models = linked.spec.tiers, self._profile.models
        named = find_value(model.settings, pointer, ()) if pointer is not None else ()
        names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
        for index, name in enumerate(names):
            where = f"{place}.with{pointer}/{index}"
            if self._linker.check_name("tier", name, models, where):
                other = self._linker.link("provider", models[name].provider, where)
                if other is not None and other.spec.tiers is not None:
                    self._linker.refuse("BINDING_INVALID", f"tier {name!r} asks other tiers itself; name these", where)
        return [f"model/{name}" for name in names]

    def _plugin_part(self, linked: LoadedPlugin, settings: Object, where: Locator) -> dict[str, Any]:
        """Return the part of an entry that comes from the plugin."""
        offer, spec = linked.offer, linked.spec
        who = f"{offer.kind} {offer.name!r}"
        self._linker.check(settings, spec.settings, who, where, declared=declaration_place(linked, "settings"))
        return {
            "kind": KIND_OF_PLUGIN[offer.kind],
            "plugin": [offer.kind, offer.name],
            "settings": dict(settings),
            "takes": self._linker.schema(spec.takes, declaration_place(linked, "takes")),
            "gives": self._linker.schema(result_schema(linked), declaration_place(linked, "gives")),
            "effects": spec.effects,
            "interruptible": spec.interruptible,
            **({"files": spec.files} if spec.files is not None else {}),
        }

    def _check_kind(self, source: AbilitySource, kind: str, name: str) -> None:
        """Check that tools that a kind reserves and abilities of this kind belong together."""
        reserved = KIND_OF_TOOL.get(name) if kind == "tool" else None
        if reserved == source.kind:
            return
        if reserved:
            why = f"handler {name!r} is for abilities of kind {reserved}; add kind: {reserved}"
            self._linker.refuse("BINDING_INVALID", why, source.place)
        elif source.kind and (tools := KINDS[source.kind].tools):
            own = f"{{tool: {' | '.join(tools)}}}"
            why = f"kind {source.kind} needs one of its own handlers: {own}; leave kind out for a tool"
            self._linker.refuse("BINDING_INVALID", why, locator(source)("/kind"))

    def _effects(self, source: AbilitySource, linked: LoadedPlugin) -> str:
        least: str = linked.spec.effects
        effects = source.effects or least
        if EFFECTS.index(effects) < EFFECTS.index(least):
            why = f"effects {effects} are lower than the {least} that {linked.offer} declares"
            self._linker.refuse(
                "BINDING_INVALID", f"{why}; they may be raised, never lowered", locator(source)("/effects")
            )
        return effects

    def _schema_out(self, source: AbilitySource, linked: LoadedPlugin) -> str | None:
        """Refuse an ability whose results no schema describes.

        A schema without any assertion (such as ``{}``) accepts everything. Then YAML must describe the result; ``true``
        in YAML allows anything. The completion contract checks the results of models.
        """
        schema = {} if source.schema_out is True else source.schema_out
        silent = (
            accepts_everything(result_schema(linked))
            and accepts_everything(schema or {})
            and source.schema_out is not True
        )
        if silent and linked.offer.kind != "provider":
            why = f"no output schema: {linked.offer} says nothing about its results; describe them with schema_out"
            self._linker.refuse("BINDING_INVALID", f"{why}, or write schema_out: true for anything", source.place)
        return self._check_narrowing(schema, linked, "gives", locator(source, "/schema_out"))

    def _check_narrowing(self, schema: Object | None, linked: LoadedPlugin, side: str, where: Locator) -> str | None:
        """Return the digest of a schema in YAML. Allowing more than the plugin's schema is a fault."""
        digest = self._linker.schema(schema, where)
        wide: Object = linked.spec.takes if side == "takes" else result_schema(linked)
        if digest is None or schema is None or accepts_everything(wide):
            return digest
        key = (digest, linked.offer.kind, linked.offer.name, side)
        if key not in self._widenings:
            self._widenings[key] = widenings(schema, wide)
        name = "schema_in" if side == "takes" else "schema_out"
        for each in self._widenings[key]:
            why = f"{name}{each.pointer} allows more than {linked.offer} does: {each.message}"
            self._linker.refuse("BINDING_INVALID", why, where(each.pointer))
        return digest

    def _uses(self, source: AbilitySource) -> list[str]:
        """Return the abilities that the globs of ``uses`` match.

        A glob matches models, and abilities of other kinds that have a prefix, only by their full id or with the
        prefix, such as ``model/``.
        """
        found: set[str] = set()
        for glob in sorted(source.uses):
            if too_large([glob]):
                self._linker.refuse(
                    "BINDING_INVALID", f"uses {glob[:80]!r}: the glob is too large", locator(source)("/uses")
                )
                continue
            fits = glob_test([glob])
            fitting = {name for name in self._names if fits(name) and (name == glob or self._is_meant(name, glob))}
            if not fitting:
                self._linker.check_name("ability", glob, self._names, locator(source)("/uses"))
            found |= fitting
        return sorted(found)

    def _is_meant(self, name: str, glob: str) -> bool:
        kind = self._kinds[name]
        return not KINDS[kind].has_prefix or glob.startswith(f"{kind}/")

    def _check_references(self, source: AbilitySource) -> None:
        """Check that every hook and policy that an ability names exists and answers the right event."""
        where = locator(source)
        for moment, event in _MOMENTS:
            for index, name in enumerate(source.hooks.get(moment, ())):
                place = where(f"/hooks/{moment}/{index}")
                if self._linker.check_name("hook", name, self._workspace.hooks, place):
                    answers = self._workspace.hooks[name].event_type
                    if answers != event:
                        why = f"hook {name!r} is asked at {answers}; hooks.{moment} needs one for {event}"
                        self._linker.refuse("BINDING_INVALID", why, place)
        for index, name in enumerate(source.policies):
            self._linker.check_name("policy", name, self._workspace.policies, where(f"/policies/{index}"))


def _kind_of(source: AbilitySource) -> str:
    return source.kind or KIND_OF_PLUGIN[next(iter(source.handler))]


def _inside(place: str) -> Locator:
    return lambda pointer: f"{place}{pointer}"
