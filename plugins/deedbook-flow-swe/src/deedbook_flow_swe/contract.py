"""The contract of a phase: what it needs, what it gives, and what its agent may read, write and use; pure.

The paths of a compiled contract are globs from the workspace's root: the pipeline's data folder stands before them.
They may have placeholders, which `fill` replaces.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook import Limits, Object

from .globs import whole_glob

TASK: Final = "task-id"
UNIT: Final = "unit-id"
PROJECT: Final = "project"
PLACEHOLDERS: Final = (TASK, UNIT, PROJECT)
"""The placeholders of paths."""
WORKTREE: Final = "worktree"
ARGUMENTS: Final = (*PLACEHOLDERS, WORKTREE)
"""The placeholders of a command's arguments, beside ``unit.<key>`` for each key of a unit (`definition.unit_keys`)."""

REDO: Final = "redo"
PASS_ON: Final = "pass_on"  # noqa: S105 - the name of a course, and no password
OWN: Final = "own"
EARLIER: Final = "earlier"
BEFORE: Final = "before"
AFTER: Final = "after"
EACH_UNIT: Final = "unit"
EACH_TASK: Final = "task"

_UNIT_HOLE: Final = re.compile(r"\{unit-id\}")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_VALUE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def find_placeholders(text: str) -> tuple[str, ...]:
    """Return the names in braces in *text*."""
    return tuple(_PLACEHOLDER.findall(text))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the path *text* with its placeholders replaced by *values*.

    Raises `ValueError` for a placeholder without a value, and for a value that is more than one plain name.
    """

    def value_of(found: re.Match[str]) -> str:
        value = values.get(found[1])
        if value is None:
            raise ValueError(f"{text}: there is no value for {found[0]} here")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"{text}: {value[:80]!r} is no name for {found[0]}; use letters, digits, dot, dash")
        return value

    return _PLACEHOLDER.sub(value_of, text)


@attrs.frozen(kw_only=True)
class Input:
    """A file, or with *many* the files, that the phase needs; *schema* is the name of the schema of its value.

    One that is not *shown* is for the rules. It is part of the prompt only as a file of the scope, if there is room.
    """

    name: str
    path: str
    schema: str | None = None
    many: bool = False
    shown: bool = True


@attrs.frozen(kw_only=True)
class Output:
    """A file, or with *many* at least *at_least* files, that the phase gives."""

    name: str
    path: str
    schema: str | None = None
    many: bool = False
    at_least: int = 1


@attrs.frozen(kw_only=True)
class Command:
    """An ability that the runner calls. *reads* names the parser of its result, *schema* the schema of one result."""

    ability: str
    reads: str
    writes: str
    schema: str
    args: Mapping[str, Any] = attrs.field(factory=dict)
    each: str = EACH_TASK
    runs: str = AFTER


@attrs.frozen(kw_only=True)
class Rule:
    """A rule of a phase: a *cel* condition, a *schema* for an *output*, or a *command* with a condition or without.

    *mends* says which phase runs again if it is broken: the `OWN` one, or an `EARLIER` one.
    """

    id: str
    severity: str
    message: str
    cel: str | None = None
    schema: str | None = None
    output: str | None = None
    command: Command | None = None
    mends: str = EARLIER

    @property
    def check(self) -> str:
        """The name of the command's result in conditions."""
        return self.id.replace("-", "_")


@attrs.frozen(kw_only=True)
class Rollback:
    """How the agent says that it cannot go on: the file of the signal, and which parts it must have."""

    path: str
    reason_required: bool = True
    missing_required: bool = True


