"""The contracts of what brings data: skill loaders and packs."""

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import pytest

from deedbook.format.errors import DeedbookError
from deedbook.plugins.plugins import Offer

from .contract import SUBJECT, Contract, PluginContract, begin, tree
from .lab import Lab


class SkillLoaderContract(PluginContract):
    """The contract of a skill loader.

    *prepare* writes what it reads; *skills* are those that come of it, each with the abilities that it allows. *spoil*
    adds one that is wrong, which has to be named and never skipped.
    """

    kind: ClassVar[str] = "skill"
    skills: Mapping[str, Collection[str]] = {}

    def spoil(self, lab: Lab) -> str:
        """Write a skill that cannot be read, and return what the reason has to name, such as its file."""
        raise NotImplementedError("write a skill that is wrong: what cannot be read must never be skipped in silence")

    def declare(self, lab: Lab, settings: Mapping[str, Any], **more: Any) -> None:
        """Make it the workspace's only loader, beside abilities for the skills to allow."""
        for ability in sorted({name for allowed in self.skills.values() for name in allowed}):
            lab.tool(ability, lambda args, ctx: args)  # noqa: ARG005
        told = {"with": dict(settings)} if settings else {}
        lab.settings(skills={"loaders": [{"loader": SUBJECT, **told}]}, **more)

    def test_loads_its_skills(self, workshop: Callable[..., Lab]) -> None:
        """The charter has exactly these skills, and each allows what it says."""
        assert self.skills, "give at least one skill"
        found = _skills(workshop())
        assert {name: frozenset(skill["allowed"]) for name, skill in found.items()} == {
            name: frozenset(allowed) for name, allowed in self.skills.items()
        }
        bare = [name for name, skill in found.items() if not skill["description"]]
        assert not bare, f"{bare} have no description"

    def test_loads_the_same_again(self, workshop: Callable[..., Lab]) -> None:
        """Two workspaces with the same files have the same skills."""
        assert _skills(workshop()) == _skills(workshop())

    def test_names_a_skill_that_is_wrong(self, workshop: Callable[..., Lab]) -> None:
        """It yields `Failed` with its place: the skill is set aside with the reason, or the workspace does not start.

        It is set aside where the failure has a *source*, the file of this one skill.
        """
        lab = workshop()
        named = self.spoil(lab)
        try:
            begin(lab)
            said = "\n".join(lab.kernel().bindings.charter.set_aside)
        except DeedbookError as refused:
            said = str(refused)
        assert named in said, f"{said or 'nothing is set aside'}: it does not name {named}"

    def test_writes_nothing(self, workshop: Callable[..., Lab]) -> None:
        """Loading leaves the workspace as it was."""
        lab = workshop()
        before = tree(lab.path)
        begin(lab)
        assert tree(lab.path) == before


class PackContract(Contract):
    """The contract of a pack: *brings* names what it adds, such as ``{"policies": ["quiet-hours"]}``."""

    kind: ClassVar[str] = "pack"
    brings: Mapping[str, Collection[str]] = {}

    def test_fits_its_kind(self, offer: Offer) -> None:
        """It is a folder of the distribution's own record, without a line of Python in it."""
        files = offer.pack().all_names()
        assert files, f"{offer} has no files"
        code = [name for name in files if name.endswith((".py", ".pyc", ".so"))]
        assert not code, f"{offer} is data, and has {code}"

    def test_is_never_imported(
        self, offer: Offer, workshop: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A workspace that uses it starts where nothing of its distribution can be imported."""
        package = offer.target.partition(".")[0]
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)
        begin(workshop())

    def declare(self, lab: Lab, settings: Mapping[str, Any], **more: Any) -> None:
        """Put it into force."""
        del settings
        lab.settings(packs=[self.name], **more)

    def test_joins_the_workspace_with_what_it_brings(self, workshop: Callable[..., Lab]) -> None:
        """The charter has what it brings, and the workspace starts."""
        assert self.brings, "say what the pack brings"
        lab = workshop()
        begin(lab)
        document = lab.kernel().bindings.charter.document
        missing = [
            f"{section}: {name}" for section, names in self.brings.items() for name in names
            if name not in document[section]
        ]  # fmt: skip
        assert not missing, f"{self.name} does not bring {missing}"


def _skills(lab: Lab) -> dict[str, Any]:
    begin(lab)
    return dict(lab.kernel().bindings.charter.document["skills"])
