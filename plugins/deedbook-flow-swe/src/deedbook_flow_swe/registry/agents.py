"""The agents of a pipeline: the folders of their cards, their skills, and the abilities that their cards name.

The kernel reads the cards and checks them. Here only the skills beside a card are read, and what the card can do.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import attrs

from deedbook.contract import AgentInfo
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.workspace.documents import Document
from deedbook.workspace.sources import CARD
from deedbook.workspace.trees import SourceReader, SourceTree
from deedbook_flow_swe.definition import AgentSkill

AGENTS: Final = "agents"
SKILLS: Final = "skills"
SKILL_SCHEMA: Final = "agent_skill_v1"

_READ_ME: Final = "README.md"


@attrs.frozen
class AgentFolder:
    """The folder *path* of an agent in *tree*, with the *capabilities* of its card."""

    tree: SourceTree
    path: str
    capabilities: tuple[str, ...]


def list_cards(tree: SourceTree, settings: Document | None, packs: Sequence[SourceTree]) -> list[AgentInfo]:
    """Return what the cards of all agents say, by name; no persona is read. A card that cannot be read is left out."""
    found: dict[str, AgentInfo] = {}
    for each, folder in _list_folders(tree, settings, packs):
        for entry in each.folder.scan(folder) if each.folder.exists(folder) else ():
            path = f"{folder}/{entry.name}/{CARD}"
            if entry.folder and entry.name not in found and each.folder.exists(path):
                said = _read_card(each, path)
                domain = said.get("domain")
                found[entry.name] = AgentInfo(
                    name=entry.name,
                    domain=domain if isinstance(domain, str) else "",
                    capabilities=frozenset(_read_capabilities(said)),
                    abilities=frozenset(),
                )
    return [found[name] for name in sorted(found)]


def _list_folders(
    tree: SourceTree, settings: Document | None, packs: Sequence[SourceTree]
) -> Iterator[tuple[SourceTree, str]]:
    said: Any = settings.value if settings is not None else {}
    roots = said.get("roots", {}).get(AGENTS, ()) if isinstance(said, dict) else ()
    yield tree, tree.path(AGENTS)
    yield from ((tree, root) for root in roots)
    yield from ((pack, AGENTS) for pack in packs)


def find_agents(
    tree: SourceTree, settings: Document | None, packs: Sequence[SourceTree], names: frozenset[str]
) -> Mapping[str, AgentFolder]:
    """Return the folders of those agents of *names* that have a card; *settings* may name further folders."""
    found: dict[str, AgentFolder] = {}
    for each, folder in _list_folders(tree, settings, packs):
        for name in sorted(names - found.keys()):
            path = f"{folder}/{name}"
            if each.folder.exists(f"{path}/{CARD}"):
                found[name] = AgentFolder(each, path, tuple(_read_capabilities(_read_card(each, f"{path}/{CARD}"))))
    return found


def _read_card(tree: SourceTree, path: str) -> Mapping[str, Any]:
    try:
        said: Any = tree.yaml(path).value
    except DeedbookError:
        return {}  # the kernel reports it
    return said if isinstance(said, dict) else {}


def _read_capabilities(said: Mapping[str, Any]) -> Iterator[str]:
    listed = said.get("capabilities")
    yield from (each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, str))


def read_skills(agent: AgentFolder, reader: SourceReader) -> tuple[AgentSkill, ...]:
    """Return the skills of an agent by name of file; what is wrong with one is a fault of *reader*."""
    tree, folder = agent.tree, f"{agent.path}/{SKILLS}"
    if not tree.folder.exists(folder):
        return ()
    paths = [path for path in reader.list_files(tree, folder, ".md") if PurePosixPath(path).name != _READ_ME]
    made = (_read_skill(tree, path, reader) for path in sorted(paths))
    return tuple(each for each in made if each is not None)


def _read_skill(tree: SourceTree, path: str, reader: SourceReader) -> AgentSkill | None:
    found = reader.read_markdown(tree, path)
    if found is None:
        return None
    document, body = found
    if not reader.check_document(document, SKILL_SCHEMA):
        return None
    said: Any = document.value
    when = said.get("when", {})
    text = body.strip()
    return AgentSkill(
        id=PurePosixPath(path).stem,
        name=said["name"],
        description=said["description"],
        path=f"{AGENTS}/{PurePosixPath(path).parts[-3]}/{SKILLS}/{PurePosixPath(path).name}",
        digest=canonical.digest(text.encode()),
        text=text,
        types=tuple(when.get("types", ())),
        mentions=tuple(when.get("mentions", ())),
    )
