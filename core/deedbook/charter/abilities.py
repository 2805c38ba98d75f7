"""What a charter says of each ability: its declaration, and what its plugin adds; each model of the profile is one."""

from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Final

from deedbook.contract import PATHS, Declared, Object
from deedbook.format.entries import TOOLS
from deedbook.format.errors import describe
from deedbook.policy.conditions import glob_test, too_large
from deedbook.policy.match import EFFECTS
from deedbook.workspace.declarations import AbilitySource, Profile, Workspace

from .linker import Linked, Linker, Where, at, declared, in_profile, says_nothing
from .narrowing import Widening, widenings

KINDS: Final[Mapping[str, str]] = MappingProxyType({"tool": "tool", "provider": "model", "flow": "flow"})
"""Kind of plugin behind an ability, and the kind of ability it makes."""

_OBJECT: Final[Object] = MappingProxyType({"type": "object"})
"""What a provider gives that says nothing of it: the completion contract binds it."""
_MOMENTS: Final = (("pre_create", "PreAbilityCreate"), ("pre_call", "PreToolUse"), ("post_call", "PostToolUse"))


class Abilities:
    """Compiles the abilities of a workspace; what is wrong goes to the *linker*."""

    def __init__(self, workspace: Workspace, profile: Profile, linker: Linker) -> None:
        self._workspace = workspace
        self._profile = profile
        self._linker = linker
        self._models_named = {name for name, source in workspace.abilities.items() if "provider" in source.handler}
        self._models_named |= {f"model/{tier}" for tier in profile.models}
        self._memories_named = {name for name, source in workspace.abilities.items() if source.kind == "memory"}
        self._unfit: set[str] = set()
        self._widened: dict[tuple[str, ...], list[Widening]] = {}
        self._names = sorted({*workspace.abilities, *self._models_named})

    def entries(self) -> dict[str, Any]:
        """Return what the charter says, by id; ``None`` where a plugin is missing, which is a fault."""
        made = {name: self._ability(source) for name, source in self._workspace.abilities.items()} | self._models()
        for name, source in self._workspace.abilities.items():
            entry = made[name]
            if entry is not None:
                self._examine(source, entry, made)
        return made

    def _ability(self, source: AbilitySource) -> dict[str, Any] | None:
        self._check_named(source)
        kind, name = next(iter(source.handler.items()))
        self._check_kind(source, kind, name)
        linked = self._linker.link(kind, name, source.place)
        if linked is None:
            return None
        before = len(self._linker.faults)
        acting = self._acting(linked, source.settings, at(source, "/with"))
        if len(self._linker.faults) > before:
            self._unfit.add(source.id)
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
            "schema_in": self._narrowed(source.schema_in, linked, "takes", at(source, "/schema_in")),
            "schema_out": self._schema_out(source, linked),
            "place": source.place,
        }

    def _examine(self, source: AbilitySource, entry: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        """Let the plugin say what is wrong with an ability that no schema of its settings could say."""
        kind, name = entry["plugin"]
        linked = self._linker.link(kind, name, source.place)
        if linked is None or linked.spec.check is None or source.id in self._unfit:
            return
        uses = {used: made[used]["effects"] for used in entry["uses"] if made[used]}
        said = Declared(
            id=source.id,
            settings=deepcopy(dict(source.settings)),
            effects=source.effects,
            schema_in=deepcopy(source.schema_in),
            schema_out={} if source.schema_out is True else deepcopy(source.schema_out),
            uses=uses,
        )
        try:
            for pointer, message in linked.spec.check(said):
                self._linker.refuse("BINDING_INVALID", f"{kind} {name!r}: {message}", at(source)(pointer))
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a plugin may raise anything, even SystemExit
            why = f"{linked.offer} cannot check what it is told: {describe(problem)}"
            self._linker.refuse("PLUGIN_BROKEN", why, source.place)

    def _models(self) -> dict[str, dict[str, Any] | None]:
        made: dict[str, dict[str, Any] | None] = {}
        for tier, model in self._profile.models.items():
            place = in_profile(self._workspace.profile, "models", tier)
            linked = self._linker.link("provider", model.provider, place)
            if linked is not None:
                made[f"model/{tier}"] = {
                    **self._acting(linked, model.settings, _inside(f"{place}.with")),
                    "summary": f"{model.model} by {model.provider}",
                    "timeout_ms": model.timeout_ms,
                    **{name: [] for name in ("tags", "uses", "scopes", "intents", "paths", "policies")},
                    "big_integers": False,
                    "hooks": {},
                    "schema_in": None,
                    "schema_out": None,
                    "place": place,
                }
        return made

    def _acting(self, linked: Linked, settings: Object, where: Where) -> dict[str, Any]:
        """Return what abilities and models have from their plugin."""
        offer, spec = linked.offer, linked.spec
        who = f"{offer.kind} {offer.name!r}"
        self._linker.check(settings, spec.settings, who, where, declared=declared(linked, "settings"))
        return {
            "kind": KINDS[offer.kind],
            "plugin": [offer.kind, offer.name],
            "settings": dict(settings),
            "takes": self._linker.schema(spec.takes, declared(linked, "takes")),
            "gives": self._linker.schema(_OBJECT if spec.gives is None else spec.gives, declared(linked, "gives")),
            "effects": spec.effects,
            "interruptible": spec.interruptible,
        }

    def _check_kind(self, source: AbilitySource, kind: str, name: str) -> None:
        """Memory has handlers of its own, which are for nothing else: what remembers elsewhere is a tool."""
        own = kind == "tool" and name in TOOLS
        if own and source.kind != "memory":
            why = f"handler {name!r} is for abilities of kind memory; add kind: memory"
            self._linker.refuse("BINDING_INVALID", why, source.place)
        elif source.kind == "memory" and not own:
            why = f"kind memory needs one of its own handlers: {{tool: {' | '.join(TOOLS)}}}; leave kind out for a tool"
            self._linker.refuse("BINDING_INVALID", why, at(source)("/kind"))

    def _effects(self, source: AbilitySource, linked: Linked) -> str:
        least: str = linked.spec.effects
        effects = source.effects or least
        if EFFECTS.index(effects) < EFFECTS.index(least):
            why = f"effects {effects} are lower than the {least} that {linked.offer} declares"
            self._linker.refuse("BINDING_INVALID", f"{why}; they may be raised, never lowered", at(source)("/effects"))
        return effects

    def _schema_out(self, source: AbilitySource, linked: Linked) -> str | None:
        """Refuse an ability whose results nothing is said about.

        A schema without any assertion (such as ``{}``) says nothing, and then YAML has to; ``true`` there says that a
        result may be anything. Models are bound by the completion contract.
        """
        said = {} if source.schema_out is True else source.schema_out
        silent = says_nothing(linked.spec.gives or {}) and says_nothing(said or {}) and source.schema_out is not True
        if silent and linked.offer.kind != "provider":
            why = f"no output schema: {linked.offer} says nothing about its results; describe them with schema_out"
            self._linker.refuse("BINDING_INVALID", f"{why}, or write schema_out: true for anything", source.place)
        return self._narrowed(said, linked, "gives", at(source, "/schema_out"))

    def _narrowed(self, schema: Object | None, linked: Linked, side: str, where: Where) -> str | None:
        """Return the digest of a schema in YAML; where it allows more than the plugin's, that is a fault."""
        digest = self._linker.schema(schema, where)
        wide: Object = getattr(linked.spec, side)
        if digest is None or schema is None or says_nothing(wide):
            return digest
        key = (digest, linked.offer.kind, linked.offer.name, side)
        if key not in self._widened:
            self._widened[key] = widenings(schema, wide)
        name = "schema_in" if side == "takes" else "schema_out"
        for each in self._widened[key]:
            why = f"{name}{each.pointer} allows more than {linked.offer} does: {each.message}"
            self._linker.refuse("BINDING_INVALID", why, where(each.pointer))
        return digest

    def _uses(self, source: AbilitySource) -> list[str]:
        """Return the abilities that the globs of ``uses`` fit.

        Models only by their id, or where ``model/`` is said; those of kind memory alike, with ``memory/``.
        """
        found: set[str] = set()
        for glob in sorted(source.uses):
            if too_large([glob]):
                self._linker.refuse(
                    "BINDING_INVALID", f"uses {glob[:80]!r}: the glob is too large", at(source)("/uses")
                )
                continue
            fits = glob_test([glob])
            fitting = {name for name in self._names if fits(name)}
            if not glob.startswith("model/"):
                fitting -= self._models_named - {glob}
            if not glob.startswith("memory/"):
                fitting -= self._memories_named - {glob}
            if not fitting:
                self._linker.known("ability", glob, self._names, at(source)("/uses"))
            found |= fitting
        return sorted(found)

    def _check_named(self, source: AbilitySource) -> None:
        """Every hook and policy that an ability names exists, and answers at the moment it is named for."""
        where = at(source)
        for moment, event in _MOMENTS:
            for index, name in enumerate(source.hooks.get(moment, ())):
                place = where(f"/hooks/{moment}/{index}")
                if self._linker.known("hook", name, self._workspace.hooks, place):
                    answers = self._workspace.hooks[name].event_type
                    if answers != event:
                        why = f"hook {name!r} is asked at {answers}; hooks.{moment} needs one for {event}"
                        self._linker.refuse("BINDING_INVALID", why, place)
        for index, name in enumerate(source.policies):
            self._linker.known("policy", name, self._workspace.policies, where(f"/policies/{index}"))


def _inside(place: str) -> Where:
    return lambda pointer: f"{place}{pointer}"
