"""Personas: Markdown files in the form of a skill. Each becomes a skill of the charter.

The loader of skills reads the front matter, so that a persona means what the same skill would mean. A skill's name has
no slash, so the persona ``reviewer/security`` is the skill ``reviewer-security``.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook import Failed, Skill
from deedbook.charter.grants import resolve_grants
from deedbook.contract.pointers import join_pointer
from deedbook.format.errors import DomainError, fault
from deedbook.workspace.declarations import SkillSource, Workspace
from deedbook.workspace.trees import SourceReader
from deedbook_flow_workflow.definition import Persona
from deedbook_policy_standard.write_paths import table_problems
from deedbook_skill_markdown.frontmatter import read
from deedbook_skill_markdown.skill import Faults, skill

from .files import WorkflowFile

MAX_GLOBS: Final = 100
_WRITES: Final = ("metadata", "deedbook", "writes")
_TOOLS: Final = "allowed-tools"


def skill_name(persona: str) -> str:
    """Return the name of the skill that a persona ``ROLE/ID`` becomes."""
    return persona.replace("/", "-")


@attrs.frozen
class PersonaSource:
    """A persona: its file, its skill, and what a compiled cycle holds of it."""

    file: WorkflowFile
    skill: Skill
    persona: Persona

    @property
    def source(self) -> SkillSource:
        """The declaration of the skill."""
        return SkillSource(id=self.skill.name, place=self.file.line, origin=self.file.origin, skill=self.skill)

    @property
    def write_limits(self) -> dict[str, Any]:
        """The row of the persona in the table of a policy of the kind ``role-permissions``."""
        return {"writes": list(self.persona.writes), "place": self.file.document.line(join_pointer(*_WRITES))}

    def problems(self, workspace: Workspace) -> Iterator[DomainError]:
        """Yield a fault for each name in ``allowed-tools`` that grants nothing in *workspace*."""
        unresolved = resolve_grants(self.skill.allowed, workspace.aliases, workspace.abilities).unresolved
        for name, why in unresolved.items():
            message = f"{_TOOLS}: {name}: {why}; a persona may ask only for tools that there are"
            yield fault("SOURCE_INVALID", message, place=self._place_of_tool(name))

    def _place_of_tool(self, name: str) -> str:
        said = self.file.front[_TOOLS]
        if isinstance(said, list):
            return self.file.place(_TOOLS, said.index(name))
        return self.file.document.within(join_pointer(_TOOLS), said.index(name))


def read_personas(files: Mapping[str, WorkflowFile], reader: SourceReader) -> dict[str, PersonaSource]:
    """Return the personas in *files* by ``ROLE/ID``; what is wrong with one is a fault of *reader*."""
    made = {}
    for name, file in files.items():
        found = _read_skill(file, reader)
        writes, is_sound = _read_writes(file, reader)
        if found is not None and is_sound:
            role, _, own = name.partition("/")
            named = attrs.evolve(found, name=skill_name(name))
            limits = writes is not None
            persona = Persona(role=role, id=own, writes=writes or (), place=file.line, limits_writes=limits)
            made[name] = PersonaSource(file, named, persona)
    return made


def _read_skill(file: WorkflowFile, reader: SourceReader) -> Skill | None:
    try:
        front, body = read(file.raw, file.document.path)
        values = {key: value for key, value in front.values.items() if key != "overrides"}
        return skill(attrs.evolve(front, values=values), body, file.id.rpartition("/")[2])
    except Faults as problem:
        found = problem.found
    except Failed as problem:
        found = [problem]
    reader.faults.extend(_as_fault(file, each) for each in found)
    return None


def _as_fault(file: WorkflowFile, problem: Failed) -> DomainError:
    """Return a fault of the loader, whose message begins with its place."""
    line, column, why = str(problem).removeprefix(f"{file.document.path}:").split(":", 2)
    return fault(problem.code, why.strip(), place=f"{file.document.path}:{line}:{column}")


def _read_writes(file: WorkflowFile, reader: SourceReader) -> tuple[tuple[str, ...] | None, bool]:
    """Return the globs of the paths that a persona writes, ``None`` if it names none, and whether they are valid."""
    said: Any = file.front
    for key in _WRITES:
        said = said.get(key) if isinstance(said, dict) else None
    if said is None:
        return None, True
    if not isinstance(said, list) or len(said) > MAX_GLOBS or not all(isinstance(each, str) for each in said):
        why = f"writes: expected a list of at most {MAX_GLOBS} globs of paths, such as docs/**"
        reader.refuse("SOURCE_INVALID", why, file.place(*_WRITES))
        return None, False
    for index, glob in enumerate(said):
        why = _describe_flaw(glob)
        if why:
            reader.refuse("SOURCE_INVALID", f"writes: {why}", file.place(*_WRITES, index))
            return None, False
    return tuple(said), True


def _describe_flaw(glob: str) -> str:
    """Return what is wrong with a glob of paths; empty if nothing is."""
    if not glob or glob.startswith("/") or ".." in glob.split("/"):
        return f"{glob[:80]!r} leads outside the workspace; write a relative glob, such as docs/**"
    return next((each.message for each in table_problems({"persona": {"writes": [glob]}})), "")
