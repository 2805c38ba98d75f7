"""A workspace's files, read whole: one frozen `Workspace`, in which everything still knows where it stands.

A section of ``.system/deedbook.yaml`` and the files of a folder beside it are the same thing. Files are checked against
their schemas first, so that a fault has file, line and column; the faults of all files are raised together.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override

from . import canonical
from .declarations import (
    AbilitySource,
    HookSource,
    ModelSource,
    Origin,
    PolicySource,
    PrincipalSource,
    Profile,
    RoleSource,
    Source,
    Workspace,
)
from .documents import Document, pointer
from .errors import DomainError, SourceError, fault, raise_all
from .files import Folder
from .lifecycle import ALIASES
from .migrations import guard_message, old_guards
from .schema import Schemas, Validator, Violation, data_folder, foreign, suggest
from .sources import SYSTEM, entries, files, front_matter, load_yaml, read

__all__ = [
    "AbilitySource",
    "HookSource",
    "ModelSource",
    "Origin",
    "PolicySource",
    "PrincipalSource",
    "Profile",
    "RoleSource",
    "Source",
    "Workspace",
    "load_workspace",
    "survey_workspace",
    "told_state",
]

S = TypeVar("S", bound=Source)
T = TypeVar("T")
P = ParamSpec("P")

SETTINGS: Final = f"{SYSTEM}/deedbook.yaml"
STATE: Final = ".deedbook"
SKILLS: Final = f"{SYSTEM}/skills"
AGENTS: Final = f"{SYSTEM}/agents"

_FOLDERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "abilities": (f"{SYSTEM}/registry/low-level", f"{SYSTEM}/registry/high-level"),
        "hooks": (f"{SYSTEM}/hooks",),
        "policies": (f"{SYSTEM}/policies",),
    }
)
_SCHEMAS: Final[Mapping[str, str]] = MappingProxyType(
    {"abilities": "ability_v1", "hooks": "hook_v1", "policies": "policy_v1"}
)
_KNOWN: Final = ("deedbook.yaml", "deedbook.lock", "hooks", "policies", "registry", "skills", "agents", "workflows",
                 "schemas", "ROUTING.md", "ABILITY.md")  # fmt: skip
_LATER: Final = ("servers", "agents")
_ROLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SKILL_LEVELS: Final = 4
_SHORT: Final = 40


def load_workspace(root: Path, schemas: Schemas | None = None) -> Workspace:
    """Read the workspace at *root*. Raises `SourceError` with every fault of every file."""
    found, faults = survey_workspace(root, schemas)
    raise_all(SourceError, faults)
    assert found is not None
    return found


def survey_workspace(root: Path, schemas: Schemas | None = None) -> tuple[Workspace | None, list[DomainError]]:
    """Read what can be read of the workspace at *root*, and return it with every fault of every file.

    Without settings that can be read there is no workspace; files with faults are left out of it.
    """
    here = root.absolute()
    try:
        folder = Folder.at(here)
    except FileNotFoundError:
        raise SourceError(fault("WORKSPACE_NOT_FOUND", f"there is no folder {here}")) from None
    with folder:
        loader = _Loader(here, folder, schemas or Schemas.load(data_folder("schemas")))
        return loader.load(), loader.faults


def told_state(folder: Folder, root: Path) -> Path | None:
    """Return the state folder of the workspace at *root* without reading more than has to be; ``None`` if unknown."""
    try:
        raw = read(folder, SETTINGS)
        said: Any = load_yaml(folder, SETTINGS).value if b"state" in raw else {}
        return _state_at(root, said.get("state", STATE))
    except (SourceError, AttributeError, TypeError, RuntimeError):
        return None


def _state_at(root: Path, said: str) -> Path:
    return Path(os.path.normpath(root / Path(said).expanduser()))


class _Loader:
    """One reading of a workspace; collects faults instead of stopping at the first."""

    def __init__(self, root: Path, folder: Folder, schemas: Schemas) -> None:
        self.root = root
        self.folder = folder
        self.schemas = schemas
        self.faults: list[DomainError] = []
        self.digests: dict[str, str] = {}
        self._validators: dict[str, Validator] = {}
        self._structure = _converter().structure
        self._settings: Document | None = None

    def load(self) -> Workspace | None:
        self._strays()
        self._settings = self._checked(SETTINGS, "deedbook_v1")
        made = self._workspace(self._settings.value if self._settings else {})
        return attrs.evolve(made, digests=self.digests) if self._settings else None

    def _workspace(self, said: Any) -> Workspace:
        self._refuse_later(said)
        profiles = {name: self._structure(body, Profile) for name, body in said.get("profiles", {}).items()}
        self._check_profiles(said.get("profile", "local"), profiles)
        roots = said.get("roots", {})
        skill_roots = self._roots("skills", roots.get("skills", ()))
        agent_roots = self._roots("agents", roots.get("agents", ()))
        self._skills((SKILLS, *skill_roots))
        plain = {key: said[key] for key in ("profile", "enforcement", "lock") if key in said}
        return Workspace(
            root=self.root,
            system=self.root / SYSTEM,
            state=self._state(said.get("state", STATE)),
            profiles=profiles,
            principals=self._principals(said.get("principals", {})),
            secrets={name: source["env"] for name, source in said.get("secrets", {}).items()},
            abilities=self._declared("abilities", self._ability),
            hooks=self._declared("hooks", self._hook),
            policies=self._declared("policies", self._policy),
            roles=self._roles((AGENTS, *agent_roots)),
            skill_roots=skill_roots,
            folders=(SYSTEM, *skill_roots, *agent_roots),
            file_roots=tuple(said.get("files", {}).get("roots", (".",))),
            seal=tuple(said.get("seal", ())),
            **plain,
        )

    # --- definitions --------------------------------------------------------------------------------------------------

    def _declared(self, section: str, make: Callable[[str, dict[str, Any], Origin], S]) -> dict[str, S]:
        made: dict[str, S] = {}
        for name, body, origin in (*self._inline(section), *self._files(section)):
            if name in made:
                self._twice(section, name, made[name], origin)
            else:
                made[name] = make(name, body, origin)
        return made

    def _inline(self, section: str) -> Iterator[tuple[str, dict[str, Any], Origin]]:
        document = self._settings
        if document:
            said: Any = document.value
            for name, body in said.get(section, {}).items():
                yield name, dict(body), Origin(document, pointer(section, name), inline=True)

    def _files(self, section: str) -> Iterator[tuple[str, dict[str, Any], Origin]]:
        for folder in _FOLDERS[section]:
            for path in self._listed(folder, ".yaml"):
                document = self._checked(path, _SCHEMAS[section])
                if document:
                    said: Any = document.value
                    body = {key: value for key, value in said.items() if key not in ("id", "schema_version")}
                    yield said["id"], body, Origin(document)

    def _twice(self, section: str, name: str, first: Source, origin: Origin) -> None:
        why = f'"{name}" stands in {first.place}, too; an id names one of the {section}, rename one of them'
        self._refuse("SOURCE_INVALID", why, origin.place(key=True) if origin.inline else origin.place("/id"))

    def _ability(self, name: str, body: dict[str, Any], origin: Origin) -> AbilitySource:
        if name.startswith("model/"):
            why = f'"{name}": ids that begin with model/ are the profile\'s models; choose another'
            self._refuse("SOURCE_INVALID", why, origin.line())
        return self._structure(_placed(name, body, origin), AbilitySource)

    def _hook(self, name: str, body: dict[str, Any], origin: Origin) -> HookSource:
        event = body["event_type"]
        return self._structure(_placed(name, body | {"event_type": ALIASES.get(event, event)}, origin), HookSource)

    def _policy(self, name: str, body: dict[str, Any], origin: Origin) -> PolicySource:
        kind, match = body.pop("kind"), body.pop("match", None)
        return PolicySource(id=name, place=origin.line(), origin=origin, kind=kind, match=match, settings=body)

    def _principals(self, said: Mapping[str, Any]) -> dict[str, PrincipalSource]:
        made = {}
        for name, _, origin in self._inline("principals"):
            asker = said[name].get("on_behalf_of")
            if asker is not None and asker not in said:
                why = f'"{asker}" is no principal of this workspace{suggest(asker, said)}'
                self._refuse("SOURCE_INVALID", why, origin.place("/on_behalf_of"))
            if name.startswith("agent:"):
                why = f'"{name}": ids that begin with agent: are the roles of a run; choose another'
                self._refuse("SOURCE_INVALID", why, origin.place(key=True))
            made[name] = self._structure(_placed(name, said[name], origin), PrincipalSource)
        return made

    # --- Markdown -----------------------------------------------------------------------------------------------------

    def _roles(self, folders: tuple[str, ...]) -> dict[str, RoleSource]:
        made: dict[str, RoleSource] = {}
        for path in (path for folder in folders for path in self._listed(folder, ".md")):
            name = Path(path).stem
            with_meta = self._collected(front_matter, self.folder, path)
            if not with_meta:
                continue
            document, body = with_meta
            self.digests[path] = document.digest
            if not _ROLE.fullmatch(name):
                self._refuse("SOURCE_INVALID", "a role is named with letters, digits, dot, dash, underscore", path)
            if name in made:
                self._twice("roles", name, made[name], Origin(document))
            made[name] = RoleSource(**_placed(name, {"body": body, "meta": document.value}, Origin(document)))
        return made

    def _skills(self, folders: tuple[str, ...]) -> None:
        for folder in folders:
            self._skills_in(folder, _SKILL_LEVELS)

    def _skills_in(self, folder: str, levels: int) -> None:
        """Take the digest of every SKILL.md and `.agent` card; what a skill says is read by the loader of its form."""
        found, faults = entries(self.folder, folder)
        self.faults += [each for each in faults if levels == _SKILL_LEVELS or str(each.place).endswith("/SKILL.md")]
        for entry in found:
            path = f"{folder}/{entry.name}"
            if entry.folder and levels > 1:
                self._skills_in(path, levels - 1)
            elif entry.name == "SKILL.md":
                self._skill(path)
        if levels < _SKILL_LEVELS and self.folder.exists(f"{folder}/.agent"):
            self._skill(f"{folder}/.agent")

    def _skill(self, path: str) -> None:
        self.digests[path] = canonical.digest(self._collected(read, self.folder, path) or b"")

    # --- settings -----------------------------------------------------------------------------------------------------

    def _refuse_later(self, said: Mapping[str, Any]) -> None:
        for section in _LATER:
            if self._settings and section in said:
                why = f"{section}: comes with a later release; leave the section out"
                self._refuse("NOT_AVAILABLE", why, self._settings.place(pointer(section), key=True))

    def _check_profiles(self, chosen: str, profiles: Mapping[str, Profile]) -> None:
        if self._settings is None:
            return
        if chosen not in profiles and (profiles or chosen != "local"):
            why = f'profile "{chosen}" is not declared{suggest(chosen, profiles)}'
            self._refuse("SOURCE_INVALID", why, self._settings.place("/profile"))
        for name, profile in profiles.items():
            for role, tier in profile.roles.items():
                if tier not in profile.models:
                    why = f'"{tier}" is no tier of this profile{suggest(tier, profile.models)}'
                    place = self._settings.place(pointer("profiles", name, "roles", role))
                    self._refuse("SOURCE_INVALID", why, place)

    def _state(self, said: str) -> Path:
        try:
            state = _state_at(self.root, said)
        except RuntimeError:
            state = self.root
        if self._settings and (state == self.root or state.is_relative_to(self.root / SYSTEM)):
            why = f"the state needs a folder of its own outside {SYSTEM}/, such as .deedbook"
            self._refuse("SOURCE_INVALID", why, self._settings.place("/state"))
        return state

    def _roots(self, kind: str, said: tuple[str, ...]) -> tuple[str, ...]:
        roots = []
        for index, root in enumerate(map(os.path.normpath, said)):
            outside = root.split("/")[0] == ".."
            if self._settings and (outside or not (self.root / root).is_dir()):
                why = f'"{root}" leads outside the workspace' if outside else f'there is no folder "{root}"'
                self._refuse("SOURCE_INVALID", why, self._settings.place(pointer("roots", kind, index)))
            else:
                roots.append(root)
        return tuple(roots)

    def _strays(self) -> None:
        """Refuse names in ``.system`` that nobody reads but that look as if they were meant to be read."""
        found, faults = entries(self.folder, SYSTEM)
        self.faults += faults
        for entry in found:
            hint = "" if entry.name in _KNOWN else suggest(entry.name, _KNOWN)
            if hint:
                self._refuse("SOURCE_INVALID", f"is not read{hint}", f"{SYSTEM}/{entry.name}")
        levels = [Path(folder).name for folder in _FOLDERS["abilities"]]
        for entry in entries(self.folder, f"{SYSTEM}/registry")[0]:
            if entry.name not in levels:
                why = f"is not read; put abilities into {' or '.join(levels)}"
                self._refuse("SOURCE_INVALID", why, f"{SYSTEM}/registry/{entry.name}")

    # --- reading and faults -------------------------------------------------------------------------------------------

    def _listed(self, folder: str, suffix: str) -> list[str]:
        paths, faults = files(self.folder, folder, suffix)
        self.faults += faults
        return paths

    def _checked(self, path: str, schema: str) -> Document | None:
        """Return a YAML file that fits its schema; everything else is a fault."""
        document = self._collected(load_yaml, self.folder, path)
        if document is None:
            return None
        self.digests[path] = document.digest
        old = list(old_guards(schema, document.value))
        for guard in old:
            why = guard_message(guard.rpartition("/")[2])
            self._refuse("SOURCE_INVALID", why, document.place(guard, key=True))
        violations = self._validator(schema).violations(document.value)
        for violation in violations:
            if violation.pointer and any(f"{guard}/".startswith(f"{violation.pointer}/") for guard in old):
                continue  # said already
            unknown = violation.message.startswith("unknown key")
            said = f"{_found(document, violation)}{violation.message}"
            why = f"{violation.path.removeprefix('$.')}: {said}" if violation.pointer else said
            self._refuse("SOURCE_INVALID", why, document.place(violation.pointer, key=unknown))
        return None if violations or old else document

    def _validator(self, schema: str) -> Validator:
        # These schemas are asked a few times at start: interpreting them costs a twentieth of compiling them.
        if schema not in self._validators:
            self._validators[schema] = foreign(self.schemas.document(schema), place=schema)
        return self._validators[schema]

    def _collected(self, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return make(*args, **kwargs)
        except SourceError as problem:
            self.faults.extend(problem.errors)
            return None

    def _refuse(self, code: str, message: str, place: str) -> None:
        self.faults.append(fault(code, message, place=place))


def _found(document: Document, violation: Violation) -> str:
    """Return the short value that is none of its schema's options; schemas quote no value, but YAML is no secret."""
    if not violation.message.startswith("is not one of "):
        return ""
    value: Any = document.value
    for step in violation.pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    said = "" if isinstance(value, dict | list) else canonical.encode(value).decode()
    return f"{said} " if said and said.isprintable() and len(said) <= _SHORT else ""


def _placed(name: str, body: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    return {**body, "id": name, "place": origin.line(), "origin": origin}


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=False)
    converter.register_structure_hook(Origin, lambda origin, _: origin)
    for made in (AbilitySource, HookSource, ModelSource):
        renamed = make_dict_structure_fn(
            made,
            converter,
            _cattrs_forbid_extra_keys=True,
            _cattrs_detailed_validation=False,
            settings=override(rename="with"),
        )
        converter.register_structure_hook(made, renamed)
    return converter
