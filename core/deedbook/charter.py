"""The charter: sources x plugins to one frozen, content-addressed document of everything in force.

Compiling loads every plugin that the sources name, and reports all faults at once. The document is plain JSON; its
digest is the SHA-256 of its canonical bytes. What runs is bound from it (`bindings`), what changed is read from it
(`changes`), and old sessions are judged again by it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs

from . import canonical
from .contracts import Failed, GateSpec, HandlerSpec, Object, Skill
from .errors import BindingError, DeedbookError, DomainError, fault, raise_all
from .files import Folder
from .host import WorkspaceHost
from .match import Match
from .plugins import EVENTS, Catalogue, Offer, load
from .schema import Validator, foreign, suggest
from .declarations import AbilitySource, HookSource, PolicySource, Profile, Workspace

FORMAT: Final = "1"
FACTS: Final = frozenset({"session.calls", "session.usage", "context.state"})
"""The facts beyond a call that gates may read."""

EFFECTS: Final = ("none", "read", "write", "irreversible")
KINDS: Final = {"tool": "tool", "provider": "model", "flow": "flow"}
STATIC_EVENTS: Final = frozenset({"PreToolUse", "PostToolUse"})
SKILL_FOLDER: Final = ".system/skills"
DEFAULT_PATHS: Final = ("/path", "/file_path", "/paths")


@attrs.frozen
class Charter:
    """A compiled charter: its *document*, the canonical bytes, and their SHA-256."""

    document: Mapping[str, Any]
    raw: bytes = attrs.field(repr=False)
    digest: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Charter":
        """Return *document* as a charter."""
        raw = canonical.encode(document)
        return cls(canonical.decode(raw), raw, canonical.digest(raw))

    @classmethod
    def from_bytes(cls, raw: bytes, digest: str) -> "Charter":
        """Read a charter that was kept under *digest*; raises `BindingError` if the bytes are others."""
        if canonical.digest(raw) != digest:
            raise BindingError(fault("CHARTER_CHANGED", f"the kept charter {digest} is not what was kept"))
        return cls(canonical.decode(raw), raw, digest)


def compile_charter(workspace: Workspace, catalogue: Catalogue, *, kernel: str) -> Charter:
    """Compile *workspace* with the plugins of *catalogue*; raises `BindingError` with every fault."""
    compiler = _Compiler(workspace, catalogue)
    document = compiler.document(kernel)
    raise_all(BindingError, compiler.faults)
    return Charter.of(document)


class _Compiler:
    """One compilation; collects faults instead of stopping at the first."""

    def __init__(self, workspace: Workspace, catalogue: Catalogue) -> None:
        self.workspace = workspace
        self.catalogue = catalogue
        self.faults: list[DomainError] = []
        self._offers: dict[tuple[str, str], Offer] = {}
        self._classes: dict[tuple[str, str], type[Any] | None] = {}

    def document(self, kernel: str) -> dict[str, Any]:
        workspace = self.workspace
        profile = self._profile()
        abilities = {name: self._ability(source) for name, source in workspace.abilities.items()}
        abilities |= self._models(profile)
        hooks = {name: self._hook(source) for name, source in workspace.hooks.items()}
        policies = {name: self._policy(source) for name, source in workspace.policies.items()}
        self._check_bindings(hooks)
        skills = self._skills(set(abilities))
        return {
            "format": FORMAT,
            "kernel": kernel,
            "profile": workspace.profile,
            "durability": profile.durability,
            "flow": self._flow(profile, abilities),
            "models": {tier: model.model for tier, model in profile.models.items()},
            "roles": self._roles(profile),
            "enforcement": workspace.enforcement,
            "principals": {
                name: {"roles": sorted(p.roles), "via": p.via, "on_behalf_of": p.on_behalf_of}
                for name, p in workspace.principals.items()
            },
            "secrets": dict(workspace.secrets),
            "seal": list(workspace.seal),
            "file_roots": list(workspace.file_roots),
            "abilities": {name: entry for name, entry in abilities.items() if entry is not None},
            "hooks": {name: entry for name, entry in hooks.items() if entry is not None},
            "policies": {name: entry for name, entry in policies.items() if entry is not None},
            "skills": skills,
            "instructions": {name: role.body for name, role in workspace.roles.items()},
            "plugins": self._plugins(),
            "sources": dict(workspace.digests),
        }

    # --- abilities ----------------------------------------------------------------------------------------------------

    def _ability(self, source: AbilitySource) -> dict[str, Any] | None:
        kind, name = next(iter(source.handler.items()))
        if source.kind == "memory":
            self._refuse("NOT_AVAILABLE", "kind memory comes with a later release", source.place)
            return None
        made = self._load(kind, name, source.place)
        if made is None:
            return None
        entry = self._acting(source.id, kind, name, made.spec, source.settings, source.effects, source.place)
        entry |= {
            "summary": source.summary,
            "tags": sorted(source.tags),
            "timeout_ms": source.timeout_ms,
            "uses": sorted(source.uses),
            "scopes": sorted(source.scopes),
            "intents": sorted(source.intents),
            "paths": list(source.paths or DEFAULT_PATHS),
            "big_integers": source.big_integers == "string",
            "hooks": {moment: list(names) for moment, names in source.hooks.items()},
            "policies": list(source.policies),
            "schema_in": self._schema(source.schema_in, f"{source.place}: schema_in"),
            "schema_out": self._schema(source.schema_out, f"{source.place}: schema_out"),
        }
        if source.hooks.get("pre_create"):
            self._refuse("NOT_AVAILABLE", "hooks.pre_create comes with tasks, in a later release", source.place)
        return entry

    def _models(self, profile: Profile) -> dict[str, dict[str, Any] | None]:
        made: dict[str, dict[str, Any] | None] = {}
        for tier, model in profile.models.items():
            place = f".system/deedbook.yaml: profiles.{self.workspace.profile}.models.{tier}"
            provider = self._load("provider", model.provider, place)
            if provider is None:
                continue
            name = f"model/{tier}"
            entry = self._acting(name, "provider", model.provider, provider.spec, model.settings, None, place)
            entry |= {"summary": f"{model.model} by {model.provider}", "tags": [], "timeout_ms": model.timeout_ms}
            entry |= {"uses": [], "scopes": [], "intents": [], "paths": [], "big_integers": False}
            entry |= {"hooks": {}, "policies": [], "schema_in": None, "schema_out": None}
            made[name] = entry
        return made

    def _acting(  # noqa: PLR0913 - the parts that tools, providers and flows share
        self, name: str, kind: str, plugin: str, spec: HandlerSpec, settings: Object, effects: str | None, place: str
    ) -> dict[str, Any]:
        self._check_settings(spec.settings, settings, f"{kind} {plugin!r}", place)
        if effects is not None and EFFECTS.index(effects) < EFFECTS.index(spec.effects):
            why = f"effects {effects!r} of {name!r} are lower than the {spec.effects!r} that {kind} {plugin!r} declares"
            self._refuse("BINDING_INVALID", f"{why}; they may be raised, never lowered", place)
        return {
            "kind": KINDS[kind],
            "plugin": [kind, plugin],
            "settings": dict(settings),
            "takes": self._schema(spec.takes, f"{kind} {plugin!r}: takes") or {},
            "gives": self._schema(spec.gives, f"{kind} {plugin!r}: gives") or {},
            "effects": effects or spec.effects,
            "interruptible": bool(spec.interruptible),
            "place": place,
        }

    def _check_bindings(self, hooks: Mapping[str, Any]) -> None:
        """Every hook and policy that an ability names exists, and fits the moment it is named for."""
        for source in self.workspace.abilities.values():
            for moment, event in (("pre_call", "PreToolUse"), ("post_call", "PostToolUse")):
                for name in source.hooks.get(moment, ()):
                    self._known("hook", name, self.workspace.hooks, source.place)
                    entry = hooks.get(name)
                    if entry and entry["event"] != event:
                        why = f"hook {name!r} answers {entry['event']}; hooks.{moment} needs {event}"
                        self._refuse("BINDING_INVALID", why, source.place)
            for name in source.policies:
                self._known("policy", name, self.workspace.policies, source.place)
            for name in source.uses:
                self._known("ability", name, self.workspace.abilities, source.place)

    # --- gates --------------------------------------------------------------------------------------------------------

    def _hook(self, source: HookSource) -> dict[str, Any] | None:
        if source.event_type not in EVENTS:
            self._refuse("NOT_AVAILABLE", f"event {source.event_type} comes with a later release", source.place)
            return None
        if source.isolation != "inline":
            why = f"isolation {source.isolation!r} comes with a later release; use inline"
            self._refuse("NOT_AVAILABLE", why, source.place)
            return None
        name = source.handler.get("hook")
        if name is None:
            self._refuse(
                "NOT_AVAILABLE", "script hooks come with a later release; use handler: {hook: …}", source.place
            )
            return None
        made = self._load("hook", name, source.place)
        if made is None:
            return None
        if source.match is not None and source.event_type not in STATIC_EVENTS:
            self._refuse("BINDING_INVALID", f"{source.event_type} has no call to match; remove match", source.place)
        self._check_settings(made.spec.settings, source.settings, f"hook {name!r}", source.place)
        return {
            "event": source.event_type,
            "plugin": ["hook", name],
            "settings": dict(source.settings),
            "match": self._match(source.match, source.place),
            "priority": source.priority,
            "timeout_ms": source.timeout_ms,
            "place": source.place,
            **self._gate(made.spec, source.place),
        }

    def _policy(self, source: PolicySource) -> dict[str, Any] | None:
        made = self._load("policy", source.kind, source.place)
        if made is None:
            return None
        self._check_settings(made.spec.settings, source.settings, f"policy kind {source.kind!r}", source.place)
        return {
            "plugin": ["policy", source.kind],
            "settings": dict(source.settings),
            "match": self._match(source.match, source.place),
            "inline": source.inline,
            "place": source.place,
            "rules": [source.rule_place(index) for index in range(len(source.settings.get("rules", ())))],
            **self._gate(made.spec, source.place),
        }

    def _gate(self, spec: GateSpec, place: str) -> dict[str, Any]:
        for name in sorted(spec.reads - FACTS):
            self._refuse("BINDING_INVALID", f"reads {name!r}, which is no fact{suggest(name, FACTS)}", place)
        return {"reads": sorted(spec.reads), "pure": bool(spec.pure), "rewrites": bool(spec.rewrites)}

    def _match(self, body: Object | None, place: str) -> Object | None:
        if body is not None:
            with self._collecting():
                Match.compile(body, place)
        return body

    # --- skills, roles, flow ------------------------------------------------------------------------------------------

    def _skills(self, abilities: set[str]) -> dict[str, Any]:
        roots = [SKILL_FOLDER, *self.workspace.skill_roots]
        with Folder.at(self.workspace.root) as folder:
            present = [root for root in roots if folder.exists(root)]
            if not present:
                return {}
            made = self._load("skill", "markdown", SKILL_FOLDER)
            if made is None:
                return {}
            host = WorkspaceHost(folder, [""], [], {})
            found = self._collected(lambda: list(made({"roots": present}, host)()), f"skill loader in {SKILL_FOLDER}")
        skills: dict[str, Any] = {}
        for skill in found:
            if isinstance(skill, Failed):
                self.faults.append(fault(skill.code, str(skill)))
            elif skill.name in skills:
                self._refuse("SOURCE_INVALID", f"skill {skill.name!r} stands in {skills[skill.name]['source']}, too",
                             skill.source)  # fmt: skip
            else:
                skills[skill.name] = self._skill(skill, abilities)
        return skills

    def _skill(self, skill: Skill, abilities: set[str]) -> dict[str, Any]:
        for name in sorted(skill.allowed - abilities):
            why = f"skill {skill.name!r} allows {name!r}, which is no ability{suggest(name, abilities)}"
            self._refuse("BINDING_INVALID", why, skill.source)
        return {
            "description": skill.description,
            "body": skill.body,
            "allowed": sorted(skill.allowed),
            "triggers": list(skill.triggers),
            "metadata": dict(skill.metadata),
            "source": skill.source,
        }

    def _profile(self) -> Profile:
        return self.workspace.profiles.get(self.workspace.profile) or Profile()

    def _roles(self, profile: Profile) -> dict[str, str]:
        for role, tier in profile.roles.items():
            self._known("model tier", tier, profile.models, f"profiles.{self.workspace.profile}.roles.{role}")
        return dict(profile.roles)

    def _flow(self, profile: Profile, abilities: Mapping[str, Any]) -> str | None:
        place = f".system/deedbook.yaml: profiles.{self.workspace.profile}.flow"
        if profile.flow is not None and profile.flow not in self.workspace.abilities:
            self._known("flow", profile.flow, abilities, place)
        return profile.flow

    # --- plugins and faults -------------------------------------------------------------------------------------------

    def _load(self, kind: str, name: str, place: str) -> type[Any] | None:
        key = (kind, name)
        if key not in self._classes:
            self._classes[key] = None
            with self._collecting():
                self._offers[key] = self.catalogue.find(kind, name, place)
                self._classes[key] = load(self._offers[key], place)
        elif key not in self._offers:
            with self._collecting():
                self.catalogue.find(kind, name, place)
        return self._classes[key]

    def _plugins(self) -> dict[str, Any]:
        return {
            f"{kind}/{name}": {
                "distribution": offer.distribution,
                "version": offer.version,
                "target": offer.target,
                "digest": offer.digest,
            }
            for (kind, name), offer in sorted(self._offers.items())
        }

    def _schema(self, schema: Object | None, place: str) -> Object | None:
        if schema is None:
            return None
        self._validator(schema, place)
        return schema

    def _validator(self, schema: Object, place: str) -> Validator | None:
        with self._collecting():
            return foreign(dict(schema), place=place)
        return None

    def _check_settings(self, schema: Object, settings: Object, who: str, place: str) -> None:
        validator = self._validator(schema, f"{who}: settings")
        for violation in validator.violations(dict(settings)) if validator else ():
            self._refuse("BINDING_INVALID", f"settings of {who}: {violation.path}: {violation.message}", place)

    def _known(self, what: str, name: str, names: Mapping[str, Any], place: str) -> None:
        if name not in names:
            declared = ", ".join(sorted(names)) or "none"
            self._refuse("BINDING_INVALID", f"{what} {name!r} is not declared{suggest(name, names)}; declared: {declared}",
                         place)  # fmt: skip

    def _refuse(self, code: str, message: str, place: str) -> None:
        self.faults.append(fault(code, message, place=place))

    def _collected(self, make: Callable[[], Sequence[Any]], who: str) -> Sequence[Any]:
        try:
            return make()
        except DeedbookError as problem:
            self.faults.extend(problem.errors)
        except Exception as problem:  # noqa: BLE001 - a plugin may raise anything
            self._refuse("PLUGIN_BROKEN", f"{type(problem).__name__}: {problem}", who)
        return ()

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        try:
            yield
        except DeedbookError as problem:
            self.faults.extend(problem.errors)
