"""The registry of a workspace's pipelines: what their files declare for the charter, and every fault with its place.

If any file has a fault, the workspace does not compile, so nothing of it is in force.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, Self

import attrs

from deedbook import Object, Skill
from deedbook.format.errors import DomainError, fault
from deedbook.format.schema import suggest
from deedbook.workspace.declarations import AbilitySource, FeatureSection, PolicySource, SkillSource, Workspace
from deedbook.workspace.documents import Document
from deedbook.workspace.trees import SourceReader, SourceTree
from deedbook_flow_swe.definition import FLOW, PREFIX, Definition
from deedbook_flow_swe.learning.policy_kinds import list_policies, name_policy

from .agent_choice import check_choice, choose_agent, find_query
from .agents import AgentFolder, find_agents, list_cards, read_skills
from .compiler import PipelineCompiler
from .files import CONTRACTS, PIPELINES, PipelineFile, PipelineFiles
from .schema_names import SchemaNames


class PipelineRegistry(FeatureSection):
    """The files of pipelines of a workspace, the *agents* that they name, and the *definitions* by id."""

    def __init__(self, found: PipelineFiles, agents: Mapping[str, AgentFolder], reader: SourceReader) -> None:
        self.files = found.files
        self.agents = agents
        skills = {name: read_skills(agent, reader) for name, agent in agents.items()}
        compiler = PipelineCompiler(found, SchemaNames(found, reader), skills, reader)
        made = {name: compiler.compile(file) for name, file in self.files[PIPELINES].items()}
        self.definitions: dict[str, Definition] = {name: each for name, each in made.items() if each is not None}

    @classmethod
    def read(
        cls, reader: SourceReader, tree: SourceTree, document: Document | None, packs: Sequence[SourceTree]
    ) -> Self:
        """Read all files; faults are reported to *reader*. *document* is ``deedbook.yaml``."""
        found = PipelineFiles(reader)
        found.read(tree, packs)
        _choose_agents(found, tree, document, packs, reader)
        names = frozenset(str(file.front["agent"]) for file in found.files[CONTRACTS].values())
        return cls(found, find_agents(tree, document, packs, names), reader)

    # --- what the files declare ---------------------------------------------------------------------------------------

    def abilities(self) -> Iterator[AbilitySource]:
        """Yield an ability for each pipeline, which may use what its runner and its agents use."""
        for name, definition in self.definitions.items():
            file = self.files[PIPELINES][name]
            yield AbilitySource(
                id=f"{PREFIX}{name}",
                place=file.line,
                origin=file.origin,
                summary=definition.title,
                handler={"flow": FLOW},
                settings=definition.as_settings(),
                uses=frozenset(self._uses_of(definition)),
            )

    def skills(self) -> Iterator[SkillSource]:
        """Yield a skill for each pipeline, which is the scope of its runner; cards narrow it for the agents."""
        for name, definition in self.definitions.items():
            file = self.files[PIPELINES][name]
            skill = Skill(
                name=definition.skill,
                description=f"{definition.title}: what the runner uses",
                body="",
                allowed=frozenset(self._uses_of(definition)),
                source=file.document.path,
            )
            yield SkillSource(id=skill.name, place=file.line, origin=file.origin, skill=skill)

    def policies(self) -> Iterator[PolicySource]:
        """Yield the policies that the runner asks: which routing is in force, and what may be promoted."""
        for name, definition in self.definitions.items():
            file = self.files[PIPELINES][name]
            for kind, settings in list_policies(name, definition.routing):
                policy = name_policy(kind, name)
                yield PolicySource(id=policy, place=file.line, origin=file.origin, kind=kind, settings=settings)

    def _uses_of(self, definition: Definition) -> Iterator[str]:
        yield from definition.abilities.values()
        for contract in definition.phases:
            yield from (rule.command.ability for rule in contract.rules if rule.command is not None)
            yield from self.agents[contract.agent].capabilities if contract.agent in self.agents else ()

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
        """Return the faults of names that other parts of the workspace declare: abilities, policies and agents."""
        used: set[str] = set()
        for file in self.files[PIPELINES].values():
            used.update(file.front["phases"])
            yield from _check_pipeline(file, workspace)
        for name, file in self.files[CONTRACTS].items():
            if name in used:
                yield from _check_agent(file, workspace)
                yield from check_choice(file, workspace)
                yield from _check_commands(file, workspace)


def _choose_agents(
    found: PipelineFiles, tree: SourceTree, document: Document | None, packs: Sequence[SourceTree], reader: SourceReader
) -> None:
    """Choose the agents of the contracts that name none; a contract without an agent is a fault."""
    contracts = found.files[CONTRACTS]
    wanted = {name: query for name, file in contracts.items() if (query := find_query(file)) is not None}
    cards = list_cards(tree, document, packs) if wanted else []
    for name, query in wanted.items():
        file = contracts[name]
        agent, why = choose_agent(query, cards)
        if agent is None:
            reader.refuse("SOURCE_INVALID", f"agent: {why}", file.place("agent"))
            found.faulty.add((CONTRACTS, name))
            del contracts[name]
        else:
            contracts[name] = attrs.evolve(file, agent=agent)


_ASKS: Final = "ask_human"
"""The use of the ability that asks a person."""
_QUESTION: Final = {"tool": "swe-review"}
_HOW_TO_ASK: Final = "handler: {tool: swe-review} and tags: [approval-gate]"


def _check_pipeline(file: PipelineFile, workspace: Workspace) -> Iterator[DomainError]:
    for use, name in file.front["abilities"].items():
        found = workspace.abilities.get(name)
        if found is None:
            more = f" with {_HOW_TO_ASK}" if use == _ASKS else ""
            near = suggest(name, workspace.abilities)
            why = f"{use}: {name} is not declared{near}; declare it{more}, or correct the id"
            yield fault("SOURCE_INVALID", why, place=file.place("abilities", use))
        elif use == _ASKS and found.handler != _QUESTION:
            why = f"{use}: {name} does not ask a person ({found.place}); name an ability with {_HOW_TO_ASK}"
            yield fault("SOURCE_INVALID", why, place=file.place("abilities", use))
    policy = file.front.get("human_triggers")
    if policy is not None and policy not in workspace.policies:
        why = f"human_triggers: {policy} is no policy{suggest(policy, workspace.policies)}; declare it, or correct it"
        yield fault("SOURCE_INVALID", why, place=file.place("human_triggers"))


def _check_agent(file: PipelineFile, workspace: Workspace) -> Iterator[DomainError]:
    name = file.front["agent"]
    if name in workspace.cards:
        if workspace.cards[name].persona is None:
            why = f"agent: {name} has no persona; add persona.md beside its card ({workspace.cards[name].place})"
            yield fault("SOURCE_INVALID", why, place=file.place("agent"))
        return
    why = f"agent: {name} has no card{suggest(name, workspace.cards)}; add agents/{name}/.agent, or correct the name"
    yield fault("SOURCE_INVALID", why, place=file.place("agent"))


def _check_commands(file: PipelineFile, workspace: Workspace) -> Iterator[DomainError]:
    for index, rule in enumerate(file.front.get("validation_rules", ())):
        name = rule.get("command", {}).get("ability")
        if name is not None and name not in workspace.abilities:
            why = f"ability: {name} is not declared{suggest(name, workspace.abilities)}; declare it, or correct the id"
            place = file.place("validation_rules", index, "command", "ability")
            yield fault("SOURCE_INVALID", why, place=place)
