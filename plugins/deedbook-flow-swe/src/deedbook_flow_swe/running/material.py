"""What one task has at hand: its definition, what its gates approved, its units, and the abilities of the runner.

All of it comes from recorded answers, so that a resumed run has the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook import Failed, Json, Object, Run
from deedbook_flow_swe.context import ContextFile, PhaseWork, read_tags
from deedbook_flow_swe.contract import WORKTREE, Command, Contract, fill
from deedbook_flow_swe.definition import Definition
from deedbook_flow_swe.events import TASK_STARTED
from deedbook_flow_swe.globs import overlap, whole_glob
from deedbook_flow_swe.learning.routing import RoutingPolicy, TierChoice, choose
from deedbook_flow_swe.learning.world import VERIFIED_PATTERNS
from deedbook_flow_swe.task_record import TaskRecord

from .agents import PhaseAgent
from .blocks import Block, Blocked
from .files import File
from .reports import parse_result
from .repository import Repository
from .rules import RuleBook

_MOST_LINES: Final = 5000
"""The most lines that the patch of one unit changes; a contract's rules usually allow fewer."""


@attrs.define
class TaskMaterial:
    """The material of the *task* (``swe_task_v1``) in a run of *definition*.

    *approved* has the digest of each file that a gate approved, or that the runner wrote, by path. *files* has the
    files of each phase, which a rollback supersedes. *outputs* are the values of the outputs of each phase,
    *criteria* are those of the task, each with its test. *record* is what its events say, *time* that of the last one.
    *routing* is the policy that was in force when the task began. *findings* are the classes of all findings so far.
    """

    definition: Definition
    task: Object
    agent: PhaseAgent
    run: Run
    approved: dict[str, str] = attrs.field(factory=dict)
    files: dict[str, dict[str, str]] = attrs.field(factory=dict)
    outputs: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    units: Sequence[Object] = ()
    criteria: Sequence[Object] = ()
    record: TaskRecord | None = None
    time: str = ""
    routing: RoutingPolicy | None = None
    rollbacks: dict[str, int] = attrs.field(factory=dict)
    findings: set[str] = attrs.field(factory=set)
    _books: dict[str, RuleBook] = attrs.field(factory=dict)
    _diffs: dict[str, Any] = attrs.field(factory=dict)

    @property
    def id(self) -> str:
        """The task's id."""
        return str(self.task["id"])

    @property
    def repository(self) -> Repository | None:
        """The repository of the task; ``None`` if the pipeline names no ability for it."""
        ability = self.definition.abilities.get("git")
        if ability is None:
            return None
        source = self.path(f"repos/{self.task['project']}")
        return Repository(run=self.run, ability=ability, source=source, worktree=self.worktree)

    def ability(self, use: str) -> str:
        """Return the ability for a *use* of the runner; raises `Failed` (``NOT_AVAILABLE``)."""
        found = self.definition.abilities.get(use)
        if found is None:
            why = f"the pipeline {self.definition.id} names no ability for {use}; add it to `abilities:`"
            raise Failed("NOT_AVAILABLE", why)
        return found

    def path(self, name: str) -> str:
        """Return a path of the data folder, from the workspace's root."""
        return self.definition.path(name)

    def values(self, unit: str | None) -> dict[str, str]:
        """Return the values of the placeholders of paths."""
        found = {"task-id": self.id, "project": str(self.task["project"])}
        return found if unit is None else {**found, "unit-id": unit}

    def arguments(self, unit: Object | None) -> dict[str, Json]:
        """Return the values of the placeholders of commands' arguments."""
        known: dict[str, Json] = dict(self.values(None if unit is None else str(unit["id"])))
        return {**known, WORKTREE: self.worktree}

    @property
    def worktree(self) -> str:
        """The folder of the task's copy of the repository, from the workspace's root."""
        return self.path(f"tasks/{self.id}/worktree")

    @property
    def touches(self) -> frozenset[str]:
        """What the units touch, all together."""
        return frozenset(str(name) for each in self.units for name in each.get("touches", ()))

    def note(self, run: Run, event: str, payload: Object, *, learned: bool = False) -> None:
        """Record an event about the task in *run*, and in its `TaskRecord` unless it was *learned* before."""
        full = {"task_id": self.id, **payload}
        run.record(event, full)
        if not learned:
            self.learn(event, full)

    def learn(self, event: str, payload: Object) -> None:
        """Apply an event to the record from which rewards and metrics are computed."""
        if event == TASK_STARTED:
            self.record = TaskRecord.begin(payload, self.time, self.run.session)
        elif self.record is not None:
            self.record.apply(event, {"task_id": self.id, **payload}, self.time)

    def book(self, contract: Contract) -> RuleBook:
        """Return the compiled rules of *contract*."""
        if contract.phase not in self._books:
            self._books[contract.phase] = RuleBook(self.definition, contract)
        return self._books[contract.phase]

    def is_produced(self, path: str) -> bool:
        """Return whether files at *path* come from a phase, so that a gate has to have approved them."""
        phases = self.definition.phases
        made = (each.path for contract in phases for each in contract.outputs)
        gates = (each for contract in phases for each in contract.gate_paths)
        results = (rule.command.writes for contract in phases for rule in contract.commands if rule.command)
        return any(overlap(path, each) for each in (*made, *gates, *results))

    def write(
        self, run: Run, texts: Mapping[str, str], expected: Mapping[str, str | None] | None = None
    ) -> dict[str, str]:
        """Write files as the runner, and return their digests; *expected* has what each has to hold before."""
        known = expected or {}
        paths = list(texts)
        args = {"paths": paths, "texts": list(texts.values()), "expected": [known.get(path) for path in paths]}
        written: Any = run.call(self.ability("write"), args)
        return dict(written["digests"])

    def diff(self, run: Run, file: File, unit: Object | None) -> Any:
        """Return the value of a patch; raises `Blocked` if it is refused. A patch is checked once."""
        if file.digest not in self._diffs:
            allow = list(unit.get("files", ("**",))) if unit is not None else ["**"]
            args = {"patch": file.text, "allow": allow, "most_lines": _MOST_LINES}
            try:
                self._diffs[file.digest] = run.call(self.ability("patch"), args)
            except Failed as failure:
                if failure.code not in ("PATCH_REFUSED", "BAD_PATTERN", "SCHEMA_VIOLATION"):
                    raise
                name = None if unit is None else str(unit["id"])
                raise Blocked(
                    Block(by="rule", rule="patch", place=file.path, severity=None, reason=str(failure), unit=name)
                ) from None
        return self._diffs[file.digest]

    def parse(self, command: Command, result: Json, unit: Object | None) -> Any:
        """Return what the result of a command says, in the form of its schema; raises `ValueError`."""
        return parse_result(command, result, task=self.id, unit=unit, criteria=self.criteria)

    def describe_work(
        self, run: Run, contract: Contract, unit: Object | None, returned: File | None, persona: str
    ) -> PhaseWork:
        """Return what a prompt is made for; the code of a unit is read by the runner, in *run*."""
        name = None if unit is None else str(unit["id"])
        added = [
            *([returned] if returned else []),
            *(self._read_slice(run, contract, unit) if unit is not None else []),
        ]
        return PhaseWork(
            values=self.values(name),
            tags=frozenset(self.task["tags"]),
            unit=unit,
            units=tuple(self.units),
            criteria=tuple(self.criteria),
            added=tuple(ContextFile(each.path, each.text) for each in added),
            persona=persona,
            request=str(self.task["request"]),
        )

    def choose_tier(
        self, run: Run, contract: Contract, unit: Object | None, files: Sequence[ContextFile]
    ) -> TierChoice:
        """Return the tier of the model for a run of a phase that reads *files*.

        Raises `Failed` if the profile has no model.
        """
        facts: dict[str, Any] = {
            "tags": list(self.task["tags"]),
            "text": "\n".join(each.text for each in files),
            "touches": sorted(self.touches),
            "findings": sorted(self.findings),
            "rollbacks": self.rollbacks.get(contract.phase, 0),
        }
        if self._reads_patterns(contract):
            facts["verified_pattern"] = any(self._is_pattern(each) for each in files)
        return choose(self.routing, contract.phase, unit, facts, default=contract.tier, tiers=run.tiers())

    def _reads_patterns(self, contract: Contract) -> bool:
        """Return whether the scope of a phase has promoted patterns; otherwise nothing is known about them."""
        folder = self.path(f"{VERIFIED_PATTERNS}/*")
        return any(overlap(whole_glob(fill(each, self.values(None))), folder) for each in contract.scope.include)

    def _is_pattern(self, file: ContextFile) -> bool:
        """Return whether a file is a promoted pattern with a tag of the task."""
        is_there = file.path.startswith(f"{self.path(VERIFIED_PATTERNS)}/")
        return is_there and not read_tags(file).isdisjoint(self.task["tags"])

    def _read_slice(self, run: Run, contract: Contract, unit: Object) -> list[File]:
        """Return the code that a unit may see; the runner reads it, since the agent sees no repository.

        The code gets half of the budget. Of longer files, the agent sees the definitions of the unit's interfaces.
        """
        ability = self.definition.abilities.get("slice")
        if ability is None or not unit.get("files"):
            return []
        names = [str(each).rpartition(".")[2] for each in unit.get("interfaces", ())]
        budget = contract.budget((unit,), criteria=len(self.criteria))
        args = {
            "root": self.worktree, "files": list(unit["files"]), "most_bytes": budget * _BYTES // 2,
            **({"names": names} if names else {}),
        }  # fmt: skip
        found: Any = run.call(ability, args)
        return [File(each["path"], each["text"], each["digest"]) for each in found["files"]]


_BYTES: Final = 4
"""About how many bytes of code a token has."""
