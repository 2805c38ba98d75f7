"""What a charter says of each skill: every loader asked, in the workspace and in its packs, and each answer checked.

A skill that cannot be read is set aside: it is not offered, and the charter says which file and why. One that somebody
names is needed, and is a fault.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import attrs

from deedbook.contract import Failed, Skill
from deedbook.format import canonical
from deedbook.format.errors import describe, fault, recordable
from deedbook.format.files import Folder
from deedbook.format.schema import suggest
from deedbook.plugins.host import WorkspaceHost, hidden_folders
from deedbook.plugins.packs import recorded_files
from deedbook.workspace.declarations import LoaderSource, PackSource, Workspace
from deedbook.workspace.documents import Document, parse_front_matter
from deedbook.workspace.sources import MAX_SKILL, read

from .grants import granted
from .linker import Linked, Linker, declared
from .wanted import Wanted

SKILLS: Final = ".system/skills"
MARKDOWN: Final = "markdown"
"""The loader that is given the workspace's folders of skills, and each pack's."""
_REASONS: Final = 20
"""How many reasons are kept of one skill that is set aside."""


def written(source: str, workspace: Workspace) -> Document | None:
    """Return the front matter of a skill's file as it stands now; ``None`` where it is in no Markdown file."""
    pack = next((pack for pack in workspace.packs.values() if source.startswith(f"{pack.label}: ")), None)
    path = source.removeprefix(f"{pack.label}: ") if pack else source
    if not path.endswith("/SKILL.md"):
        return None
    with Folder.at(workspace.root) as root:
        raw = read(pack.folder if pack else root, path, MAX_SKILL)
    return parse_front_matter(raw, source, MAX_SKILL)[0]


@attrs.frozen
class Found:
    """What a loader yielded, and whether its *source* may be what the skill was read from."""

    skill: Any
    place: str
    linked: Linked
    among: Callable[[str], bool]
    label: str = ""

    def shown(self, text: str) -> str:
        """Return a path, or what begins with one, as messages show it."""
        return f"{self.label}: {text}" if self.label else text


