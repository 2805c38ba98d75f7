"""The registry of a workspace's workflow files: what they declare for the charter, and every fault with its place.

Only what is in a file is known: an id that no file has is refused. If any file has a fault, the workspace does not
compile, so nothing of it is in force.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

import attrs

from deedbook import Object
from deedbook.format.errors import DomainError, fault
from deedbook.format.schema import suggest
from deedbook.workspace.declarations import (
    AbilitySource,
    FeatureSection,
    PolicySource,
    SkillSource,
    Workspace,
)
from deedbook.workspace.trees import SourceReader, SourceTree
from deedbook_flow_workflow.definition import FLOW, PREFIX, REVIEW, WRITE, WRITER, Definition

from .cycles import CycleCompiler
from .files import ARTIFACTS, CYCLES, PERSONAS, PHASES, POLICIES, Library, WorkflowFile
from .personas import PersonaSource, read_personas

WRITES: Final = "persona-writes"
"""The policy that limits personas to the paths that they say they write."""

_HEAD: Final = ("schema_version", "id", "title", "overrides", "kind", "match")
"""The keys of a policy that are not settings of its kind."""


class WorkflowRegistry(FeatureSection):
    """The workflow files of a workspace, and the *definitions* of its cycles by id."""

    def __init__(self, library: Library, personas: Mapping[str, PersonaSource], reader: SourceReader) -> None:
        self.files = library.files
        self.personas = personas
        compiler = CycleCompiler(library, personas, reader)
        made = {name: compiler.compile(file) for name, file in self.files[CYCLES].items()}
        self.definitions: dict[str, Definition] = {name: found for name, found in made.items() if found}

    @classmethod
    def read(cls, reader: SourceReader, tree: SourceTree, roots: Sequence[str], packs: Sequence[SourceTree]) -> Self:
        """Read all workflow files; faults are reported to *reader*."""
        library = Library(reader)
        library.read(tree, roots, packs)
        return cls(library, read_personas(library.files[PERSONAS], reader), reader)

    # --- what the files declare ---------------------------------------------------------------------------------------

    def abilities(self) -> Iterator[AbilitySource]:
        """Yield an ability for each cycle: a flow that may use the flows of its phases and nothing else."""
        for name, definition in self.definitions.items():
            file = self.files[CYCLES][name]
            yield AbilitySource(
                id=f"{PREFIX}{name}",
                place=file.line,
                origin=file.origin,
                summary=definition.cycle.title,
                handler={"flow": FLOW},
                settings=definition.as_settings(),
                uses=_flows_of(definition),
            )
        writing = next((file for name, file in self.files[ARTIFACTS].items() if self._is_written(name)), None)
        if writing is not None:
            yield AbilitySource(
                id=WRITER,
                place=writing.line,
                origin=writing.origin,
                summary="Write the file of an artifact",
                handler={"flow": WRITER},
            )

    def _is_written(self, artifact: str) -> bool:
        return any(artifact in definition.artifacts for definition in self.definitions.values())

    def policies(self) -> Iterator[PolicySource]:
        """Yield the policies in Markdown, and the one that limits personas to the paths that they say they write."""
        for name, file in self.files[POLICIES].items():
            said: Any = file.front
            yield PolicySource(
                id=name,
                place=file.line,
                origin=file.origin,
                kind=said["kind"],
                match=said.get("match"),
                settings={key: value for key, value in said.items() if key not in _HEAD},
            )
        yield from self._write_limits()

    def _write_limits(self) -> Iterator[PolicySource]:
        limited = [persona for persona in self.personas.values() if persona.persona.limits_writes]
        if limited:
            first = min(limited, key=lambda persona: persona.file.origin.packed).file
            yield PolicySource(
                id=WRITES,
                place=first.line,
                origin=attrs.evolve(first.origin, packed=False),  # no pack declares it: it is for all personas here
                kind="role-permissions",
                match={"kind": ["tool", "memory"], "effects": ["write", "irreversible"]},
                settings={
                    "rules": [],
                    "personas": {persona.skill.name: persona.write_limits for persona in limited},
                    "only_listed": True,
                },
            )

    def skills(self) -> Iterator[SkillSource]:
        """Yield a skill for each persona."""
        return (persona.source for persona in self.personas.values())

    def entries(self, abilities: Container[str]) -> Object:  # noqa: ARG002 - the section's contract
        """Return an entry for each file, by axis and id: its place and digest, and the pack that it overrides."""
        return {
            f"{axis}/{name}": {
                "place": file.line,
                "digest": file.document.digest,
                **({} if file.overrides is None else {"overrides": file.overrides}),
            }
            for axis, files in self.files.items()
            for name, file in files.items()
        }

    # --- what only the whole workspace shows --------------------------------------------------------------------------

    def problems(self, workspace: Workspace) -> Iterable[DomainError]:
        """Return the faults of names that other parts of the workspace declare: flows, policies and tools."""
        handlers = {ability.id: ability.handler.get("flow") for ability in workspace.abilities.values()}
        for file in self.files[PHASES].values():
            yield from _check_flow(file, handlers)
            yield from self._check_writing(file, workspace)
        for axis in (CYCLES, PHASES):
            for file in self.files[axis].values():
                yield from self._check_policies(file, workspace)
        for persona in self.personas.values():
            yield from persona.problems(workspace)

    def _check_writing(self, file: WorkflowFile, workspace: Workspace) -> Iterator[DomainError]:
        """Yield a fault for an artifact in a workspace without the ability that writes files."""
        name = file.front.get("artifact")
        if name is not None and self._is_written(name) and WRITE not in workspace.abilities:
            why = f"artifact: {name} is written with the ability {WRITE}, which is not declared"
            hint = f"declare an ability {WRITE} with handler: {{tool: file-write}}"
            yield fault("SOURCE_INVALID", f"{why}; {hint}", place=file.place("artifact"))

    def _check_policies(self, file: WorkflowFile, workspace: Workspace) -> Iterator[DomainError]:
        for index, name in enumerate(file.front.get("policies", ())):
            if name not in workspace.policies:
                why = f"policies: {name} is not declared{suggest(name, workspace.policies)}"
                yield fault("SOURCE_INVALID", why, place=file.place("policies", index))


def _check_flow(file: WorkflowFile, handlers: Mapping[str, str | None]) -> Iterator[DomainError]:
    """Yield a fault if a phase cannot run its flow; *handlers* has the flow of each ability, ``None`` without one."""
    name = file.front.get("flow", REVIEW)
    handler = handlers.get(name)
    if handler not in (None, FLOW, WRITER):
        return
    if handler is not None:
        why = f"flow: {name} is of workflows itself; a phase runs another flow, such as {REVIEW}"
    elif name in handlers:
        why = f"flow: {name} is no flow; name an ability with handler: {{flow: …}}"
    else:
        flows = [each for each, handler in handlers.items() if handler not in (None, FLOW, WRITER)]
        why = f"flow: {name} is not declared{suggest(name, flows)}; declare an ability with handler: {{flow: …}}"
    yield fault("SOURCE_INVALID", why, place=file.place("flow") if "flow" in file.front else file.place("id"))


def _flows_of(definition: Definition) -> frozenset[str]:
    """Return the flows that a cycle may use: those of its phases, and the one that writes artifacts."""
    flows = {phase.flow for phase in definition.phases.values()}
    return frozenset(flows | {WRITER} if definition.artifacts else flows)
