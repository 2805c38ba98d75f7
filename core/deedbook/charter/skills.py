"""The skill entries of a charter: run every loader in the workspace and its packs, and check each skill.

A skill that cannot be read is set aside: it is not offered, and the charter keeps its file and the reason. If the
workspace names that skill, it is a fault.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import attrs

from deedbook.contract import Failed, Skill
from deedbook.format import canonical
from deedbook.format.errors import fault, recordable
from deedbook.format.files import Folder
from deedbook.format.schema import suggest
from deedbook.plugins.groups import FEATURE
from deedbook.plugins.host import WorkspaceHost, hidden_folders
from deedbook.plugins.packs import recorded_files
from deedbook.workspace.declarations import LoaderSource, PackSource, SkillSource, Workspace
from deedbook.workspace.documents import Document, parse_front_matter
from deedbook.workspace.sources import MAX_SKILL, read
from deedbook.workspace.trust import open_sources

from .grants import resolve_grants
from .linker import Linker, LoadedPlugin, declaration_place
from .required_skills import RequiredSkills

SKILLS: Final = ".system/skills"
MARKDOWN: Final = "markdown"
"""The loader that reads the skill folders of the workspace and of each pack."""
_REASONS: Final = 20
"""How many reasons are kept for one skill that is set aside."""


def read_front_matter(source: str, workspace: Workspace) -> Document | None:
    """Return the current front matter of a skill's file; ``None`` if the file is not Markdown."""
    pack = next((pack for pack in workspace.packs.values() if source.startswith(f"{pack.label}: ")), None)
    path = source.removeprefix(f"{pack.label}: ") if pack else source
    if not path.endswith("/SKILL.md"):
        return None
    with open_sources(workspace.root) as root:
        raw = read(pack.folder if pack else root, path, MAX_SKILL)
    return parse_front_matter(raw, source, MAX_SKILL)[0]


@attrs.frozen
class LoadedSkill:
    """A skill from a loader or a feature, and a test whether its *source* is a file that may declare it.

    A feature's skill has its *declaration*, with exact places.
    """

    skill: Any
    place: str
    linked: LoadedPlugin
    is_source: Callable[[str], bool]
    label: str = ""
    declaration: SkillSource | None = None

    def display(self, text: str) -> str:
        """Return a path, or a text that begins with one, as messages show it."""
        return f"{self.label}: {text}" if self.label else text


