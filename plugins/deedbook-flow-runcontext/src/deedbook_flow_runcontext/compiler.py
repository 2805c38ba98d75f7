"""Compile a task into a plan: match skills, check their tools, order their steps, validate.

Nothing runs and nothing is recorded. The result is a ``plan_v2``; a plan that would not be sound raises `PlanRefused`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook import Failed, Object, Skill
from deedbook.format.schema import Schemas, data_folder, suggest

from .findings import Finding, errors, quote_names
from .hashing import SIMILARITY, HashingMatcher
from .keywords import KeywordIndex
from .matching import Match, Matcher
from .plans import RISKS, VERSION, is_approval, iterate_dependencies
from .skill_catalogue import SkillCatalogue, SkillEntry
from .step_graph import BEHIND_A_CYCLE, StepGraph
from .validation import validate_plan

NO_SKILL: Final = "NO_SKILL"
"""The code if no skill fits the task, or none that does can be used."""
PLAN_REFUSED: Final = "PLAN_REFUSED"
"""The code if the plan is not sound."""
MATCHERS: Final = ("keyword", "hashing")
SETTINGS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "matcher": {
            "enum": list(MATCHERS),
            "default": "keyword",
            "description": "How skills are found: by names and triggers, or also by similar spelling.",
        },
        "similarity": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "default": SIMILARITY,
            "description": "For the matcher hashing: the least similarity of a skill to the task.",
        },
        "meta_skill": {
            "type": "string",
            "minLength": 1,
            "description": "A skill that every plan begins with.",
        },
    }
)
"""The properties of a flow's settings that `CompilerSettings` is made of."""

_SHOWN: Final = 5


@attrs.frozen
class CompilerSettings:
    """The settings of a compiler; see `SETTINGS`."""

    matcher: str = "keyword"
    similarity: float = SIMILARITY
    meta_skill: str | None = None


