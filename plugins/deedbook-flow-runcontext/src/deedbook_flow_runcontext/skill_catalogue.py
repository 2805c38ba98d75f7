"""The skills and abilities that a plan can be compiled from: what is available, what is missing, what requires what.

A skill says in its front matter which skills it requires, and can list its steps::

    metadata:
      requires: [inventory]             # or a text with commas
      deedbook:
        steps:
          - {id: find, ability: file-find, description: Find the files, args: {pattern: "*.txt"}}
          - id: count
            description: Count their lines
            ability: file-count
            inputs: {paths: {step: find, pointer: /paths}}

Ids of these steps hold inside the skill. A skill without steps is one step, which a worker does under the skill.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from deedbook import Object, Run, Skill
from deedbook.format.schema import Schemas, data_folder

from .findings import quote_names
from .plans import VERSION, AbilityFacts, Registry

_NAME: Final = re.compile(r"[^\s,]+")
_SCHEMA: Final = "plan_v2"


@attrs.frozen
class SkillEntry:
    """A skill of the catalogue.

    *abilities* has the ids that it may use, whole or for some commands, *requires* the names of the skills before it,
    *steps* those that it lists, *missing* the names in its ``allowed-tools`` that no available ability has, each with
    the reason. *problem* is why it cannot be used otherwise; empty if it can.
    """

    skill: Skill
    abilities: frozenset[str] = frozenset()
    requires: tuple[str, ...] = ()
    steps: tuple[Object, ...] = ()
    missing: Mapping[str, str] = attrs.field(factory=dict)
    problem: str = ""


@attrs.frozen(eq=False)
class SkillCatalogue:
    """The skills by name, and the *abilities* that are available.

    *commands* has, by skill, the abilities of which it may use some commands only, and *missing* the names in its
    ``allowed-tools`` that grant nothing, with reasons.
    """

    skills: Mapping[str, Skill]
    abilities: Mapping[str, AbilityFacts]
    commands: Mapping[str, frozenset[str]] = attrs.field(factory=dict)
    missing: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)

    @classmethod
    def of(cls, skills: Iterable[Skill], abilities: Mapping[str, AbilityFacts]) -> "SkillCatalogue":
        """Return the catalogue of *skills* whose allowed names are ids of *abilities*."""
        return cls({skill.name: skill for skill in skills}, abilities)

    @classmethod
    def from_charter(cls, document: Object, skills: Mapping[str, Skill]) -> "SkillCatalogue":
        """Return the catalogue of a charter's *document* and its bound *skills*.

        The tools of MCP servers are abilities of the charter. Models are not abilities that a plan can use.
        """
        abilities = {
            name: AbilityFacts(entry["effects"], frozenset(entry["tags"]))
            for name, entry in document["abilities"].items()
            if entry["kind"] != "model"
        }
        entries = document["skills"]
        return cls(
            skills,
            abilities,
            {name: frozenset(entry["commands"]) for name, entry in entries.items() if "commands" in entry},
            {name: entry["without"] for name, entry in entries.items() if "without" in entry},
        )

    @classmethod
    def from_run(cls, run: Run) -> "SkillCatalogue":
        """Return the catalogue of a *run*: all skills of the charter, and the abilities in scope."""
        skills = run.skills()
        return cls(
            {each.skill.name: each.skill for each in skills},
            {each.id: AbilityFacts(each.effects, each.tags) for each in run.abilities()},
            {each.skill.name: each.limited for each in skills if each.limited},
            {each.skill.name: each.missing for each in skills if each.missing},
        )

    def restrict(self, abilities: Iterable[str]) -> "SkillCatalogue":
        """Return the catalogue with only these abilities available, as the scope of a run allows them."""
        allowed = {*abilities}
        return attrs.evolve(self, abilities={name: facts for name, facts in self.abilities.items() if name in allowed})

    def find(self, name: str) -> SkillEntry | None:
        """Return a skill with what it needs; ``None`` if there is none of that name."""
        skill = self.skills.get(name)
        if skill is None:
            return None
        granted = skill.allowed | self.commands.get(name, frozenset())
        gone = dict.fromkeys(sorted(granted - self.abilities.keys()), "it is not available")
        missing = {**self.missing.get(name, {}), **gone}
        try:
            requires, steps = read_requires(skill), read_steps(skill)
        except ValueError as malformed:
            return SkillEntry(skill, granted, missing=missing, problem=str(malformed))
        used = {step["ability"] for step in steps if "ability" in step}
        beyond = sorted(used - granted)
        problem = f"its steps use {quote_names(beyond)}, which is not in its allowed-tools" if beyond else ""
        return SkillEntry(skill, granted, requires, steps, missing, problem)

    def registry(self, entries: Iterable[SkillEntry]) -> Registry:
        """Return what a plan of these skills can use."""
        return Registry(self.abilities, {entry.skill.name: entry.requires for entry in entries})


def read_requires(skill: Skill) -> tuple[str, ...]:
    """Return the names in ``metadata.requires`` of a skill, each once; raises `ValueError` for another form."""
    value = skill.metadata.get("requires", [])
    names = _NAME.findall(value) if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError("its metadata.requires is neither a list of names nor a text with commas")
    return tuple(dict.fromkeys(names))


def read_steps(skill: Skill) -> tuple[Object, ...]:
    """Return the steps in ``metadata.deedbook.steps`` of a skill; raises `ValueError` if they fit no ``plan_v2``."""
    own = skill.metadata.get("deedbook")
    if not isinstance(own, Mapping) or "steps" not in own:
        return ()
    plan: dict[str, Any] = {"steps": own["steps"], "risks": [], "needs_advisor": False, "schema_version": VERSION}
    violations = Schemas.load(data_folder("schemas")).interpreted(_SCHEMA).violations(plan)
    if violations:
        raise ValueError(f"its metadata.deedbook{violations[0].path[1:]} {violations[0].message}")
    if any("skill" in step for step in plan["steps"]):
        raise ValueError("a step in its metadata.deedbook.steps names a skill; use metadata.requires")
    return tuple(plan["steps"])
