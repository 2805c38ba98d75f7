"""The phase that works on units: one run for each unit, in the order of their dependencies.

The patch of a unit is checked, applied to the task's copy of the repository, tested there, and committed. If one of
these fails, the copy is taken back to the commit before the unit.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

import attrs

from deedbook import Failed, Object, Run
from deedbook_flow_swe.contract import Contract
from deedbook_flow_swe.events import PHASE_COMPLETED

from .blocks import Block, Blocked
from .files import File
from .material import TaskMaterial
from .phase_run import CopyWork, PhaseOutcome, PhaseRun
from .values import DIFF

MESSAGE: Final = "commit-message.md"
"""The name of the file with the message of a unit's commit."""
_CONVENTIONAL: Final = re.compile(
    r"(build|chore|ci|docs|feat|fix|perf|refactor|revert|style|test)(\([^()]+\))?!?: \S.*"
)


def order_units(units: Sequence[Object]) -> tuple[Object, ...]:
    """Return *units* so that each comes after those that it depends on, otherwise as they are listed.

    Raises `ValueError` for a unit that is listed twice, one that is not there, and for a circle.
    """
    known = {str(each["id"]): each for each in units}
    if len(known) < len(units):
        raise ValueError("two units have the same id")
    needed = {name: [str(each) for each in unit.get("depends_on", ())] for name, unit in known.items()}
    unknown = sorted({each for names in needed.values() for each in names} - known.keys())
    if unknown:
        raise ValueError(f"there is no unit {unknown[0]}, on which another one depends")
    sorter = TopologicalSorter(needed)
    try:
        sorter.prepare()
    except CycleError as problem:
        raise ValueError(f"the units depend on each other in a circle: {' → '.join(problem.args[1])}") from None
    ordered: list[Object] = []
    position = {name: index for index, name in enumerate(known)}
    ready = sorted(sorter.get_ready(), key=position.__getitem__)
    while ready:
        name = ready.pop(0)
        ordered.append(known[name])
        sorter.done(name)
        ready = sorted([*ready, *sorter.get_ready()], key=position.__getitem__)
    return tuple(ordered)


@attrs.define
class UnitProgress:
    """The units that are done, each with the commit before it; they stay done if a later one is sent back."""

    before: dict[str, str | None] = attrs.field(factory=dict)
    outcomes: dict[str, PhaseOutcome] = attrs.field(factory=dict)

    def undo(self, units: Sequence[str], first: str | None) -> tuple[list[str], str | None]:
        """Forget the units from *first* on, or all; return their names and the commit before them."""
        start = units.index(first) if first is not None and first in units else 0
        gone = [each for each in units[start:] if each in self.before]
        commit = self.before[gone[0]] if gone else None
        for each in gone:
            del self.before[each], self.outcomes[each]
        return gone, commit


class UnitRuns:
    """Runs the phase of *contract* for each unit that is not done; *update* is called before the first one is built."""

    def __init__(
        self, run: Run, material: TaskMaterial, contract: Contract, iteration: int, progress: UnitProgress,
        returned: File | None, update: Callable[[], None],
    ) -> None:  # fmt: skip
        self._run, self._material, self._contract, self._update = run, material, contract, update
        self._iteration, self._progress, self._returned = iteration, progress, returned

    def go(self) -> PhaseOutcome:
        """Run the units; return what all came to, or the block of the first that is blocked."""
        for unit in self._material.units:
            name = str(unit["id"])
            if name in self._progress.outcomes:
                continue
            outcome = self._run_unit(unit)
            if outcome.block is not None:
                return self._join([*self._progress.outcomes.values(), outcome], outcome.block)
            self._progress.outcomes[name] = outcome
            self._returned = None
        return self._join(list(self._progress.outcomes.values()), None)

    def _run_unit(self, unit: Object) -> PhaseOutcome:
        name = str(unit["id"])
        work = UnitWork(self._material, unit)
        copy = CopyWork(apply=work.apply)
        if not self._progress.outcomes:
            copy = attrs.evolve(copy, prepare=self._update)
        runner = PhaseRun(self._run, self._material, self._contract, self._iteration, unit, self._returned, copy)
        outcome = runner.go()
        if outcome.block is None:
            try:
                self._progress.before[name] = work.commit()
            except Blocked as problem:
                outcome = attrs.evolve(outcome, block=problem.block)
        if outcome.block is not None:
            work.take_back()
            return outcome
        self._record(unit, outcome)
        return outcome

    def _record(self, unit: Object, outcome: PhaseOutcome) -> None:
        payload = {
            "phase": self._contract.phase,
            "iteration": self._iteration,
            "unit": unit["id"],
            "gate": None,
            "outputs": dict(outcome.outputs),
            "facts": dict(outcome.facts),
        }
        self._material.note(self._run, PHASE_COMPLETED, payload)

    def _join(self, outcomes: Sequence[PhaseOutcome], block: Block | None) -> PhaseOutcome:
        """Return one outcome of several units."""

        def union(name: str) -> dict[str, Any]:
            return {key: value for each in outcomes for key, value in getattr(each, name).items()}

        return PhaseOutcome(
            inputs=union("inputs"), outputs=union("outputs"), checked=union("checked"),
            values={}, checks={}, block=block,
        )  # fmt: skip