class SkillCompiler:
    """Compiles skills and reports faults to the *linker*.

    *set_aside* holds, by file, each skill that cannot be read: *why* (every reason with its place), and whether the
    file itself was *read*.
    """

    def __init__(self, workspace: Workspace, linker: Linker) -> None:
        self.set_aside: dict[str, dict[str, Any]] = {}
        self._workspace = workspace
        self._linker = linker
        self._required = RequiredSkills(workspace)

    def entries(self, providers: Iterable[LoadedPlugin] = ()) -> dict[str, Any]:
        """Return the entry of each skill, by name; *providers* report skills that they cannot use."""
        readers = [provider for provider in providers if provider.spec.check_skill]
        made: dict[str, Any] = {}
        self._check_aliases()
        self._set_aside_unread()
        for found in self._load_skills():
            skill = found.skill
            if isinstance(skill, Failed):
                self._handle_failure(skill, found)
            elif not isinstance(skill, Skill):
                why = f"the skill loader yields no Skill but {skill!r:.80}"
                self._linker.refuse("PLUGIN_BROKEN", why, found.place)
            elif not all(isinstance(name, str) for name in skill.allowed):
                why = f"skill {skill.name!r} allows what is no text; names of tools are texts"
                self._linker.refuse("PLUGIN_BROKEN", why, found.place)
            elif skill.name in made:
                why = f"skill {skill.name!r} is also in {made[skill.name]['source']}; rename one"
                self._linker.refuse("SOURCE_INVALID", why, found.display(skill.source))
            else:
                made[skill.name] = self._entry(skill, found)
                for provider in readers:
                    self._run_provider_check(skill, found, provider)
        self._linker.faults.extend(self._required.find_missing(made))
        return made

    # --- setting aside ------------------------------------------------------------------------------------------------

    def _set_aside_unread(self) -> None:
        for path, problem in self._workspace.unread.items():
            if self._required.claim(path):
                self._linker.faults.append(problem)
            else:
                self._set_aside(path, str(problem), read=False)

    def _handle_failure(self, skill: Failed, found: LoadedSkill) -> None:
        """Set an unreadable skill aside. It is a fault if the workspace requires it or its source is unknown."""
        source, unread = skill.source, self._workspace.unread
        if not found.label and not unread.keys().isdisjoint((source, source.rpartition("/")[0])):
            return  # reported already
        if not source or not found.is_source(source) or self._required.claim(source, found.label):
            self._linker.faults.append(fault(skill.code, found.display(str(skill))))
        else:
            self._set_aside(found.display(source), found.display(str(skill)), read=True)

    def _set_aside(self, source: str, why: str, *, read: bool) -> None:
        entry = self.set_aside.setdefault(source, {"read": read, "why": []})
        if len(entry["why"]) < _REASONS:
            entry["why"].append(recordable(why))

    def _check_aliases(self) -> None:
        """Refuse aliases that name an unknown ability, or that have the name of an ability."""
        abilities = self._workspace.abilities
        for alias in self._workspace.aliases.values():
            if alias.name in abilities:
                why = f"tool_aliases: {alias.name!r} is an ability itself; take the alias out"
                self._linker.refuse("BINDING_INVALID", why, alias.place)
            for name in alias.abilities:
                self._linker.check_name("ability", name, abilities, alias.place)

    # --- asking the loaders -------------------------------------------------------------------------------------------

    def _load_skills(self) -> Iterator[LoadedSkill]:
        with open_sources(self._workspace.root) as root, self._linker.collect_errors(SKILLS):
            for loader in self._workspace.loaders:
                yield from self._in_workspace(loader, root)
        for pack in self._workspace.packs.values():
            if pack.folder.exists("skills"):
                yield from self._in_pack(pack)
        for name, section in self._workspace.sections.items():
            for source in section.skills():
                if linked := self._linker.link(FEATURE, name, source.place):
                    yield LoadedSkill(source.skill, source.place, linked, lambda _: True, declaration=source)

    def _in_workspace(self, loader: LoaderSource, root: Folder) -> Iterator[LoadedSkill]:
        settings, place = dict(loader.settings), loader.place or SKILLS
        roots = [path for path in (SKILLS, *self._workspace.skill_roots) if root.exists(path)]
        if loader.loader == MARKDOWN:
            settings["roots"] = roots
        if loader.loader == MARKDOWN and not roots:
            return
        linked = self._linker.link("skill", loader.loader, place)
        if linked is None or not self._check_settings(settings, linked, place):
            return
        among: Callable[[str], bool] = self._workspace.digests.__contains__
        if loader.loader != MARKDOWN:
            brought = recorded_files(linked.offer.metadata, editable=linked.offer.editable)
            among = lambda source: source in self._workspace.digests or source in brought  # noqa: E731
        host = WorkspaceHost(root, [""], hidden_folders(self._workspace.root, self._workspace.state), {})
        yield from self._run_loader(linked, settings, host, LoadedSkill(None, place, linked, among))

    def _in_pack(self, pack: PackSource) -> Iterator[LoadedSkill]:
        linked = self._linker.link("skill", MARKDOWN, pack.place)
        if linked:
            host = WorkspaceHost(pack.folder, [""], [], {})
            about = LoadedSkill(None, pack.place, linked, pack.folder.exists, pack.label)
            yield from self._run_loader(linked, {"roots": ["skills"]}, host, about)

    def _check_settings(self, settings: dict[str, Any], linked: LoadedPlugin, place: str) -> bool:
        """Check a loader's settings against its schema."""
        before = len(self._linker.faults)
        who = f"skill loader {linked.offer.name!r}"
        self._linker.check(
            settings, linked.spec.settings, who, lambda _: place, declared=declaration_place(linked, "settings")
        )
        return len(self._linker.faults) == before

    def _run_loader(
        self, linked: LoadedPlugin, settings: dict[str, Any], host: WorkspaceHost, about: LoadedSkill
    ) -> list[LoadedSkill]:
        with self._linker.collect_crashes(str(linked.offer), about.place):
            return [attrs.evolve(about, skill=skill) for skill in linked.plugin_class(settings, host)()]
        return []

    # --- checking what they say ---------------------------------------------------------------------------------------

    def _run_provider_check(self, skill: Skill, found: LoadedSkill, provider: LoadedPlugin) -> None:
        """Let a provider report problems of a skill, each at its place in the front matter."""
        source = found.display(skill.source)
        document = None
        with self._linker.collect_crashes(f"{provider.offer} cannot check skill {skill.name!r}", source):
            for pointer, message in provider.spec.check_skill(skill):
                if found.declaration:
                    document = found.declaration.origin.document
                document = document or read_front_matter(source, self._workspace)
                place = document.place(pointer, key=True) if document else source
                self._linker.refuse("SOURCE_INVALID", f"provider {provider.offer.name!r}: {message}", place)

    def _entry(self, skill: Skill, found: LoadedSkill) -> dict[str, Any]:
        source = found.display(skill.source)
        grants = resolve_grants(skill.allowed, self._workspace.aliases, self._workspace.abilities)
        if not found.is_source(skill.source):
            near = suggest(skill.source, self._workspace.digests)
            why = f"skill {skill.name!r} was read from a file that is not among the sources of the workspace{near}"
            self._linker.refuse("BINDING_INVALID", why, source)
        made = {
            "description": skill.description,
            "body": skill.body,
            "allowed": sorted(grants.abilities),
            **({"commands": grants.as_json()} if grants.commands else {}),
            **({"without": dict(grants.unresolved)} if grants.unresolved else {}),
            "triggers": list(skill.triggers),
            "metadata": dict(skill.metadata),
            "source": source,
        }
        with self._linker.collect_errors(source):
            canonical.encode(made)
        return made