class PlanRefused(Failed):
    """There is no plan, or none that is sound: *findings* say why; *included* and *excluded* are the skills."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        findings: Sequence[Finding] = (),
        included: Sequence[Object] = (),
        excluded: Sequence[Object] = (),
    ) -> None:
        super().__init__(code, message)
        self.findings, self.included, self.excluded = tuple(findings), tuple(included), tuple(excluded)


class SkillCompiler:
    """Compiles tasks with the skills of a *catalogue*. The index of the matcher is built once."""

    def __init__(
        self,
        catalogue: SkillCatalogue,
        settings: CompilerSettings = CompilerSettings(),
        matcher: Matcher | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._matcher = matcher or build_matcher(settings, catalogue.skills.values())

    def compile(self, task: str) -> dict[str, Any]:
        """Return the plan for *task*; raises `PlanRefused`."""
        matches = self._matcher.match(task)
        selection = _Selection(self._catalogue, matches, self._settings.meta_skill)
        excluded = selection.describe_excluded()
        self._refuse_without_skill(selection, matches, excluded)
        entries = selection.order()
        steps, own = _build_steps(entries, self._catalogue, self._settings.meta_skill)
        included = [
            {
                "name": entry.skill.name,
                "reason": selection.reasons[entry.skill.name],
                "requires": list(entry.requires),
                "steps": own[entry.skill.name],
            }
            for entry in entries
        ]
        plan = _build_plan(steps, included, excluded)
        findings = _check(plan, self._catalogue, entries)
        refusing = errors(findings)
        if refusing:
            why = "; ".join(each.message for each in refusing[:_SHOWN])
            more = f"; and {len(refusing) - _SHOWN} more" if len(refusing) > _SHOWN else ""
            raise PlanRefused(PLAN_REFUSED, f"{why}{more}", findings=findings, included=included, excluded=excluded)
        plan["risks"] = [each.message for each in findings]
        return plan

    def _refuse_without_skill(
        self, selection: "_Selection", matches: Sequence[Match], excluded: Sequence[Object]
    ) -> None:
        reasons = {each["name"]: each["reason"] for each in excluded}
        meta = self._settings.meta_skill
        if meta is not None and meta in reasons:
            why = f'the meta-skill "{meta}" cannot be used: {reasons[meta]}'
            raise PlanRefused(PLAN_REFUSED, why, excluded=excluded)
        if not matches:
            why = "no skill fits the task; name one, or use one of its triggers (deedbook skills lists them)"
            raise PlanRefused(NO_SKILL, why)
        if not any(selection.usable(match.name) for match in matches):
            told = "; ".join(f'"{match.name}": {reasons[match.name]}' for match in matches[:_SHOWN])
            raise PlanRefused(NO_SKILL, f"no skill that fits the task can be used: {told}", excluded=excluded)


def build_matcher(settings: CompilerSettings, skills: Iterable[Skill]) -> Matcher:
    """Return the matcher that the settings name; raises `Failed` for an unknown name."""
    makers: Mapping[str, Callable[[], Matcher]] = {
        "keyword": lambda: KeywordIndex(skills),
        "hashing": lambda: HashingMatcher(skills, settings.similarity),
    }
    if settings.matcher not in makers:
        why = f'there is no matcher "{settings.matcher}"; use {quote_names(MATCHERS)}'
        raise Failed("BINDING_INVALID", why)
    return makers[settings.matcher]()


# --- which skills -----------------------------------------------------------------------------------------------------


class _Selection:
    """The skills that match, with all that they require; *reasons* says why each is considered."""

    def __init__(self, catalogue: SkillCatalogue, matches: Sequence[Match], meta: str | None) -> None:
        self.reasons = {} if meta is None else {meta: "configured as the meta-skill"}
        for match in matches:
            self.reasons.setdefault(match.name, match.reason)
        self._roots = tuple(self.reasons)
        self._entries: dict[str, SkillEntry | None] = {}
        required_by: dict[str, list[str]] = {}
        waiting = list(self._roots)
        for name in waiting:  # grows while it is read
            entry = self._entries[name] = catalogue.find(name)
            for required in entry.requires if entry else ():
                required_by.setdefault(required, []).append(name)
                if required not in self.reasons:
                    self.reasons[required] = f'required by "{name}"'
                    waiting.append(required)
        causes = {name: (name, why) for name in self._entries if (why := self._obstacle(name, catalogue))}
        self._excluded = {name: why for name, (_, why) in causes.items()}
        spreading = [*causes]
        for name in spreading:  # grows while it is read
            for dependent in required_by.get(name, ()):
                if dependent not in causes:
                    origin, why = causes[dependent] = causes[name]
                    self._excluded[dependent] = f'it requires "{origin}", which cannot be used: {why}'
                    spreading.append(dependent)

    def usable(self, name: str) -> bool:
        """Return whether a considered skill can be used."""
        return name not in self._excluded

    def describe_excluded(self) -> list[dict[str, Any]]:
        """Return the considered skills that cannot be used, as a plan has them."""
        return [
            {"name": name, "reason": self._excluded[name], "missing_tools": list(entry.missing if entry else ())}
            for name, entry in self._entries.items()
            if name in self._excluded
        ]

    def order(self) -> list[SkillEntry]:
        """Return the usable matches and what they require, each after what it requires unless there is a circle."""
        made: dict[str, SkillEntry] = {}
        seen: set[str] = set()
        for root in filter(self.usable, self._roots):
            stack = [(root, False)]
            while stack:
                name, is_done = stack.pop()
                entry = self._entries[name]
                if entry is None or (name in seen and not is_done):
                    continue
                if is_done:
                    made[name] = entry
                    continue
                seen.add(name)
                stack.append((name, True))
                stack += [(required, False) for required in reversed(entry.requires)]
        return list(made.values())

    def _obstacle(self, name: str, catalogue: SkillCatalogue) -> str:
        """Return why a skill itself cannot be used; empty if it can."""
        entry = self._entries[name]
        if entry is None:
            return f"there is no skill of this name{suggest(name, catalogue.skills)}"
        if entry.missing:
            told = [f'"{tool}" ({why})' for tool, why in entry.missing.items()]
            more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
            return f"tools are missing: {', '.join(told[:_SHOWN])}{more}"
        return entry.problem


# --- their steps ------------------------------------------------------------------------------------------------------


def _build_steps(
    entries: Sequence[SkillEntry], catalogue: SkillCatalogue, meta: str | None
) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Return the steps of all skills, and the ids of each skill's own.

    The first steps of a skill depend on the last ones of the skills that it requires, and on those of the meta-skill.
    """
    firsts = _skills_before(entries, meta)
    steps: list[dict[str, Any]] = []
    own: dict[str, list[str]] = {}
    last: dict[str, list[str]] = {}
    for entry in entries:
        made = list(_flatten(entry, catalogue))
        name = entry.skill.name
        steps += made
        own[name] = [step["id"] for step in made]
        taken = {each for step in made for each in step["depends_on"]}
        last[name] = [each for each in own[name] if each not in taken]
    by_id = {step["id"]: step for step in steps}
    for entry in entries:
        name = entry.skill.name
        before = (*entry.requires, *([meta] if meta is not None and name not in firsts else []))
        earlier = [each for required in dict.fromkeys(before) for each in last[required]]
        for step in (by_id[each] for each in own[name]):
            if not step["depends_on"]:
                step["depends_on"] = [*earlier]
    return steps, own


