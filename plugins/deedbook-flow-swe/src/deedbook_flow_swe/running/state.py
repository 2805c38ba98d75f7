"""The state machine of a task; pure. Only the runner moves it, and the runner asks no model about a move.

A task goes through the phases in order, then it is DONE. A blocked phase sends it to the phase before, or to itself if
its own outputs are at fault (ROLLED_BACK). If there is no phase to go back to, or if the same issue was blocked more
often than allowed, the task waits for a person (BLOCKED_AWAITING_HUMAN). What is merged stays: no phase after the merge
sends the task back before it.
"""

from collections.abc import Mapping
from typing import Any, Final, Self, TypeVar

import attrs

DONE: Final = "DONE"
FAILED: Final = "FAILED"
HALTED: Final = "HALTED"
ROLLED_BACK: Final = "ROLLED_BACK"
AWAITING_HUMAN: Final = "BLOCKED_AWAITING_HUMAN"
ENDS: Final = frozenset({DONE, FAILED, HALTED})
"""The states that a task does not leave."""

GO_ON: Final = "go-on"
REWORK: Final = "rework"
STOP: Final = "stop"


_State = TypeVar("_State", bound="PipelineState")


class IllegalMove(ValueError):  # noqa: N818 - it names what was tried
    """A move that the state machine does not have in its present state."""


@attrs.frozen(kw_only=True)
class PhaseHistory:
    """What happened in one phase.

    *iterations* counts its runs, *rollbacks* how often the task was sent back to it, or through it.
    """

    phase: str
    status: str = "waiting"
    iterations: int = 0
    rollbacks: int = 0
    rollback_reason: str | None = None
    completed: str | None = None


@attrs.frozen(kw_only=True)
class Rollback:
    """One move back: from the blocked phase, or through one that passes it on (*cascade*), to the phase before.

    A phase whose own outputs are at fault is sent back to itself.
    """

    from_phase: str
    to_phase: str
    issue: str
    reason: str
    count: int
    cascade: bool


@attrs.frozen(kw_only=True)
class PipelineState:
    """Where a task stands. Every move returns a new state and the old one stays as it is.

    *phase* is the phase in which it is, *state* that phase in capital letters or an exceptional state. *passes_on* are
    the phases that cannot mend what a later phase finds. *blocks* counts the blocks by issue; *asked* is whether the
    person is asked about outputs that passed all rules (``review``) or about a block (``block``). *first* is the phase
    before which the task does not go back. *escalations* counts how often a person was asked; a task that would ask
    more than *most_escalations* times fails.
    """

    phases: tuple[str, ...]
    phase: str
    state: str
    first: str
    history: Mapping[str, PhaseHistory]
    passes_on: frozenset[str] = frozenset()
    escalate_after: int = 3
    most_escalations: int = 10
    escalations: int = 0
    blocks: Mapping[str, int] = attrs.field(factory=dict)
    asked: str = ""
    issue: str = ""
    reason: str = ""
    rollbacks: int = 0
    started: str | None = None

    @classmethod
    def begin(
        cls, phases: tuple[str, ...], *, passes_on: frozenset[str], escalate_after: int, most_escalations: int = 10
    ) -> Self:
        """Return the state of a task that has not begun its first phase."""
        return cls(
            phases=phases,
            phase=phases[0],
            state=phases[0].upper(),
            first=phases[0],
            history={phase: PhaseHistory(phase=phase) for phase in phases},
            passes_on=passes_on,
            escalate_after=escalate_after,
            most_escalations=most_escalations,
        )

    @property
    def has_ended(self) -> bool:
        """Whether the task is done, failed or halted."""
        return self.state in ENDS

    @property
    def iteration(self) -> int:
        """The number of the present run of the phase, from 1."""
        return self.history[self.phase].iterations

    @property
    def is_last(self) -> bool:
        """Whether the phase is the last one."""
        return self.phase == self.phases[-1]

    def phases_from(self, phase: str) -> tuple[str, ...]:
        """Return *phase* and all later ones that have run: a rollback to *phase* supersedes their outputs."""
        later = self.phases[self.phases.index(phase) :]
        return tuple(each for each in later if self.history[each].iterations)

    # --- moves --------------------------------------------------------------------------------------------------------

    def start(self, now: str) -> Self:
        """Begin a run of the present phase."""
        self._require(self.phase.upper(), ROLLED_BACK)
        entry = self.history[self.phase]
        return _with(
            self,
            attrs.evolve(entry, status="in_progress", iterations=entry.iterations + 1),
            state=self.phase.upper(),
            started=now,
        )

    def complete(self, now: str) -> Self:
        """Complete the present phase, and go on to the next one, or to the end."""
        self._require(self.phase.upper())
        if self.history[self.phase].status != "in_progress":
            raise IllegalMove(f"{self.phase} has not begun")
        done = _with(self, attrs.evolve(self.history[self.phase], status="completed", completed=now))
        if self.is_last:
            return attrs.evolve(done, state=DONE)
        following = self.phases[self.phases.index(self.phase) + 1]
        return attrs.evolve(done, phase=following, state=following.upper(), started=None)

    def settle(self) -> Self:
        """Let the task never go back before its present phase: what was done until now lasts."""
        return attrs.evolve(self, first=self.phase)

    def block(
        self, issue: str, reason: str, *, needs_person: bool = False, own: bool = False
    ) -> "tuple[Self, tuple[Rollback, ...]]":
        """Block the present phase: return the state after it, with the moves back, which are none for a person.

        The task fails if it has asked a person too often.

        *own*: its own outputs are at fault, so it runs again, and the move is one from the phase to itself.
        """
        self._require(self.phase.upper())
        count = self.blocks.get(issue, 0) + 1
        blocked = attrs.evolve(
            _with(self, attrs.evolve(self.history[self.phase], status="blocked")),
            blocks={**self.blocks, issue: count},
            issue=issue,
            reason=reason,
        )
        if needs_person or count >= self.escalate_after or (self.phase == self.first and not own):
            return _escalate(blocked, "block"), ()
        if own:
            return _run_again(blocked, issue, reason, count)
        return _roll_back(blocked, issue, reason, count)

    def review(self, issue: str, reason: str) -> Self:
        """Ask a person about the present phase, whose outputs have passed all rules; see `block`."""
        self._require(self.phase.upper())
        return _escalate(attrs.evolve(self, issue=issue, reason=reason), "review")

    def answer(self, decision: str) -> "tuple[Self, tuple[Rollback, ...]]":
        """Go on as a person decides.

        ``go-on`` after a review lets the phase be completed, and after a block lets it run again. ``rework`` sends the
        task to the phase before, and the first phase to which it can go back runs again. ``stop`` halts the task.
        """
        self._require(AWAITING_HUMAN)
        issue, reason = self.issue, self.reason
        blocks = {key: count for key, count in self.blocks.items() if key != issue}
        free = attrs.evolve(self, blocks=blocks, state=self.phase.upper(), asked="", issue="", reason="")
        if decision == STOP:
            return attrs.evolve(free, state=HALTED), ()
        if decision == GO_ON or self.phase == self.first:
            if decision == GO_ON and self.asked == "review":
                return free, ()
            return attrs.evolve(free, started=None), ()
        if decision != REWORK:
            raise IllegalMove(f"a person cannot decide {decision!r}")
        blocked = _with(free, attrs.evolve(free.history[free.phase], status="blocked"))
        return _roll_back(blocked, issue, reason, 1)

    def fail(self) -> Self:
        """End the task, because it cannot go on."""
        if self.has_ended:
            raise IllegalMove(f"the task is {self.state}")
        return attrs.evolve(self, state=FAILED)

    def _require(self, *states: str) -> None:
        if self.state not in states:
            raise IllegalMove(f"the task is {self.state}, not {' or '.join(dict.fromkeys(states))}")


