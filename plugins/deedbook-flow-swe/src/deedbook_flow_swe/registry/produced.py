"""Which files there are when a phase begins: those that the runner writes, and what earlier phases give; pure."""

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from deedbook_flow_swe.contract import Contract
from deedbook_flow_swe.definition import TASK_SCHEMA, join_data
from deedbook_flow_swe.globs import overlap

RUNNER: Final = (
    "tasks/{task-id}/META.yaml",
    "tasks/{task-id}/worktree/**",
    "repos/**",
    "shared/**",
    "world/**",
    "metrics/**",
)
"""What the runner writes for every task, and what a data folder has: no phase gives these files."""


@attrs.frozen
class Produced:
    """A file, or a glob of files: its *path*, the *phase* that gives it, its *name* there, and its *schema*."""

    path: str
    phase: str | None
    name: str
    schema: str | None = None


def runner_files(data: str) -> Iterator[Produced]:
    """Yield the files of the runner."""
    for path in RUNNER:
        schema = TASK_SCHEMA if path.endswith("META.yaml") else None
        yield Produced(join_data(data, path), None, path, schema)


def produced_by(contract: Contract) -> Iterator[Produced]:
    """Yield what a phase leaves: outputs, results of commands, and gate files."""
    for output in contract.outputs:
        yield Produced(output.path, contract.phase, f"output {output.name}", output.schema)
    for rule in contract.rules:
        if rule.command is not None:
            yield Produced(rule.command.writes, contract.phase, f"result of {rule.id}")
    for path in contract.gate_paths:
        yield Produced(path, contract.phase, "gate file")


def find_overlapping(path: str, files: Iterable[Produced]) -> list[Produced]:
    """Return those of *files* that *path* may name as well."""
    return [each for each in files if overlap(path, each.path)]