def _skills_before(entries: Sequence[SkillEntry], meta: str | None) -> set[str]:
    """Return the meta-skill and all that it requires: these do not wait for it."""
    requires = {entry.skill.name: entry.requires for entry in entries}
    found = [] if meta is None else [meta]
    for name in found:  # grows while it is read
        found += [each for each in requires.get(name, ()) if each not in found]
    return {*found}


def _flatten(entry: SkillEntry, catalogue: SkillCatalogue) -> Iterator[dict[str, Any]]:
    """Yield the steps of a skill, with ids that are unique in the plan, and the risky tags of their abilities."""
    skill = entry.skill
    if not entry.steps:
        risks = frozenset[str]().union(*(catalogue.abilities[name].risks for name in entry.abilities))
        step = {"id": skill.name, "description": skill.description, "skill": skill.name, "depends_on": []}
        yield step | _tags(risks)
    for each in entry.steps:
        facts = catalogue.abilities.get(each.get("ability", ""))
        inputs = {
            argument: {**source, "step": f"{skill.name}/{source['step']}"}
            for argument, source in each.get("inputs", {}).items()
        }
        yield {
            **each,
            "id": f"{skill.name}/{each['id']}",
            **({"inputs": inputs} if inputs else {}),
            **({} if "ability" in each or is_approval(each) else {"skill": skill.name}),
            "depends_on": [f"{skill.name}/{one}" for one in dict.fromkeys(iterate_dependencies(each))],
            **_tags({*each.get("tags", ()), *(facts.risks if facts else ())}),
        }


def _tags(tags: Iterable[str]) -> dict[str, list[str]]:
    """Return the member ``tags``, in a fixed order; empty without any."""
    found = sorted(tags, key=lambda tag: (tag not in RISKS, tag))
    return {"tags": found} if found else {}


# --- the plan ---------------------------------------------------------------------------------------------------------


def _build_plan(
    steps: list[dict[str, Any]], included: list[dict[str, Any]], excluded: list[dict[str, Any]]
) -> dict[str, Any]:
    graph = StepGraph.of(steps)
    groups = graph.groups
    ordered = {"order": [name for group in groups for name in group], "parallel_groups": groups}
    return {
        "steps": steps,
        "risks": [],
        "needs_advisor": False,
        "needs_scaffolder": False,
        "skills_included": included,
        "skills_excluded": excluded,
        **(ordered if BEHIND_A_CYCLE not in graph.group_of else {}),
        "schema_version": VERSION,
    }


def _check(plan: Object, catalogue: SkillCatalogue, entries: Sequence[SkillEntry]) -> tuple[Finding, ...]:
    """Return the findings about a compiled plan: its schema first."""
    violations = Schemas.load(data_folder("schemas")).interpreted("plan_v2").violations(plan)
    if violations:
        return tuple(Finding("plan_v2", f"the plan does not fit plan_v2: {each}") for each in violations)
    return validate_plan(plan, catalogue.registry(entries))
