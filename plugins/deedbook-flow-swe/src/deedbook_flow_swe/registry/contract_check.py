"""Check a contract for itself: its outputs, what it allows and forbids, its scope and its gate files; pure.

Each flaw comes with the keys that lead to it in the contract's file.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deedbook.policy.conditions import glob_test
from deedbook_flow_swe.contract import UNIT, Contract, find_placeholders
from deedbook_flow_swe.definition import join_data
from deedbook_flow_swe.globs import covers, overlap

from .contracts import Keys
from .files import PipelineFile
from .produced import Produced, find_overlapping

Flaw = tuple[str, Keys]


def check_contract(
    file: PipelineFile, contract: Contract, data: str, abilities: Mapping[str, str], *, unit: bool
) -> Iterator[Flaw]:
    """Yield what is wrong with a contract; *abilities* are those of the runner, *unit*: it works on one unit."""
    yield from _check_names(contract)
    yield from _check_outputs(contract)
    yield from _check_allowed(contract, unit=unit)
    yield from _check_inputs(contract)
    yield from _check_scope(file, contract, data)
    yield from _check_gate(contract)
    yield from _check_forbidden(file, abilities)


def check_neighbours(contract: Contract, earlier: Sequence[Produced], later: Sequence[Produced]) -> Iterator[Flaw]:
    """Yield each output that an *earlier* phase gives, and each mutation that reaches files of other phases."""
    own: list[tuple[str, Keys]] = [
        (each.path, ("produced_outputs", index, "path")) for index, each in enumerate(contract.outputs)
    ]
    own += [
        (rule.command.writes, ("validation_rules", index, "command", "writes"))
        for index, rule in enumerate(contract.rules)
        if rule.command is not None
    ]
    for path, keys in own:
        for other in find_overlapping(path, earlier):
            why = f"the phase {other.phase} writes it too, as {other.name}; one phase writes a file"
            yield f"{keys[-1]}: {path}: {why}", keys
    for index, path in enumerate(contract.mutations):
        reached = find_overlapping(path, (*earlier, *later))
        found = [each for each in reached if not any(overlap(each.path, mine) for mine, _ in own)]
        if found:
            more = f", and {len(found) - 1} more files" if len(found) > 1 else ""
            why = f"it reaches {found[0].path}, the {found[0].name} of the phase {found[0].phase}{more}"
            yield f"allowed_mutations: {path}: {why}; a phase changes only its own files", ("allowed_mutations", index)


def _check_names(contract: Contract) -> Iterator[Flaw]:
    for key, names in (
        ("required_inputs", [each.name for each in contract.inputs]),
        ("produced_outputs", [each.name for each in contract.outputs]),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                yield f"name: {name} appears twice; give each its own name", (key, index, "name")
    ids = [rule.id for rule in contract.rules]
    for index, name in enumerate(ids):
        if name in ids[:index]:
            yield f"id: {name} appears twice; give each rule its own id", ("validation_rules", index, "id")


def _check_outputs(contract: Contract) -> Iterator[Flaw]:
    for index, output in enumerate(contract.outputs):
        keys: Keys = ("produced_outputs", index, "path")
        if not any(covers(each, output.path) for each in contract.mutations):
            yield f"path: {output.path} is outside allowed_mutations; add it there, or correct it", keys
        if not output.many and "*" in output.path:
            yield f"path: {output.path} is a glob; add many: true, or write the path out", keys
        if output.schema is None and not output.path.endswith(".diff"):
            yield f"schema: the output {output.name} has none, so that no rule can check it; add one", keys[:-1]
        for why in _conflicts(contract, index):
            yield f"path: {output.path} {why}", keys


def _conflicts(contract: Contract, index: int) -> Iterator[str]:
    """Yield why the path of an output cannot be that of an output."""
    path = contract.outputs[index].path
    gates = [gate for gate in contract.gate_paths if overlap(gate, path)]
    if gates:
        yield f"reaches the gate file {gates[0]}, which only the runner writes; write a narrower path"
    for rule in contract.commands:
        if rule.command is not None and overlap(rule.command.writes, path):
            yield f"reaches the result of {rule.id}, which only the runner writes; write a narrower path"
    for forbidden in contract.forbidden_writes:
        if overlap(forbidden, path):
            yield f"is forbidden by write: {forbidden}; an output cannot be forbidden"
    for other in contract.outputs[:index]:
        if overlap(other.path, path):
            yield f"may be the output {other.name} as well; write a narrower path"


def _check_allowed(contract: Contract, *, unit: bool) -> Iterator[Flaw]:
    for index, path in enumerate(contract.mutations):
        keys: Keys = ("allowed_mutations", index)
        for forbidden in contract.forbidden_writes:
            if covers(forbidden, path):
                yield f"allowed_mutations: {path} is forbidden by write: {forbidden}; leave one of them out", keys
        if unit and UNIT not in find_placeholders(path):
            why = f"has no {{{UNIT}}}, so that the work on a unit may change the files of the others"
            yield f"allowed_mutations: {path} {why}", keys
    for index, output in enumerate(contract.outputs):
        if unit and UNIT not in find_placeholders(output.path):
            why = f"has no {{{UNIT}}}, so that each unit would overwrite it"
            yield f"path: {output.path} {why}", ("produced_outputs", index, "path")


def _check_inputs(contract: Contract) -> Iterator[Flaw]:
    for index, needed in enumerate(contract.inputs):
        keys: Keys = ("required_inputs", index, "path")
        if not needed.many and "*" in needed.path:
            yield f"path: {needed.path} is a glob; add many: true, or write the path out", keys
        for path in contract.forbidden_reads:
            if overlap(path, needed.path):
                yield f"path: {needed.path} is forbidden by read: {path}; an input has to be readable", keys
        for path in contract.scope.exclude:
            if covers(path, needed.path) or (not needed.many and overlap(path, needed.path)):
                yield f"path: {needed.path} is excluded by context_scope, exclude: {path}; an input is needed", keys


def _check_scope(file: PipelineFile, contract: Contract, data: str) -> Iterator[Flaw]:
    said: Any = file.front["context_scope"]
    for index, each in enumerate(said["include"]):
        path = join_data(data, each)
        excluding = [*contract.scope.exclude, *contract.forbidden_reads]
        for other in (other for other in excluding if covers(other, path)):
            why = f"include: {each} is excluded by {other}; leave one of them out"
            yield why, ("context_scope", "include", index)
    for folder in said.get("select", {}):
        if folder not in said["include"]:
            yield f"select: {folder} is not in include; name a folder of include", ("context_scope", "select", folder)


def _check_gate(contract: Contract) -> Iterator[Flaw]:
    names = contract.gate.names
    if len(set(names)) < len(names):
        yield "gate: two gate files have one name; give each its own", ("gate",)
    path, blocked = contract.rollback.path, f"{contract.folder}/{contract.gate.blocked}"
    if path != blocked:
        why = f"path: {path}, but the gate file of a block is {blocked}; correct one of them"
        yield why, ("rollback_signal", "path")


def _check_forbidden(file: PipelineFile, abilities: Mapping[str, str]) -> Iterator[Flaw]:
    needed = {abilities[use] for use in ("read", "write")}
    for index, action in enumerate(file.front.get("forbidden_actions", ())):
        test = glob_test([action["use"]]) if "use" in action else None
        names = [name for name in sorted(needed) if test is not None and test(name)]
        if names:
            why = f"use: {action['use']} forbids {' and '.join(names)}, with which a phase reads and writes its files"
            yield f"{why}; write a narrower glob", ("forbidden_actions", index, "use")