@attrs.frozen(kw_only=True)
class Scope:
    """What the prompt may be made of: *include* and *exclude* are files; *select* says how files are selected.

    *skills* and *persona* say whether the agent's own skills and persona are part of it.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    select: Mapping[str, str] = attrs.field(factory=dict)
    skills: bool = False
    persona: bool = False


@attrs.frozen(kw_only=True)
class Gate:
    """The names of the gate files; *human* is ``None`` where the phase has none."""

    passed: str
    blocked: str
    human: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(each for each in (self.passed, self.blocked, self.human) if each is not None)


@attrs.frozen(kw_only=True)
class Contract:
    """A contract. *folder* is the folder of the phase in a task, with placeholders.

    *tokens* is the budget of the prompt. The request of the task adds its own tokens to it, at most *tokens_request*;
    each criterion adds *tokens_each_criterion*, and a unit *tokens_each_unit*, by its size. *forbidden_writes*,
    *forbidden_reads* and *forbidden_uses* are globs: of files, of files, and of abilities.
    """

    phase: str
    version: int
    agent: str
    objective: str
    tier: str
    tokens: int
    folder: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    rules: tuple[Rule, ...]
    mutations: tuple[str, ...]
    rollback: Rollback
    scope: Scope
    gate: Gate
    forbidden_writes: tuple[str, ...] = ()
    forbidden_reads: tuple[str, ...] = ()
    forbidden_uses: tuple[str, ...] = ()
    on_rollback: str = REDO
    tokens_request: int = 0
    tokens_each_criterion: int = 0
    tokens_each_unit: Mapping[str, int] = attrs.field(factory=dict)

    def budget(self, units: Iterable[Object] = (), *, criteria: int = 0, request: int = 0) -> int:
        """Return the budget of a prompt about *units*; the task has so many *criteria*, and tokens of its *request*."""
        grown = sum(self.tokens_each_unit.get(str(each.get("size")), 0) for each in units)
        return self.tokens + min(request, self.tokens_request) + self.tokens_each_criterion * criteria + grown

    @property
    def gate_paths(self) -> tuple[str, ...]:
        """The paths of the gate files, with placeholders."""
        return tuple(f"{self.folder}/{name}" for name in self.gate.names)

    @property
    def runner_paths(self) -> tuple[str, ...]:
        """The paths of the phase that only the runner writes: gate files, and results of commands."""
        return (*self.gate_paths, *self.result_paths)

    @property
    def result_paths(self) -> tuple[str, ...]:
        """The paths of the results of commands, with placeholders, and ``*`` for each unit."""
        results = (rule.command.writes for rule in self.rules if rule.command is not None)
        return tuple(_UNIT_HOLE.sub("*", path) for path in results)

    @property
    def commands(self) -> tuple[Rule, ...]:
        """The rules that are commands."""
        return tuple(rule for rule in self.rules if rule.command is not None)

    @property
    def takes_units(self) -> bool:
        """Whether its outputs are those of one unit."""
        return any(UNIT in find_placeholders(output.path) for output in self.outputs)

    def limits(self, values: Mapping[str, str]) -> Limits:
        """Return what the agent may read, write and use; raises `ValueError` for a missing or odd value.

        It reads its scope, its inputs and its own outputs. It writes its mutations, but no gate file and no result of a
        command: those the runner writes.
        """
        writable = (*self.mutations, self.rollback.path)
        reads = (*self.scope.include, *(each.path for each in self.inputs), *self.mutations)
        return Limits(
            reads=_list(values, reads, (*self.scope.exclude, *self.forbidden_reads)),
            writes=_list(values, writable, (*self.forbidden_writes, *self.runner_paths)),
            forbidden=self.forbidden_uses,
        )

    @property
    def schemas(self) -> frozenset[str]:
        """The names of all schemas that it names."""
        found = [each.schema for each in self.inputs] + [each.schema for each in self.outputs]
        found += [rule.schema for rule in self.rules]
        found += [rule.command.schema for rule in self.rules if rule.command is not None]
        return frozenset(name for name in found if name is not None)

    def paths(self) -> Iterator[str]:
        """Yield every path of the contract."""
        yield from (each.path for each in self.inputs)
        yield from (each.path for each in self.outputs)
        yield from (rule.command.writes for rule in self.rules if rule.command is not None)
        yield from (*self.mutations, *self.forbidden_writes, *self.forbidden_reads, self.rollback.path)
        yield from (*self.scope.include, *self.scope.exclude, *self.scope.select)


def _list(values: Mapping[str, str], wanted: tuple[str, ...], unwanted: tuple[str, ...]) -> tuple[str, ...]:
    included = (whole_glob(fill(each, values)) for each in wanted)
    excluded = (f"!{whole_glob(fill(each, values))}" for each in unwanted)
    return tuple(sorted({*included, *excluded}))
