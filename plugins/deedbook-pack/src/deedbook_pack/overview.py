"""The packs in force in a workspace: versions, digests, contents, tests, and what each loosens and tightens."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from deedbook.charter.difference import Difference
from deedbook.format.errors import DeedbookError
from deedbook.format.schema import Schemas, data_folder
from deedbook.kernel import bindings_for_judging
from deedbook.plugins.groups import AGENT_PLUGIN
from deedbook.plugins.plugins import Catalogue
from deedbook.workspace.declarations import PackSource, Workspace
from deedbook.workspace.trees import SourceTree
from deedbook_author import hook_cases, policy_cases
from deedbook_author.pack_effects import pack_effect, pack_entries

_SECTIONS: Final = ("abilities", "hooks", "policies", "skills", "agents")


@attrs.frozen(kw_only=True)
class PackSummary:
    """One pack in force: what it *contains* by section, its number of *rules* and *cases*, and its effect."""

    name: str
    distribution: str
    version: str
    digest: str | None
    place: str
    contains: Mapping[str, tuple[str, ...]]
    rules: int
    cases: int
    effect: Difference

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "digest": self.digest,
            "place": self.place,
            "contains": {section: list(names) for section, names in self.contains.items()},
            "rules": self.rules,
            "cases": self.cases,
            "looser": list(self.effect.looser),
            "tighter": list(self.effect.tighter),
        }


def summarise(workspace: Workspace, catalogue: Catalogue) -> list[PackSummary]:
    """Return the packs of *workspace*, in its order. Raises `DeedbookError` where it does not compile."""
    if not workspace.packs:
        return []
    with bindings_for_judging(workspace, catalogue) as bindings:
        document = bindings.charter.document
    return [_summary(pack, document, catalogue) for pack in workspace.packs.values()]


def _summary(pack: PackSource, document: Mapping[str, Any], catalogue: Catalogue) -> PackSummary:
    offer = catalogue.find("pack", pack.id)
    own = {section: pack_entries(document, section, pack) for section in _SECTIONS}
    return PackSummary(
        name=pack.id,
        distribution=offer.distribution,
        version=offer.version,
        digest=offer.digest,
        place=pack.place,
        contains=own,
        rules=sum(len(document["policies"][name]["rules"]) for name in own["policies"]),
        cases=0 if pack.id.startswith(AGENT_PLUGIN) else _count_cases(pack),
        effect=pack_effect(document, pack),
    )


def _count_cases(pack: PackSource) -> int:
    """Return the number of test cases that can be read; `pack lint` reports the faults of the others."""
    tree = SourceTree(pack.folder, "", pack.label)
    schemas = Schemas.load(data_folder("schemas"))
    return sum(
        _count(tree, path, schemas, read)
        for folder, read in ((policy_cases.FOLDER, policy_cases.read_cases), (hook_cases.FOLDER, hook_cases.read_cases))
        for path in tree.tests(folder)
    )


def _count(tree: SourceTree, path: str, schemas: Schemas, read: Callable[..., list[Any]]) -> int:
    try:
        return len(read(tree, path, schemas))
    except DeedbookError:
        return 0
