"""What each pack of a charter loosens and tightens; pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from deedbook.charter.changes import compare
from deedbook.charter.difference import Difference
from deedbook.policy.conditions import as_list
from deedbook.policy.fitting import named_tags
from deedbook.policy.gates import ASKING
from deedbook.policy.kinds import KINDS
from deedbook.workspace.declarations import PackSource
from deedbook_author.policy_coverage import find_unguarded

Entry: TypeAlias = Mapping[str, Any]

_SECTIONS: Final = ("abilities", "hooks", "policies", "skills", "agents")


def pack_effect(document: Entry, pack: PackSource) -> Difference:
    """Return how a charter's *document* differs from the same charter without the entries of *pack*."""
    own = {section: pack_entries(document, section, pack) for section in _SECTIONS}
    without = {
        section: {name: entry for name, entry in document.get(section, {}).items() if name not in own[section]}
        for section in _SECTIONS
    }
    found = compare({**document, **without}, document)
    decided = list(_list_covered({**document, **without}, document))
    lifted = [why for name in own["policies"] for why in _list_loosened(name, document["policies"][name])]
    refused = [why for name in own["policies"] for why in _list_refused(name, document["policies"][name])]
    return attrs.evolve(found, looser=(*found.looser, *decided, *lifted), other=(*found.other, *refused))


def pack_entries(document: Entry, section: str, pack: PackSource) -> tuple[str, ...]:
    """Return the names of the entries of a charter's section that stand in *pack*."""
    entries: Entry = document.get(section, {})
    return tuple(sorted(name for name, entry in entries.items() if _place(entry).startswith(f"{pack.label}: ")))


def _place(entry: Entry) -> str:
    return str(entry.get("place") or entry.get("source", ""))


def _list_covered(without: Entry, document: Entry) -> Iterator[str]:
    """Yield the abilities about which only policies of the pack decide; without it, their calls are not allowed."""
    left = {each.name for each in find_unguarded(document)}
    for each in find_unguarded(without):
        if each.outcome != "allow" and each.name not in left:
            effects = document["abilities"][each.name]["effects"]
            yield f"only its policies decide about {each.name}, whose effects are {effects}"


def _list_loosened(name: str, entry: Entry) -> Iterator[str]:
    """Yield what a policy may loosen, of the tags and kinds that it names."""
    for what in _list_tags_and_kinds(entry):
        if what in entry["loosens"]:
            yield f"policy {name} may {_describe(what)}"


def _list_refused(name: str, entry: Entry) -> Iterator[str]:
    """Yield what a policy names and may not loosen."""
    for what in _list_tags_and_kinds(entry):
        if what not in entry["loosens"]:
            yield f"policy {name} may not {_describe(what)}; to let it, add may_loosen: [{what}] to its pack"


def _list_tags_and_kinds(entry: Entry) -> list[str]:
    tags, kinds = named_tags(entry), as_list((entry["match"] or {}).get("kind", ()))
    return [tag for tag in ASKING if tag in tags] + [
        kind for kind in sorted(KINDS) if KINDS[kind].needs_policy and kind in kinds
    ]


def _describe(what: str) -> str:
    return f"allow calls of kind {what}" if what in KINDS else f"lift the question of the tag {what}"
