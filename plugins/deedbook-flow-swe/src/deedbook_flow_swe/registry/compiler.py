"""Compile a pipeline: resolve the names in its files, check its contracts together, and make one definition."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook import Object
from deedbook.format.schema import suggest
from deedbook.policy.conditions import normal_path
from deedbook.workspace.trees import SourceReader
from deedbook_flow_swe.contract import PASS_ON, Contract, Input
from deedbook_flow_swe.definition import TASK_SCHEMA, AgentSkill, Definition, Units, find_unit_schema, unit_keys
from deedbook_flow_swe.globs import covers
from deedbook_flow_swe.learning.routing import find_faults

from .contract_check import check_contract, check_neighbours
from .contracts import read_contract
from .fault_list import FaultList
from .files import CONTRACTS, PIPELINES, ROUTING, PipelineFile, PipelineFiles
from .path_check import check_paths
from .produced import Produced, find_overlapping, produced_by, runner_files
from .rule_check import RuleCheck
from .schema_names import SchemaNames

ESCALATE_AFTER: Final = 3
"""How many rollbacks on the same issue go to a person, if the pipeline does not say."""
MOST_ESCALATIONS: Final = 10
"""How many times one task may ask a person, if the pipeline does not say."""
_ANY_UNIT: Final[Object] = {}


class PipelineCompiler:
    """Compiles pipelines; *skills* are those of each agent."""

    def __init__(
        self, found: PipelineFiles, schemas: SchemaNames, skills: Mapping[str, tuple[AgentSkill, ...]],
        reader: SourceReader,
    ) -> None:  # fmt: skip
        self._files = found.files
        self._faulty = found.faulty
        self._schemas = schemas
        self._skills = skills
        self._faults = FaultList(reader)

    def compile(self, pipeline: PipelineFile) -> Definition | None:
        """Return the definition of a pipeline, or ``None`` where it has a fault."""
        before, said = self._faults.count, pipeline.front
        self._check_data(pipeline)
        self._check_units(pipeline)
        self._check_routing(pipeline)
        found = {name: self._files[CONTRACTS].get(name) for name in said["phases"]}
        for index, name in enumerate(said["phases"]):
            self._check_phase(pipeline, index, name)
        files = {name: file for name, file in found.items() if file is not None}
        contracts = self._check_each(pipeline, files)
        sound = self._faults.count == before and len(files) == len(found) and not self._faulty
        return self._definition(pipeline, contracts) if sound else None

    # --- the pipeline itself ------------------------------------------------------------------------------------------

    def _check_data(self, pipeline: PipelineFile) -> None:
        data = pipeline.front.get("data", ".")
        if data != "." and (normal_path(data) != data or "*" in data or "{" in data):
            why = f"data: {data} is no plain folder below the workspace; write a relative path without .. and globs"
            self._faults.refuse(why, pipeline.place("data"))

    def _check_phase(self, pipeline: PipelineFile, index: int, name: str) -> None:
        contracts = self._files[CONTRACTS]
        if name not in contracts and (CONTRACTS, name) not in self._faulty:
            why = f"phases: {name} has no contract{suggest(name, contracts)}; correct it, or add contracts/{name}.yaml"
            self._faults.refuse(why, pipeline.place("phases", index))

    def _check_units(self, pipeline: PipelineFile) -> None:
        said, phases = pipeline.front.get("units"), pipeline.front["phases"]
        if said is None or any(name not in self._files[CONTRACTS] for name in phases):
            return
        for key in ("listed_by", "worked_by"):
            if said[key] not in phases:
                why = f"{key}: {said[key]} is not one of the phases{suggest(said[key], phases)}"
                self._faults.refuse(why, pipeline.place("units", key))
                return
        if phases.index(said["worked_by"]) <= phases.index(said["listed_by"]):
            why = f"worked_by: {said['worked_by']} does not come after {said['listed_by']}, which lists the units"
            self._faults.refuse(why, pipeline.place("units", "worked_by"))
        listing = self._files[CONTRACTS].get(said["listed_by"])
        outputs = [each["name"] for each in listing.front["produced_outputs"]] if listing is not None else []
        if listing is not None and said["output"] not in outputs:
            why = f"output: {said['listed_by']} gives no {said['output']}{suggest(said['output'], outputs)}"
            self._faults.refuse(f"{why}; it gives {', '.join(outputs)}", pipeline.place("units", "output"))
        elif listing is not None and self._schema_named(listing, said["output"]) and not self._unit_schema(pipeline):
            why = f"output: the schema of {said['output']} has no list units, whose items have a schema"
            self._faults.refuse(why, pipeline.place("units", "output"))

    def _check_routing(self, pipeline: PipelineFile) -> None:
        name, known = pipeline.front.get("routing"), self._files[ROUTING]
        if name is not None and name not in known and (ROUTING, name) not in self._faulty:
            why = f"routing: {name} is no routing policy{suggest(name, known)}; correct it, or add routing/{name}.yaml"
            self._faults.refuse(why, pipeline.place("routing"))
        elif name in known:
            for pointer, why in find_faults(known[name].front):
                self._faults.refuse(why, known[name].document.place(pointer))

    def _unit_schema(self, pipeline: PipelineFile) -> Object | None:
        """Return the schema of a unit, if the output that lists units has one."""
        said = pipeline.front.get("units")
        listing = None if said is None else self._files[CONTRACTS].get(said["listed_by"])
        if said is None or listing is None:
            return None
        schema = self._schema_named(listing, said["output"])
        return None if schema is None else find_unit_schema(schema)

    def _schema_named(self, file: PipelineFile, output: str) -> Object | None:
        named = [each.get("schema") for each in file.front["produced_outputs"] if each["name"] == output]
        return self._schemas.known.get(named[0]) if named and named[0] is not None else None

    # --- the contracts, one after the other ---------------------------------------------------------------------------

    def _check_each(self, pipeline: PipelineFile, files: Mapping[str, PipelineFile]) -> list[Contract]:
        """Check the contracts in order, and return those whose paths are sound, with the schemas of all inputs."""
        said = pipeline.front
        unit: Any = self._unit_schema(pipeline)
        worked_by = (said.get("units") or {}).get("worked_by")
        keys = None if unit is None else frozenset(unit_keys(unit))
        of_unit = _ANY_UNIT if unit is None else unit
        sound = [
            self._read(file, said.get("data", "."), unit=name == worked_by, unit_keys=keys)
            for name, file in files.items()
        ]
        contracts = [each for each in sound if each is not None]
        left = {contract.phase: list(produced_by(contract)) for contract in contracts}
        whole = len(contracts) == len(said["phases"])
        return [
            self._check_contract(
                pipeline, contract, left, of_unit if contract.phase == worked_by else None, whole=whole
            )
            for contract in contracts
        ]

    def _read(self, file: PipelineFile, data: str, *, unit: bool, unit_keys: frozenset[str] | None) -> Contract | None:
        """Return the contract in *file*, or ``None`` where a path or the name of a schema is wrong."""
        before = self._faults.count
        for why, at in check_paths(file, unit=unit, unit_keys=unit_keys):
            self._faults.refuse(why, file.place(*at))
        self._check_schemas(file)
        return read_contract(file, data) if self._faults.count == before else None

    def _check_contract(
        self, pipeline: PipelineFile, contract: Contract, left: Mapping[str, Sequence[Produced]], unit: Object | None,
        *, whole: bool,
    ) -> Contract:  # fmt: skip
        """Check one contract against *left*, the files of each phase, and return it with the schemas of its inputs.

        *unit* is the schema of a unit, where the phase works on one. *whole*: *left* has all phases.
        """
        said, file = pipeline.front, self._files[CONTRACTS][contract.phase]
        data, names = said.get("data", "."), list(left)
        earlier = [each for name in names[: names.index(contract.phase)] for each in left[name]]
        typed = self._resolve_inputs(file, contract, [*runner_files(data), *earlier], left, whole=whole)
        later = [each for name in names[names.index(contract.phase) + 1 :] for each in left[name]]
        flaws = check_contract(file, contract, data, said["abilities"], unit=unit is not None)
        for why, at in (*flaws, *check_neighbours(contract, earlier, later)):
            self._faults.refuse(why, file.place(*at))
        if contract.on_rollback == PASS_ON and contract.phase == said["phases"][0]:
            why = "on_rollback: the first phase has no phase before it, so it cannot pass a task on"
            self._faults.refuse(why, file.place("on_rollback"))
        for size in sorted(contract.tokens_each_unit.keys() - set(said["sizes"])):
            why = f"tokens_each_unit: {size} is no size of the pipeline{suggest(size, said['sizes'])}"
            self._faults.refuse(
                f"{why}; its sizes are {', '.join(said['sizes'])}", file.place("tokens_each_unit", size)
            )
        self._check_rules(pipeline, file, typed, unit)
        return typed

    def _check_schemas(self, file: PipelineFile) -> None:
        for key in ("required_inputs", "produced_outputs"):
            for index, each in enumerate(file.front.get(key, ())):
                if "schema" in each:
                    self._schemas.check(each["schema"], file.place(key, index, "schema"))
        for index, rule in enumerate(file.front.get("validation_rules", ())):
            if "schema" in rule:
                self._schemas.check(rule["schema"], file.place("validation_rules", index, "schema"))
            if "command" in rule:
                place = file.place("validation_rules", index, "command", "schema")
                self._schemas.check(rule["command"]["schema"], place)

    def _resolve_inputs(
        self, file: PipelineFile, contract: Contract, before: Sequence[Produced],
        left: Mapping[str, Sequence[Produced]], *, whole: bool,
    ) -> Contract:  # fmt: skip
        """Return *contract* with the schema of each input; *before* are the files that there are when it begins."""
        inputs = []
        for index, needed in enumerate(contract.inputs):
            sources = find_overlapping(needed.path, before)
            if not sources and whole:
                self._refuse_input(file, contract, index, left)
            inputs.append(self._add_schema(file, index, needed, sources))
        return attrs.evolve(contract, inputs=tuple(inputs))

    def _refuse_input(
        self, file: PipelineFile, contract: Contract, index: int, left: Mapping[str, Sequence[Produced]]
    ) -> None:
        path = contract.inputs[index].path
        late = [each for those in left.values() for each in find_overlapping(path, those)]
        why = f"path: {path}: no earlier phase gives it"
        if late and late[0].phase == contract.phase:
            why = f"{why}; it is of this phase itself, so name it in context_scope only"
        elif late:
            why = f"{why}; the later phase {late[0].phase} does"
        self._faults.refuse(f"{why}", file.place("required_inputs", index, "path"))

    def _add_schema(self, file: PipelineFile, index: int, needed: Input, sources: Sequence[Produced]) -> Input:
        """Return an input with the schema of what gives it; another schema is a fault."""
        given = [each for each in sources if each.schema is not None and covers(needed.path, each.path)]
        if needed.schema is None:
            names = {each.schema for each in given}
            return attrs.evolve(needed, schema=names.pop()) if len(names) == 1 else needed
        for each in given:
            if each.schema != needed.schema:
                by = "the runner" if each.phase is None else each.phase
                why = f"schema: {needed.schema}, but {by} gives {needed.path} with {each.schema}; correct one of them"
                self._faults.refuse(why, file.place("required_inputs", index, "schema"))
        return needed

    def _check_rules(self, pipeline: PipelineFile, file: PipelineFile, contract: Contract, unit: Object | None) -> None:
        severities = {each for those in pipeline.front["severities"].values() for each in those}
        phases, units = pipeline.front["phases"], pipeline.front.get("units")
        listed = units is not None and units["listed_by"] in phases
        has_units = listed and phases.index(contract.phase) > phases.index(units["listed_by"])
        checks = RuleCheck(file, contract, self._schemas.known, unit).check(severities, has_units=has_units)
        for each in checks:
            self._faults.add(each)

    # --- the definition -----------------------------------------------------------------------------------------------

    def _definition(self, pipeline: PipelineFile, contracts: Sequence[Contract]) -> Definition:
        said = pipeline.front
        units = said.get("units")
        routing = said.get("routing")
        agents = sorted({contract.agent for contract in contracts})
        named = sorted({TASK_SCHEMA}.union(*(contract.schemas for contract in contracts)))
        return Definition(
            id=pipeline.id,
            title=said["title"],
            data=said.get("data", "."),
            phases=tuple(contracts),
            units=None if units is None else Units(**units),
            escalate_after=said.get("escalate_after", ESCALATE_AFTER),
            most_escalations=said.get("most_escalations", MOST_ESCALATIONS),
            severities={name: tuple(those) for name, those in said["severities"].items()},
            sizes=tuple(said["sizes"]),
            abilities=dict(said["abilities"]),
            human_triggers=said.get("human_triggers"),
            routing=None if routing is None else self._files[ROUTING][routing].front,
            schemas={name: self._schemas.known[name] for name in named},
            skills={name: self._skills.get(name, ()) for name in agents},
            places=self._places(pipeline, contracts),
        )

    def _places(self, pipeline: PipelineFile, contracts: Sequence[Contract]) -> dict[str, str]:
        places = {PIPELINES: pipeline.line}
        for contract in contracts:
            file = self._files[CONTRACTS][contract.phase]
            places[f"{CONTRACTS}/{contract.phase}"] = file.line
            for index, rule in enumerate(contract.rules):
                places[f"rules/{contract.phase}/{rule.id}"] = file.document.line(f"/validation_rules/{index}")
        return places
