"""Roles in Markdown, and agents with a card (``.agent``) that is read before any persona.

A role is ``agents/<role>.md``. An agent is a folder ``agents/<name>/`` with a card, which describes the agent and its
capabilities in a few words. A start takes the digest of ``persona.md`` beside it. The text is read only when the agent
is chosen.
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final, cast

from deedbook.contract import Failed
from deedbook.contract.pointers import join_pointer
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, SourceError
from deedbook.format.files import Folder
from deedbook.plugins.plugins import Catalogue

from .agent_state import AgentState
from .declarations import CardSource, Origin, RoleSource, Source
from .documents import read_text
from .sources import CARD, MAX_BYTES
from .trees import SourceReader, SourceTree

PERSONA: Final = "persona.md"
MAX_CARD: Final = 2048
"""The longest card, in bytes: the form asks for about 125 tokens."""
SCHEMA: Final = "agent_card_v1"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BUDGET: Final = {"max_skills": 20, "max_goals": 5}


class Personas:
    """Reads roles and cards; a name that is taken twice is a fault."""

    def __init__(self, reader: SourceReader) -> None:
        self.roles: dict[str, RoleSource] = {}
        self.cards: dict[str, CardSource] = {}
        self._reader = reader

    def read(self, tree: SourceTree, folder: str, *, pack: str | None = None) -> None:
        """Read the roles and cards of a folder of *tree*, which belongs to *pack*."""
        for path in self._reader.list_files(tree, folder, ".md"):
            self._role(tree, path)
        for entry in self._reader.list_entries(tree, folder):
            if entry.folder and tree.folder.exists(f"{folder}/{entry.name}/{CARD}"):
                self._card(tree, f"{folder}/{entry.name}", pack)

    def _role(self, tree: SourceTree, path: str) -> None:
        found = self._reader.read_markdown(tree, path)
        if found:
            document, body = found
            name, origin = PurePosixPath(path).stem, Origin(document)
            if self._claim_name(name, origin, tree.display(path)):
                self.roles[name] = RoleSource(id=name, place=origin.line(), origin=origin, body=body)
            keys: Any = document.value
            for key in keys:
                why = f"{key}: unknown key; a role is instructions only, and has no keys in its front matter"
                self._reader.refuse("SOURCE_INVALID", why, document.place(join_pointer(key), key=True))

    def _card(self, tree: SourceTree, folder: str, pack: str | None) -> None:
        path, name = f"{folder}/{CARD}", folder.rpartition("/")[2]
        raw = self._reader.read_bytes(tree, path)
        if raw is None:
            return
        if len(raw) > MAX_CARD:
            why = f"more than {MAX_CARD} bytes; a card is small, put the rest into {PERSONA} beside it"
            self._reader.refuse("SOURCE_INVALID", why, tree.display(path))
            return
        document = self._reader.parse_checked(tree, path, raw, SCHEMA)
        if document is None:
            return
        said, origin = cast("Any", document.value), Origin(document)
        if said["identity"] != name:
            why = f"identity: {said['identity']} is in the folder {name}; both must have the same name"
            self._reader.refuse("SOURCE_INVALID", why, origin.place("/identity"))
        elif self._claim_name(name, origin, tree.display(path)):
            beside, budget = AgentState(self._reader, tree, folder), {**_BUDGET, **said.get("budget", {})}
            beside.check(document, said["state"], budget)
            persona = f"{folder}/{PERSONA}" if beside.has_file(PERSONA) else None
            if persona:
                self._check_text(tree, persona)
            self.cards[name] = CardSource(
                id=name,
                place=origin.line(),
                origin=origin,
                file=tree.display(path),
                domain=said["domain"],
                capabilities=frozenset(said.get("capabilities", ())),
                state=said["state"],
                budget=budget,
                size=len(raw),
                pack=pack,
                persona=persona,
                digest=self._reader.digest(tree, persona) if persona else None,
            )

    def _check_text(self, tree: SourceTree, path: str) -> None:
        raw = self._reader.read_bytes(tree, path)
        try:
            read_text(raw or b"", tree.display(path))
        except SourceError as problem:
            self._reader.faults.extend(problem.errors)

    def _claim_name(self, name: str, origin: Origin, path: str) -> bool:
        first: Source | None = self.roles.get(name) or self.cards.get(name)
        if not _NAME.fullmatch(name):
            why = "a role is named with letters, digits, dot, dash, underscore"
            self._reader.refuse("SOURCE_INVALID", why, path)
        elif first:
            why = f'"{name}" is also in {first.place}; an id names one of the roles and agents, rename one of them'
            self._reader.refuse("SOURCE_INVALID", why, origin.place())
        else:
            return True
        return False


def read_persona(root: Folder, catalogue: Catalogue, name: str, card: Mapping[str, Any]) -> str:
    """Return the persona of the chosen agent *name*; *card* is its entry in the charter. Raises `Failed`.

    The file must be the one that the charter was compiled with.
    """
    if card["persona"] is None:
        raise Failed("BINDING_INVALID", f"agent {name!r} has no persona; add {PERSONA} beside its card")
    try:
        folder = catalogue.find("pack", card["pack"]).pack() if card["pack"] else root
        raw = folder.read(card["persona"], limit=MAX_BYTES)
    except (DeedbookError, OSError) as problem:
        raise Failed("BINDING_INVALID", f"the persona of agent {name!r} cannot be read: {problem}") from None
    if canonical.digest(raw) != card["digest"]:
        raise Failed("CHARTER_CHANGED", f"the persona of agent {name!r} changed since the start; start again")
    try:
        return read_text(raw, card["persona"])
    except SourceError as problem:
        raise Failed("SOURCE_INVALID", str(problem)) from None