def _with(task: _State, entry: PhaseHistory, /, **more: Any) -> _State:
    """Return *task* with the history *entry* of a phase, and *more*."""
    return attrs.evolve(task, history={**task.history, entry.phase: entry}, **more)


def _escalate(state: _State, asked: str) -> _State:
    """Return the state in which a person is asked; FAILED if that was done too often."""
    if state.escalations >= state.most_escalations:
        return attrs.evolve(state, state=FAILED)
    return attrs.evolve(state, state=AWAITING_HUMAN, asked=asked, escalations=state.escalations + 1)


def _run_again(state: _State, issue: str, reason: str, count: int) -> tuple[_State, tuple[Rollback, ...]]:
    """Return the state in which the blocked phase runs again."""
    entry = state.history[state.phase]
    again = attrs.evolve(entry, status="rolled_back", rollbacks=entry.rollbacks + 1, rollback_reason=reason)
    move = Rollback(
        from_phase=state.phase, to_phase=state.phase, issue=issue, reason=reason, count=count, cascade=False
    )
    moved = _with(state, again, state=ROLLED_BACK, issue="", reason="", rollbacks=state.rollbacks + 1, started=None)
    return moved, (move,)


def _roll_back(state: _State, issue: str, reason: str, count: int) -> tuple[_State, tuple[Rollback, ...]]:
    """Return the state after moving back from the blocked phase, through all phases that pass the block on."""
    moves: list[Rollback] = []
    history = dict(state.history)
    at, first = state.phases.index(state.phase), state.phases.index(state.first)
    while not moves or (state.phases[at] in state.passes_on and at > first):
        source, target = state.phases[at], state.phases[at - 1]
        moves.append(
            Rollback(from_phase=source, to_phase=target, issue=issue, reason=reason, count=count, cascade=bool(moves))
        )
        entry = history[target]
        history[target] = attrs.evolve(
            entry, status="rolled_back", rollbacks=entry.rollbacks + 1, rollback_reason=reason
        )
        at -= 1
    for later in state.phases[at + 1 :]:
        if history[later].status in ("completed", "in_progress"):
            history[later] = attrs.evolve(history[later], status="rolled_back")
    moved = attrs.evolve(
        state, phase=state.phases[at], state=ROLLED_BACK, history=history, issue="", reason="",
        rollbacks=state.rollbacks + len(moves), started=None,
    )  # fmt: skip
    return moved, tuple(moves)
