"""Read ``ROUTING.md`` and ``ABILITY.md``: routing documents in Markdown for people and prompts, section by section.

A section is the text under one heading (``#`` to ``######``). A line ``Triggers: a, b`` lists words of prompts that the
section is for. Code such as `` `echo` `` may name an ability; links are recorded, never followed.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import attrs

from deedbook.contract import Object
from deedbook.contract.pointers import join_pointer
from deedbook.format.errors import DeedbookError
from deedbook.workspace.declarations import FeatureSection
from deedbook.workspace.documents import Document
from deedbook.workspace.trees import SourceReader, SourceTree

ROUTING: Final = "ROUTING.md"
ABILITY: Final = "ABILITY.md"

LONGEST: Final = 200
"""How many characters of a heading count."""

_HEADING: Final = re.compile(r" {0,3}#{1,6}[ \t]+")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_TRIGGERS: Final = re.compile(r"[-*\s]*triggers\**:\**(.*)", re.IGNORECASE)
_CODE: Final = re.compile(r"`([^`\n]{1,128})`")
_LINK: Final = re.compile(r"\]\([ \t]?<?([^()\[\]\s<>]{1,4096}+)>?(?:[ \t][^()\[\]\n]*+)?\)")
_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]*:|[/#?]", re.IGNORECASE)
_EMPHASIS: Final = re.compile(r"[`*]")


@attrs.frozen(kw_only=True)
class GuideSource:
    """A section of ``ROUTING.md`` or ``ABILITY.md``: its *title* and *text*, and the *triggers* (words of prompts).

    *names* are code spans and may be abilities; *links* are the linked files of the workspace. A section that *lends*
    passes its triggers to the abilities that it names. *place* is ``file:line``.
    """

    id: str
    title: str
    text: str
    triggers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    lends: bool = False
    place: str = ""


class Guides(FeatureSection):
    """The routing documents of a workspace: their sections by id. Faults are reported to *reader*."""

    def __init__(self, reader: SourceReader) -> None:
        self.sections: dict[str, GuideSource] = {}
        self._reader = reader

    def read(self, tree: SourceTree, folder: str) -> bool:
        """Read the documents in a folder of *tree*; return whether there is one."""
        names = set[str]()
        with suppress(OSError, DeedbookError):  # the section that names the folder reports it
            names = {name for name, _ in tree.folder.kinds(folder)}
        there = [name for name in (ROUTING, ABILITY) if name in names]
        for name in there:
            self._document(tree, f"{folder}/{name}", lends=name == ABILITY)
        return bool(there)

    def read_roots(self, tree: SourceTree, roots: Sequence[str], document: Document | None) -> None:
        """Read the documents in more folders, which ``roots: {routing: […]}`` of *document* lists."""
        for index, root in enumerate(roots):
            if not self.read(tree, root) and document:
                why = f'there is neither {ROUTING} nor {ABILITY} in "{root}"'
                self._reader.refuse("SOURCE_INVALID", why, document.place(join_pointer("roots", "routing", index)))

    def entries(self, abilities: Container[str]) -> Object:
        """Return the charter's entries of sections; a name counts where it is one of the *abilities*."""
        return {
            name: {
                "title": guide.title,
                "text": guide.text,
                "triggers": list(guide.triggers),
                "abilities": [each for each in guide.names if each in abilities],
                "links": list(guide.links),
                "lends": guide.lends,
                "place": guide.place,
            }
            for name, guide in self.sections.items()
        }

    def trigger_names(self) -> Iterator[str]:
        """Yield the names that sections lend their triggers to."""
        for guide in self.sections.values():
            if guide.lends and guide.triggers:
                yield from guide.names

    def links(self) -> Iterator[str]:
        """Yield the files that sections link to."""
        for guide in self.sections.values():
            yield from guide.links

    def _document(self, tree: SourceTree, path: str, *, lends: bool) -> None:
        made = self._reader.read_markdown(tree, path)
        if made is None:
            return
        document, text = made
        if document.value:
            why = "front matter is not read here; put `Triggers: …` into a section"
            self._reader.refuse("SOURCE_INVALID", why, f"{path}:1")
            return
        taken: Counter[str] = Counter()
        for section in _sections(text.splitlines()):
            identity = f"{path}#{_unique_anchor(_anchor(section.title), taken)}"
            body, prose = "\n".join(section.lines).strip(), "\n".join(section.prose)
            if body:
                self.sections[identity] = GuideSource(
                    id=identity,
                    title=_EMPHASIS.sub("", section.title),
                    text=body,
                    triggers=tuple(dict.fromkeys(_triggers(section.prose))),
                    names=tuple(dict.fromkeys(_CODE.findall(f"{section.title}\n{prose}"))),
                    links=tuple(dict.fromkeys(_links(prose, posixpath.dirname(path)))),
                    lends=lends,
                    place=f"{path}:{section.number}",
                )


@attrs.define
class _Section:
    """A heading, its line *number*, the *lines* below it, and the *prose* among them outside fenced code."""

    number: int
    title: str
    lines: list[str] = attrs.field(factory=list)
    prose: list[str] = attrs.field(factory=list)


def _sections(lines: Iterable[str]) -> Iterator[_Section]:
    fence, section = "", _Section(0, "")
    for number, line in enumerate(lines, 1):
        mark, heading = _FENCE.match(line), _HEADING.match(line)
        if heading and not fence:
            if section.title:
                yield section
            section = _Section(number, _title(line[heading.end() :]))
            continue
        section.lines.append(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence:
            section.prose.append(line)
    if section.title:
        yield section


def _title(text: str) -> str:
    """Return the text of a heading without closing marks."""
    text = text.strip(" \t")
    left = text.rstrip("#")
    return (left.rstrip() if not left or left[-1] in " \t" else text)[:LONGEST]


def _unique_anchor(name: str, taken: Counter[str]) -> str:
    """Return *name*, with a number if it is taken, in the way forges number anchors."""
    found = name
    while taken[found]:
        found = f"{name}-{taken[name]}"
        taken[name] += 1
    taken[found] += 1
    return found


def _anchor(title: str) -> str:
    """Return the anchor of a heading, in the form that forges use."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def _triggers(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        said = _TRIGGERS.fullmatch(line)
        if said:
            yield from filter(None, (each.strip().strip('`"*.').strip() for each in said[1].split(",")))


def _links(text: str, folder: str) -> Iterator[str]:
    """Yield the linked files of the workspace, relative to it; other links are left out."""
    for target in _LINK.findall(text):
        path = target.partition("#")[0]
        if path and not _ELSEWHERE.match(target):
            place = posixpath.normpath(posixpath.join(folder, path))
            if place.split("/")[0] not in ("..", "."):
                yield place
