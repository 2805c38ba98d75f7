"""From the file of a contract to the contract. The file fits its schema; what else may be wrong is checked after."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook_flow_swe.contract import (
    AFTER,
    EACH_TASK,
    EARLIER,
    OWN,
    REDO,
    TASK,
    Command,
    Contract,
    Gate,
    Input,
    Output,
    Rollback,
    Rule,
    Scope,
)
from deedbook_flow_swe.definition import join_data

from .agents import AGENTS, SKILLS
from .files import PipelineFile

PERSONA: Final = "persona.md"
REWARDS: Final = f"{AGENTS}/*/rewards.md"
"""The pages with the rewards of agents, which no prompt has, whatever a contract says."""
DEFAULT_SEVERITY: Final = "BLOCKER"
_GIVEN: Final = re.compile(r"(?<![.\w])(?:inputs|checks)\b")
"""The variables of conditions that the agent of the phase does not write."""
Keys = tuple[str | int, ...]


def read_contract(file: PipelineFile, data: str) -> Contract:
    """Return the contract in *file*, for a pipeline whose data folder is *data*."""
    said = file.front
    scope = said["context_scope"]
    own = own_files(said["agent"])
    forbidden = said.get("forbidden_actions", ())

    def paths(listed: Any) -> tuple[str, ...]:
        return tuple(join_data(data, each) for each in listed)

    return Contract(
        phase=said["phase"],
        version=said["version"],
        agent=said["agent"],
        objective=said["objective"],
        tier=said["tier"],
        tokens=said["tokens"],
        folder=join_data(data, f"tasks/{{{TASK}}}/{said['phase']}"),
        inputs=tuple(Input(**_file(each, data)) for each in said.get("required_inputs", ())),
        outputs=tuple(Output(**_file(each, data)) for each in said["produced_outputs"]),
        rules=tuple(_rule(each, data) for each in said.get("validation_rules", ())),
        mutations=paths(said["allowed_mutations"]),
        rollback=_rollback(said["rollback_signal"], data),
        scope=Scope(
            include=paths(each for each in scope["include"] if not is_agent_file(each)),
            exclude=paths(dict.fromkeys((*scope.get("exclude", ()), REWARDS))),
            select={join_data(data, folder): how for folder, how in scope.get("select", {}).items()},
            skills=own[0] in scope["include"],
            persona=own[1] in scope["include"],
        ),
        gate=Gate(**said["gate"]),
        forbidden_writes=paths(each["write"] for each in forbidden if "write" in each),
        forbidden_reads=paths(each["read"] for each in forbidden if "read" in each),
        forbidden_uses=tuple(each["use"] for each in forbidden if "use" in each),
        on_rollback=said.get("on_rollback", REDO),
        tokens_request=said.get("tokens_request", 0),
        tokens_each_criterion=said.get("tokens_each_criterion", 0),
        tokens_each_unit=dict(said.get("tokens_each_unit", {})),
    )


def own_files(agent: str) -> tuple[str, str]:
    """Return how a scope names the skills of an agent, and its persona."""
    return f"{AGENTS}/{agent}/{SKILLS}/", f"{AGENTS}/{agent}/{PERSONA}"


def is_agent_file(path: str) -> bool:
    """Return whether a path of a scope is in the folder of an agent, which is no part of the data folder."""
    return path.startswith(f"{AGENTS}/")


def path_entries(said: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
    """Yield each path in the file of a contract, with the keys that lead to it."""
    for key in ("required_inputs", "produced_outputs"):
        yield from (((key, index, "path"), each["path"]) for index, each in enumerate(said.get(key, ())))
    for index, rule in enumerate(said.get("validation_rules", ())):
        if "command" in rule:
            yield ("validation_rules", index, "command", "writes"), rule["command"]["writes"]
    yield from ((("allowed_mutations", index), each) for index, each in enumerate(said["allowed_mutations"]))
    for index, action in enumerate(said.get("forbidden_actions", ())):
        yield from ((("forbidden_actions", index, key), action[key]) for key in ("write", "read") if key in action)
    yield ("rollback_signal", "path"), said["rollback_signal"]["path"]
    scope = said["context_scope"]
    for key in ("include", "exclude"):
        yield from ((("context_scope", key, index), each) for index, each in enumerate(scope.get(key, ())))


def _file(said: Mapping[str, Any], data: str) -> dict[str, Any]:
    return {**said, "path": join_data(data, said["path"])}


def _rollback(said: Mapping[str, Any], data: str) -> Rollback:
    return Rollback(
        path=join_data(data, said["path"]),
        reason_required=said["reason"] == "required",
        missing_required=said["missing"] == "required",
    )


def _rule(said: Mapping[str, Any], data: str) -> Rule:
    command = said.get("command")
    return Rule(
        id=said["id"],
        severity=said.get("severity", DEFAULT_SEVERITY),
        message=said.get("message", f"the rule {said['id']} is broken"),
        cel=said.get("cel"),
        schema=said.get("schema"),
        output=said.get("output"),
        command=None if command is None else _command(command, data),
        mends=said.get("mends", _find_mending(said)),
    )


def _find_mending(said: Mapping[str, Any]) -> str:
    """Return which phase mends a broken rule: its own one if the rule is about nothing but outputs."""
    return EARLIER if "command" in said or _GIVEN.search(said.get("cel", "")) else OWN


def _command(said: Mapping[str, Any], data: str) -> Command:
    return Command(
        ability=said["ability"],
        reads=said["reads"],
        writes=join_data(data, said["writes"]),
        schema=said["schema"],
        args=said.get("args", {}),
        each=said.get("each", EACH_TASK),
        runs=said.get("runs", AFTER),
    )
