"""The example task of this pack: the files of its phases, what the tools said, and what the runner adds.

`examples/swe` has the answers of the agents and the repository before the change, `results` what the tools said about
it. Gate files, which the runner writes, are made here, with the iterations of the example.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from deedbook.policy.conditions import glob_test
from deedbook.workspace.documents import parse_yaml
from deedbook.workspace.workspace import survey_workspace
from deedbook_flow_swe.contract import Contract, fill
from deedbook_flow_swe.definition import Definition
from deedbook_flow_swe.running import values
from deedbook_flow_swe.running.gates import render_document
from deedbook_flow_swe.tools.patches import check_patch, describe

EXAMPLE = Path(__file__).parents[3] / "examples/swe"
REPOSITORY = EXAMPLE / "textkit"
RESULTS = Path(__file__).parent / "results"
TASK = "task-2026-001"
UNITS = ("unit-001", "unit-002")
TIME = "2026-05-10T09:00:00Z"
GATES = {
    "requirements": "APPROVED.md",
    "architecture": "APPROVED.md",
    "planning": "APPROVED.md",
    "implementation": "READY_FOR_VERIFICATION.md",
    "verification": "PASSED.md",
    "security": "CLEARED.md",
    "integration": "MERGED.md",
}
"""The gate files that stand when the retrospective begins."""
ITERATIONS = {"requirements": 2, "architecture": 2, "planning": 2, "implementation": 3, "verification": 2}
"""How often the phases ran, if more than once."""


def definition_of(root: Path) -> Definition:
    """Return the pipeline of a workspace that has the pack and nothing else."""
    system = root / ".system"
    system.mkdir(parents=True)
    (system / "deedbook.yaml").write_text("schema_version: v1\npacks: [swe]\n")
    workspace, faults = survey_workspace(root)
    assert faults == []
    (definition,) = workspace.sections["swe"].definitions.values()
    return definition


@cache
def texts() -> Mapping[str, str]:
    """Return the text of every file of the task, by its path in the data folder; of the answers, those that passed."""
    found = {str(path.relative_to(RESULTS)): path.read_text() for path in RESULTS.rglob("*.*")}
    for path in sorted(EXAMPLE.glob("answers/*.yaml")):
        if not path.stem.endswith("-first"):
            answer = parse_yaml(path.read_bytes(), path.name).value["answer"]
            found |= {each["path"]: each["text"] for each in answer["outputs"]}
    for phase, gate in GATES.items():
        found[f"tasks/{TASK}/{phase}/{gate}"] = render_document(_gate(phase, gate, found), "")
    return found


def _gate(phase: str, gate: str, found: Mapping[str, str]) -> Any:
    folder = f"tasks/{TASK}/{phase}/"
    outputs = {path: sha256(text.encode()).hexdigest() for path, text in found.items() if path.startswith(folder)}
    contract = {"version": 1, "agent": f"{phase}-agent"}
    iteration = ITERATIONS.get(phase, 1)
    return {
        "schema_version": "v1", "task_id": TASK, "phase": phase, "unit": None, "iteration": iteration, "gate": gate,
        "contract": contract, "inputs": {}, "outputs": outputs, "rules": [], "approved_by": None, "time": TIME,
    }  # fmt: skip


def read_value(path: str, text: str) -> Any:
    """Return the value of a file, as rules see it."""
    if path.endswith(".diff"):
        return describe(check_patch(text, None, None))
    return values.read_value(path, text)


def find_values(glob: str, names: Mapping[str, str]) -> list[Any]:
    """Return the values of the files of the task that fit a path of a contract."""
    fits = glob_test([fill(glob, names)])
    return [read_value(path, text) for path, text in sorted(texts().items()) if fits(path)]


def _one(found: Sequence[Any], many: bool) -> Any:
    if many:
        assert found
        return list(found)
    (value,) = found
    return value


def variables(contract: Contract, unit: str = UNITS[0]) -> dict[str, Any]:
    """Return what the conditions of a contract see of the example, as new objects that a test may change."""
    has_unit = contract.phase == "implementation"
    names = {"task-id": TASK, "project": "textkit", **({"unit-id": unit} if has_unit else {})}
    seen = {
        "inputs": {each.name: _one(find_values(each.path, names), each.many) for each in contract.inputs},
        "outputs": {each.name: _one(find_values(each.path, names), each.many) for each in contract.outputs},
        "checks": {
            rule.check: _one(find_values(rule.command.writes, names), many=False)
            for rule in contract.rules
            if rule.command is not None
        },
        "task": _one(find_values("tasks/{task-id}/META.yaml", names), many=False),
        "unit": unit_of(unit) if has_unit else None,
    }
    return json.loads(json.dumps(seen))


def unit_of(name: str) -> Any:
    """Return a unit of the work breakdown."""
    (breakdown,) = find_values("tasks/{task-id}/planning/work-breakdown.md", {"task-id": TASK})
    return next(unit for unit in breakdown["units"] if unit["id"] == name)


def schema_examples(definition: Definition) -> Iterator[tuple[str, Any]]:
    """Yield the name of each schema with each value of the example that has to fit it."""
    for contract in definition.phases:
        for unit in UNITS if definition.works_units(contract.phase) else UNITS[:1]:
            seen = variables(contract, unit)
            for key, files in (("inputs", contract.inputs), ("outputs", contract.outputs)):
                for file in files:
                    value = seen[key][file.name]
                    for each in value if file.many else [value]:
                        if file.schema is not None:
                            yield file.schema, each
            for rule in contract.rules:
                if rule.command is not None:
                    value = seen["checks"][rule.check]
                    yield from ((rule.command.schema, each) for each in (value if isinstance(value, list) else [value]))