class UnitWork:
    """The patch of one *unit* in the task's copy of the repository."""

    def __init__(self, material: TaskMaterial, unit: Object) -> None:
        self._material, self._unit = material, unit
        self._repository = material.repository
        self._before: str | None = None
        self._message = ""

    def apply(self, files: Mapping[str, File], values: Mapping[str, Any]) -> None:
        """Apply the patch in *files*; raises `Blocked` if it does not apply, or has no proper message."""
        if self._repository is None:
            return
        patches = [file for path, file in files.items() if path.endswith(DIFF)]
        self._message = self._build_message(files, values)
        self._before = self._repository.head()
        for file in patches:
            try:
                self._repository.apply(file.text, list(self._unit.get("files", ("**",))))
            except Failed as failure:
                if failure.lost or failure.code not in _UNFIT:
                    raise
                raise Blocked(self._blame("patch-applies", file.path, f"{failure.code}: {failure}")) from None

    def commit(self) -> str | None:
        """Commit what was applied; return the commit before it."""
        if self._repository is None:
            return None
        try:
            self._repository.commit(self._message)
        except Failed as failure:
            if failure.lost or failure.code not in _UNFIT:
                raise
            raise Blocked(self._blame("commit", None, f"{failure.code}: {failure}")) from None
        return self._before

    def take_back(self) -> None:
        """Take the copy back to the commit before the unit, if its patch was applied."""
        if self._repository is not None and self._before is not None:
            self._repository.reset(self._before)

    def _build_message(self, files: Mapping[str, File], values: Mapping[str, Any]) -> str:
        """Return the message of the commit: a conventional subject, and the criteria that the unit covers."""
        criteria = [str(each) for each in self._unit.get("criteria", ())]
        stated = next((value for value in values.values() if isinstance(value, dict) and "subject" in value), None)
        if stated is None:
            path = next((path for path in files if path.endswith(MESSAGE)), None)
            if path is None:
                return (
                    f"feat: {self._unit.get('title', self._unit['id'])}\n\nCriteria: {', '.join(criteria) or 'none'}\n"
                )
            text = files[path].text
            subject, missing = text.strip().partition("\n")[0], [each for each in criteria if each not in text]
        else:
            subject, text = str(stated["subject"]), ""
            missing = [each for each in criteria if each not in stated.get("criteria", ())]
        if not _CONVENTIONAL.fullmatch(subject):
            why = f"{subject[:100]!r} is no conventional commit"
            raise Blocked(self._blame("commit-message", MESSAGE, why, own=True))
        if missing:
            why = f"the message of the commit does not name {', '.join(missing)}"
            raise Blocked(self._blame("commit-message", MESSAGE, why, own=True))
        body = text.strip().partition("\n")[2].strip()
        named = f"Criteria: {', '.join(criteria) or 'none'}"
        return "\n\n".join(each for each in (subject, body, named) if each) + "\n"

    def _blame(self, rule: str, place: str | None, reason: str, *, own: bool = False) -> Block:
        return Block(by="rule", rule=rule, place=place, reason=reason, unit=str(self._unit["id"]), own=own)


_UNFIT: Final = frozenset({"PATCH_REFUSED", "PATCH_CONFLICT", "NOTHING_TO_COMMIT", "GIT_REFUSED", "GIT_FAILED"})
"""The codes with which git refuses what a patch does."""
