"""Read all files of a workspace into one frozen `Workspace`, in which every definition has its place.

A section of ``.system/deedbook.yaml`` and the files of a folder beside it are equivalent. Files are checked against
their schemas first, so that a fault has file, line and column; the faults of all files are raised together.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override

from deedbook.contract import Object
from deedbook.contract.lifecycle import ALIASES
from deedbook.contract.pointers import join_pointer
from deedbook.format.errors import BindingError, DomainError, SourceError, fault, raise_all
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder, suggest
from deedbook.plugins.features import Features
from deedbook.plugins.groups import FEATURE
from deedbook.plugins.plugins import Catalogue, discover
from deedbook.programs import scripts

from . import memory_section
from .activation import LEVELS, Activation
from .checkpoints import read_checkpoints
from .declarations import (
    AbilitySource,
    ClientSource,
    FeatureSection,
    FeatureSource,
    HookSource,
    ModelSource,
    Origin,
    PackSource,
    PolicySource,
    PrincipalSource,
    Profile,
    RoleSource,
    Source,
    Workspace,
)
from .documents import Document
from .personas import Personas
from .sections import find_sections, read_owners
from .site import SETTINGS, STATE, state_at
from .skillfiles import SkillFiles
from .sources import SYSTEM, TESTS, find_workspace, list_entries, public_key, refuse_unreadable
from .trees import SourceReader, SourceTree
from .trust import check_search_path, open_sources

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
]

S = TypeVar("S", bound=Source)

SKILLS: Final = f"{SYSTEM}/skills"
AGENTS: Final = "agents"

_FOLDERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"abilities": tuple(f"registry/{level}" for level in LEVELS), "hooks": ("hooks",), "policies": ("policies",)}
)
_SCHEMAS: Final[Mapping[str, str]] = MappingProxyType(
    {"abilities": "ability_v1", "hooks": "hook_v1", "policies": "policy_v1"}
)
_KNOWN: Final = ("deedbook.yaml", "deedbook.lock", "hooks", "policies", "registry", "skills", "agents",
                 "workflows", "schemas", memory_section.PERSONA)  # fmt: skip


def load_workspace(root: Path, schemas: Schemas | None = None, catalogue: Catalogue | None = None) -> Workspace:
    """Return the workspace at *root* with its packs from *catalogue* (default: installed plugins).

    Raises `SourceError` with every fault of every file.
    """
    found, faults = survey_workspace(root, schemas, catalogue)
    raise_all(SourceError, faults)
    assert found is not None
    return found


def survey_workspace(
    root: Path, schemas: Schemas | None = None, catalogue: Catalogue | None = None
) -> tuple[Workspace | None, list[DomainError]]:
    """Read what can be read of the workspace at *root*, and return it with every fault of every file.

    Without readable settings there is no workspace; files with faults are left out.
    """
    here = root.absolute()
    if not here.exists():
        raise SourceError(fault("WORKSPACE_NOT_FOUND", f"there is no folder {here}"))
    with open_sources(here) as folder:
        refuse_unreadable(folder)
        check_search_path(here)
        loader = _Loader(here, folder, schemas or Schemas.load(data_folder("schemas")), catalogue)
        return loader.load(), loader.reader.faults


class _Loader:
    """Loads one workspace; it collects faults instead of stopping at the first."""

    def __init__(self, root: Path, folder: Folder, schemas: Schemas, catalogue: Catalogue | None) -> None:
        self.root = root
        self.own = SourceTree(folder, SYSTEM)
        self.trees = [self.own]
        self.reader = SourceReader(schemas)
        self.catalogue = catalogue
        self._structure = _converter().structure
        self._settings: Document | None = None

    def load(self) -> Workspace | None:
        self._settings = self.reader.read_yaml(self.own, SETTINGS, "deedbook_v1")
        self._check_strays(memory_section.persona_folder(self._settings))
        made = self._workspace(self._settings.value if self._settings else {})
        return attrs.evolve(made, digests=self.reader.digests) if self._settings else None

    def _workspace(self, said: Any) -> Workspace:
        profiles = {name: self._structure(body, Profile) for name, body in said.get("profiles", {}).items()}
        self._check_profiles(said.get("profile", "local"), profiles)
        roots = said.get("roots", {})
        skill_roots = self._roots("skills", roots.get("skills", ()))
        agent_roots = self._roots("agents", roots.get("agents", ()))
        section_roots = {name: self._roots(name, roots[name]) for name in read_owners() if name in roots}
        activated = Activation(self.reader, self._settings, self.catalogue)
        packs = activated.packs(said.get("packs", ()))
        self.trees += [SourceTree(pack.folder, "", pack.label) for pack in packs.values()]
        loaders = activated.loaders(said.get("skills", {}).get("loaders"))
        skills = SkillFiles(self.reader, self.own, whole=any(each.loader != "markdown" for each in loaders))
        for folder in (SKILLS, *skill_roots):
            skills.read(folder)
        principals = self._principals(said.get("principals", {}))
        clients = self._clients()
        abilities = self._read_section("abilities", self._ability)
        self._add_tools(clients, abilities)
        sections = self._sections(abilities, section_roots)
        hooks, policies = self._read_section("hooks", self._hook), self._read_section("policies", self._policy)
        for section in sections.values():
            self._add("policies", policies, section.policies())
        personas = self._personas(agent_roots, packs)
        memory = memory_section.read_memory(self.reader, self._settings, abilities)
        plain = {key: said[key] for key in ("profile", "enforcement", "lock", "default", "workdocs") if key in said}
        made = Workspace(
            root=self.root,
            system=self.root / SYSTEM,
            state=self._state(said.get("state", STATE)),
            profiles=profiles,
            principals=principals,
            clients=clients,
            secrets={name: source["env"] for name, source in said.get("secrets", {}).items()},
            abilities=abilities,
            features=self._features(),
            sections=sections,
            hooks=hooks,
            policies=policies,
            roles=personas.roles,
            cards=personas.cards,
            packs=packs,
            loaders=loaders,
            required=activated.required_skills(said.get("skills", {}).get("required", ())),
            unread=skills.unread,
            aliases=activated.aliases(said.get("tool_aliases", {})),
            skill_roots=skill_roots,
            folders=(SYSTEM, *skill_roots, *agent_roots, *chain.from_iterable(section_roots.values())),
            file_roots=tuple(said.get("files", {}).get("roots", (".",))),
            checkpoints=read_checkpoints(said.get("checkpoints", {}), self.reader, self.own, self._settings),
            seal=memory_section.seal_patterns(said.get("seal", ()), memory),
            memory=memory,
            persona=memory_section.read_identity(self.reader, self.own, self._settings),
            **said.get("approvals", {}),
            **plain,
        )
        for section in sections.values():
            self.reader.faults.extend(section.problems(made))
        return made

    # --- definitions --------------------------------------------------------------------------------------------------

    def _read_section(self, section: str, make: Callable[[str, dict[str, Any], Origin], S]) -> dict[str, S]:
        made: dict[str, S] = {}
        for name, body, origin in (*self._inline(section), *self._files(section)):
            if name in made:
                self._report_duplicate(section, name, made[name], origin)
            else:
                made[name] = make(name, body, origin)
        return made

    def _inline(self, section: str) -> Iterator[tuple[str, dict[str, Any], Origin]]:
        document = self._settings
        if document:
            said: Any = document.value
            for name, body in said.get(section, {}).items():
                yield name, dict(body), Origin(document, join_pointer(section, name), inline=True)

    def _files(self, section: str) -> Iterator[tuple[str, dict[str, Any], Origin]]:
        for tree, folder in ((tree, tree.path(folder)) for tree in self.trees for folder in _FOLDERS[section]):
            for path in self.reader.list_files(tree, folder, ".yaml"):
                if section != "abilities" and path.endswith(TESTS):
                    continue
                document = self.reader.read_yaml(tree, path, _SCHEMAS[section])
                if document:
                    said: Any = document.value
                    body = {key: value for key, value in said.items() if key not in ("id", "schema_version")}
                    yield said["id"], body, Origin(document, packed=bool(tree.label))

    def _report_duplicate(self, section: str, name: str, first: Source, origin: Origin) -> None:
        why = f'"{name}" is also in {first.place}; an id names one of the {section}, rename one of them'
        self._refuse("SOURCE_INVALID", why, origin.place(key=True) if origin.inline else origin.place("/id"))

    def _ability(self, name: str, body: dict[str, Any], origin: Origin) -> AbilitySource:
        if name.startswith("model/"):
            why = f'"{name}": ids that begin with model/ are the profile\'s models; choose another'
            self._refuse("SOURCE_INVALID", why, origin.line())
        return self._structure(_with_origin(name, body, origin), AbilitySource)

    def _sections(
        self, abilities: dict[str, AbilitySource], roots: Mapping[str, tuple[str, ...]]
    ) -> dict[str, FeatureSection]:
        """Return what features read from their sections and files, and add the abilities to *abilities*."""
        made: dict[str, FeatureSection] = {}
        for name, place in find_sections(self.own, self._settings, self.trees[1:]):
            features = self._load_feature(self.catalogue or discover(), name, place)
            if features is None:
                continue
            made[name] = features.ask(
                "read_section",
                reader=self.reader,
                tree=self.own,
                document=self._settings,
                roots=roots.get(name, ()),
                packs=self.trees[1:],
            )
            self._add("abilities", abilities, made[name].abilities())
        return made

    def _add(self, section: str, known: dict[str, S], more: Iterable[S]) -> None:
        """Add what a feature declares to the definitions of a *section*."""
        for each in more:
            if each.id in known and _has_id(each):
                self._report_duplicate(section, each.id, known[each.id], each.origin)
            elif each.id in known:
                why = f'"{each.id}" is also made by {each.place}; choose another id for this one'
                self._refuse("SOURCE_INVALID", why, known[each.id].place)
            known[each.id] = each

    def _hook(self, name: str, body: dict[str, Any], origin: Origin) -> HookSource:
        event = body["event_type"]
        if origin.packed and "script" in body["handler"]:
            why = "a pack is data, so its hooks name plugins and run no program; declare the script in the workspace"
            self._refuse("SOURCE_INVALID", why, origin.place("/handler/script", key=True))
        wrong = list(scripts.problems(body, self.own.folder))
        for at, why in wrong:
            self._refuse("SOURCE_INVALID", why, origin.place(at, key=True))
        told = [] if wrong or origin.packed else scripts.files(body["handler"].get("script", ()), self.own.folder)
        files = {path: self.reader.digest(self.own, path) for path in told}
        body |= {"event_type": ALIASES.get(event, event), "files": files}
        return self._structure(_with_origin(name, body, origin), HookSource)

    def _policy(self, name: str, body: dict[str, Any], origin: Origin) -> PolicySource:
        kind, match = body.pop("kind"), body.pop("match", None)
        return PolicySource(id=name, place=origin.line(), origin=origin, kind=kind, match=match, settings=body)

    def _principals(self, said: Mapping[str, Any]) -> dict[str, PrincipalSource]:
        made: dict[str, PrincipalSource] = {}
        users: dict[int, str] = {}
        for name, _, origin in self._inline("principals"):
            user = said[name].get("uid")
            if user is not None and users.setdefault(user, name) != name:
                why = f'"{users[user]}" has the user id {user} already; give each user id to one principal'
                self._refuse("SOURCE_INVALID", why, origin.place("/uid"))
            asker = said[name].get("on_behalf_of")
            if asker is not None and asker not in said:
                why = f'"{asker}" is no principal of this workspace{suggest(asker, said)}'
                self._refuse("SOURCE_INVALID", why, origin.place("/on_behalf_of"))
            if name.startswith("agent:"):
                why = f'"{name}": ids that begin with agent: are reserved for roles of a run; choose another'
                self._refuse("SOURCE_INVALID", why, origin.place(key=True))
            key = {"key": self._key(said[name]["key"], origin)} if "key" in said[name] else {}
            made[name] = self._structure(_with_origin(name, {**said[name], **key}, origin), PrincipalSource)
        return made

    def _clients(self) -> dict[str, ClientSource]:
        return {
            name: self._structure(_with_origin(name, body, origin), ClientSource)
            for name, body, origin in self._inline("agents")
        }

    def _features(self) -> dict[str, FeatureSource]:
        return {
            name: FeatureSource(id=name, place=origin.line(), origin=origin, settings=body)
            for name, body, origin in self._inline("features")
        }

    def _add_tools(self, clients: Mapping[str, ClientSource], abilities: dict[str, AbilitySource]) -> None:
        """Add the tools of each coding agent as abilities, where the feature for agents is installed."""
        catalogue = (self.catalogue or discover()) if clients else None
        if catalogue is None:
            return
        wanted = next((client for client in clients.values() if client.kind or client.tools), None)
        if catalogue.get(FEATURE, AGENTS) is None and wanted is None:
            return
        features = self._load_feature(catalogue, AGENTS, wanted.place if wanted else None)
        if features is None:
            return
        for client in clients.values():
            for at, why in features.each("client_problems", client=client):
                self._refuse("SOURCE_INVALID", why, client.origin.place(at))
            for each in features.each("client_abilities", client=client):
                if each.id in abilities:
                    self._report_duplicate("abilities", each.id, abilities[each.id], client.origin)
                abilities.setdefault(each.id, each)

    def _load_feature(self, catalogue: Catalogue, name: str, place: str | None) -> Features | None:
        """Return a feature that reads a part of the workspace; a missing or broken one is a fault at *place*."""
        try:
            return Features(catalogue, [name])
        except BindingError as problem:
            self.reader.faults.extend(attrs.evolve(each, place=place) for each in problem.errors)
            return None

    def _key(self, said: str, origin: Origin) -> str | None:
        """Return the public key in a file of ``.system``, which is a source."""
        path, key = f"{SYSTEM}/{PurePosixPath(said)}", None
        try:
            key, self.reader.digests[path] = public_key(self.own.folder, path)
        except SourceError as problem:
            self._refuse("KEY_INVALID", problem.error.message, origin.place("/key"))
        return key

    # --- Markdown -----------------------------------------------------------------------------------------------------

    def _personas(self, roots: tuple[str, ...], packs: Mapping[str, PackSource]) -> Personas:
        personas = Personas(self.reader)
        for folder in (f"{SYSTEM}/{AGENTS}", *roots):
            personas.read(self.own, folder)
        for name, pack in packs.items():
            personas.read(SourceTree(pack.folder, "", pack.label), AGENTS, pack=name)
        return personas

    # --- settings -----------------------------------------------------------------------------------------------------

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
                    place = self._settings.place(join_pointer("profiles", name, "roles", role))
                    self._refuse("SOURCE_INVALID", why, place)

    def _state(self, said: str) -> Path:
        try:
            state = state_at(self.root, said)
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
                self._refuse("SOURCE_INVALID", why, self._settings.place(join_pointer("roots", kind, index)))
            else:
                roots.append(root)
        return tuple(roots)

    def _check_strays(self, known: str) -> None:
        """Refuse names in ``.system`` that are not read but resemble a name that is."""
        names = (*_KNOWN, *(file for owner in read_owners().values() for file in owner.files))
        for entry in self.reader.list_entries(self.own, SYSTEM):
            hint = "" if entry.name in (*names, known) else suggest(entry.name, names)
            if hint:
                self._refuse("SOURCE_INVALID", f"is not read{hint}", f"{SYSTEM}/{entry.name}")
        for entry in list_entries(self.own.folder, f"{SYSTEM}/registry")[0]:
            if entry.name not in LEVELS:
                why = f"is not read; put abilities into {' or '.join(LEVELS)}"
                self._refuse("SOURCE_INVALID", why, f"{SYSTEM}/registry/{entry.name}")

    def _refuse(self, code: str, message: str, place: str) -> None:
        self.reader.refuse(code, message, place)


def _has_id(source: Source) -> bool:
    """Return whether the file of a feature's definition has its id, so that a person may change it there."""
    said = source.origin.document.value
    return isinstance(said, dict) and said.get("id") == source.id


def _with_origin(name: str, body: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    return {**body, "id": name, "place": origin.line(), "origin": origin}


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=False)
    converter.register_structure_hook(Origin, lambda origin, _: origin)
    converter.register_structure_hook(Object | Literal[True] | None, lambda schema, _: schema)
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


def read_workspace(path: str | Path, profile: str | None = None, catalogue: Catalogue | None = None) -> Workspace:
    """Read the workspace at or above *path*, under *profile* if one is given; raises `SourceError`."""
    return load_profile(find_workspace(Path(path)), profile, catalogue)


def load_profile(root: Path, profile: str | None, catalogue: Catalogue | None = None) -> Workspace:
    """Read the workspace at *root*, under *profile* if one is given; raises `SourceError` or `BindingError`."""
    workspace = load_workspace(root, catalogue=catalogue)
    if profile is None or profile == workspace.profile:
        return workspace
    if profile not in workspace.profiles:
        known = ", ".join(sorted(workspace.profiles)) or "none"
        why = f"profile {profile!r} is not declared{suggest(profile, workspace.profiles) or '.'} Declared: {known}"
        raise BindingError(fault("USAGE", why, place=".system/deedbook.yaml"))
    return attrs.evolve(workspace, profile=profile)