class Skills:
    """Compiles skills; what is wrong goes to the *linker*.

    *set_aside* says of each skill that cannot be read, by its file, *why* (every reason with its place), and whether
    the file itself was *read*.
    """

    def __init__(self, workspace: Workspace, linker: Linker) -> None:
        self.set_aside: dict[str, dict[str, Any]] = {}
        self._workspace = workspace
        self._linker = linker
        self._wanted = Wanted(workspace)

    def entries(self, providers: Iterable[Linked] = ()) -> dict[str, Any]:
        """Return what the charter says of each skill, by name; *providers* say what they cannot work with."""
        readers = [provider for provider in providers if provider.spec.check_skill]
        made: dict[str, Any] = {}
        self._check_aliases()
        self._take_unread()
        for found in self._found():
            skill = found.skill
            if isinstance(skill, Failed):
                self._failed(skill, found)
            elif not isinstance(skill, Skill):
                why = f"the skill loader yields no Skill but {skill!r:.80}"
                self._linker.refuse("PLUGIN_BROKEN", why, found.place)
            elif not all(isinstance(name, str) for name in skill.allowed):
                why = f"skill {skill.name!r} allows what is no text; names of tools are texts"
                self._linker.refuse("PLUGIN_BROKEN", why, found.place)
            elif skill.name in made:
                why = f"skill {skill.name!r} stands in {made[skill.name]['source']}, too; rename one"
                self._linker.refuse("SOURCE_INVALID", why, found.shown(skill.source))
            else:
                made[skill.name] = self._entry(skill, found)
                for provider in readers:
                    self._read(skill, found, provider)
        self._linker.faults.extend(self._wanted.missing(made))
        return made

    # --- setting aside ------------------------------------------------------------------------------------------------

    def _take_unread(self) -> None:
        for path, problem in self._workspace.unread.items():
            if self._wanted.claim(path):
                self._linker.faults.append(problem)
            else:
                self._set_aside(path, str(problem), read=False)

    def _failed(self, skill: Failed, found: Found) -> None:
        """Set a skill aside that a loader could not read; it is a fault where it is wanted, or is no single skill."""
        source, unread = skill.source, self._workspace.unread
        if not found.label and not unread.keys().isdisjoint((source, source.rpartition("/")[0])):
            return  # said already
        if not source or not found.among(source) or self._wanted.claim(source, found.label):
            self._linker.faults.append(fault(skill.code, found.shown(str(skill))))
        else:
            self._set_aside(found.shown(source), found.shown(str(skill)), read=True)

    def _set_aside(self, source: str, why: str, *, read: bool) -> None:
        entry = self.set_aside.setdefault(source, {"read": read, "why": []})
        if len(entry["why"]) < _REASONS:
            entry["why"].append(recordable(why))

    def _check_aliases(self) -> None:
        """Refuse what an alias must not say: an ability that is not there, or the name of one as its own."""
        abilities = self._workspace.abilities
        for alias in self._workspace.aliases.values():
            if alias.name in abilities:
                why = f"tool_aliases: {alias.name!r} is an ability itself; take the alias out"
                self._linker.refuse("BINDING_INVALID", why, alias.place)
            for name in alias.abilities:
                self._linker.known("ability", name, abilities, alias.place)

    # --- asking the loaders -------------------------------------------------------------------------------------------

    def _found(self) -> Iterator[Found]:
        with Folder.at(self._workspace.root) as root, self._linker.collecting(SKILLS):
            for loader in self._workspace.loaders:
                yield from self._in_workspace(loader, root)
        for pack in self._workspace.packs.values():
            if pack.folder.exists("skills"):
                yield from self._in_pack(pack)

    def _in_workspace(self, loader: LoaderSource, root: Folder) -> Iterator[Found]:
        settings, place = dict(loader.settings), loader.place or SKILLS
        roots = [path for path in (SKILLS, *self._workspace.skill_roots) if root.exists(path)]
        if loader.loader == MARKDOWN:
            settings["roots"] = roots
        if loader.loader == MARKDOWN and not roots:
            return
        linked = self._linker.link("skill", loader.loader, place)
        if linked is None or not self._fits(settings, linked, place):
            return
        among: Callable[[str], bool] = self._workspace.digests.__contains__
        if loader.loader != MARKDOWN:
            brought = recorded_files(linked.offer.metadata, editable=linked.offer.editable)
            among = lambda source: source in self._workspace.digests or source in brought  # noqa: E731
        host = WorkspaceHost(root, [""], hidden_folders(self._workspace.root, self._workspace.state), {})
        yield from self._asked(linked, settings, host, Found(None, place, linked, among))

    def _in_pack(self, pack: PackSource) -> Iterator[Found]:
        linked = self._linker.link("skill", MARKDOWN, pack.place)
        if linked:
            host = WorkspaceHost(pack.folder, [""], [], {})
            about = Found(None, pack.place, linked, pack.folder.exists, pack.label)
            yield from self._asked(linked, {"roots": ["skills"]}, host, about)

    def _fits(self, settings: dict[str, Any], linked: Linked, place: str) -> bool:
        """Check a loader's settings against what it says of them."""
        before = len(self._linker.faults)
        who = f"skill loader {linked.offer.name!r}"
        self._linker.check(settings, linked.spec.settings, who, lambda _: place, declared=declared(linked, "settings"))
        return len(self._linker.faults) == before

    def _asked(self, linked: Linked, settings: dict[str, Any], host: WorkspaceHost, about: Found) -> list[Found]:
        try:
            return [attrs.evolve(about, skill=skill) for skill in linked.made(settings, host)()]
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a plugin may raise anything, even SystemExit
            self._linker.refuse("PLUGIN_BROKEN", f"{linked.offer}: {describe(problem)}", about.place)
        return []

    # --- checking what they say ---------------------------------------------------------------------------------------

    def _read(self, skill: Skill, found: Found, provider: Linked) -> None:
        """Let a provider say what is wrong with a skill for it, each at its place in the front matter."""
        source = found.shown(skill.source)
        document = None
        try:
            for pointer, message in provider.spec.check_skill(skill):
                document = document or written(source, self._workspace)
                place = document.place(pointer, key=True) if document else source
                self._linker.refuse("SOURCE_INVALID", f"provider {provider.offer.name!r}: {message}", place)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a plugin may raise anything, even SystemExit
            why = f"{provider.offer} cannot check skill {skill.name!r}: {describe(problem)}"
            self._linker.refuse("PLUGIN_BROKEN", why, source)

    def _entry(self, skill: Skill, found: Found) -> dict[str, Any]:
        source = found.shown(skill.source)
        grants = granted(skill.allowed, self._workspace.aliases, self._workspace.abilities)
        if not found.among(skill.source):
            near = suggest(skill.source, self._workspace.digests)
            why = f"skill {skill.name!r} was read from a file that is not among the sources of the workspace{near}"
            self._linker.refuse("BINDING_INVALID", why, source)
        made = {
            "description": skill.description,
            "body": skill.body,
            "allowed": sorted(grants.abilities),
            **({"commands": grants.as_json()} if grants.commands else {}),
            **({"without": dict(grants.without)} if grants.without else {}),
            "triggers": list(skill.triggers),
            "metadata": dict(skill.metadata),
            "source": source,
        }
        with self._linker.collecting(source):
            canonical.encode(made)
        return made
