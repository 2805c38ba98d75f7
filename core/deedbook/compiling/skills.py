"""What a charter says of each skill: every loader asked, in the workspace and in its packs, and each answer checked."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import attrs

from deedbook import canonical
from deedbook.contracts import Failed, Skill
from deedbook.errors import describe, fault
from deedbook.files import Folder
from deedbook.host import WorkspaceHost
from deedbook.schema import suggest
from deedbook.workspaces.declarations import LoaderSource, PackSource, Workspace
from deedbook.workspaces.documents import Document, parse_front_matter
from deedbook.workspaces.packs import recorded_files
from deedbook.workspaces.sources import read

from .linker import Linked, Linker, declared

SKILLS: Final = ".system/skills"
MARKDOWN: Final = "markdown"
"""The loader that is given the workspace's folders of skills, and each pack's."""


def written(source: str, workspace: Workspace) -> Document | None:
    """Return the front matter of a skill's file as it stands now; ``None`` where it is in no Markdown file."""
    pack = next((pack for pack in workspace.packs.values() if source.startswith(f"{pack.label}: ")), None)
    path = source.removeprefix(f"{pack.label}: ") if pack else source
    if not path.endswith("/SKILL.md"):
        return None
    with Folder.at(workspace.root) as root:
        raw = read(pack.folder if pack else root, path)
    return parse_front_matter(raw, source)[0]


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
    """Compiles skills; what is wrong goes to the *linker*."""

    def __init__(self, workspace: Workspace, linker: Linker) -> None:
        self._workspace = workspace
        self._linker = linker

    def entries(self, providers: Iterable[Linked] = ()) -> dict[str, Any]:
        """Return what the charter says of each skill, by name; *providers* say what they cannot work with."""
        readers = [provider for provider in providers if provider.spec.check_skill]
        made: dict[str, Any] = {}
        for found in self._found():
            skill = found.skill
            if isinstance(skill, Failed):
                self._linker.faults.append(fault(skill.code, found.shown(str(skill))))
            elif not isinstance(skill, Skill):
                why = f"the skill loader yields no Skill but {skill!r:.80}"
                self._linker.refuse("PLUGIN_BROKEN", why, found.place)
            elif skill.name in made:
                why = f"skill {skill.name!r} stands in {made[skill.name]['source']}, too; rename one"
                self._linker.refuse("SOURCE_INVALID", why, found.shown(skill.source))
            else:
                made[skill.name] = self._entry(skill, found)
                for provider in readers:
                    self._read(skill, found, provider)
        return made

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
        host = WorkspaceHost(root, [""], self._hidden(), {})
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

    def _hidden(self) -> list[str]:
        state, root = self._workspace.state, self._workspace.root
        return [str(state.relative_to(root))] if state.is_relative_to(root) else []

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
        for name in sorted(skill.allowed):
            if name.startswith("model/"):
                why = f"skill {skill.name!r} allows {name!r}; models are for roles, leave it out"
                self._linker.refuse("BINDING_INVALID", why, source)
            else:
                self._linker.known("ability", name, self._workspace.abilities, source)
        if not found.among(skill.source):
            near = suggest(skill.source, self._workspace.digests)
            why = f"skill {skill.name!r} was read from a file that is not among the sources of the workspace{near}"
            self._linker.refuse("BINDING_INVALID", why, source)
        made = {
            "description": skill.description,
            "body": skill.body,
            "allowed": sorted(skill.allowed),
            "triggers": list(skill.triggers),
            "metadata": dict(skill.metadata),
            "source": source,
        }
        with self._linker.collecting(source):
            canonical.encode(made)
        return made
