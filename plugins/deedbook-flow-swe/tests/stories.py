"""Tasks for tests, told as the events that a runner records; each event is checked against its schema."""

from collections.abc import Mapping
from typing import Any, Self

from deedbook.contract import Event
from deedbook.format.schema import foreign
from deedbook_flow_swe.events import EVENTS
from deedbook_flow_swe.task_record import TaskRecord

HASH = "0123456789abcdef" * 4
PHASES = (
    "requirements", "architecture", "planning", "implementation", "verification", "security", "integration",
    "retrospective",
)  # fmt: skip
CRITERIA = ["AC-001", "AC-002"]
FACTS: Mapping[str, Mapping[str, Any]] = {
    "requirements": {"criteria": CRITERIA},
    "verification": {
        "tests": {"passed": 4, "failed": 0},
        "coverage": 0.91,
        "lint": 0,
        "criteria_verified": CRITERIA,
        "architecture": {"checked": 3, "violations": 0},
    },
    "security": {"findings": [], "secrets": 0},
    "integration": {"tests": {"passed": 9, "failed": 0}, "regressions": 0, "coverage_delta": 0.02},
}
"""What tools report in a task without any trouble."""
VALIDATORS = {name: foreign(each.schema, place=name) for name, each in EVENTS.items()}


class Story:
    """The events of one task, one after the other; methods return the story, so that they can be chained."""

    def __init__(self, task: str = "t1", *, tags: tuple[str, ...] = ("python",), generated: bool = False) -> None:
        self.task = task
        self.events: list[Event] = []
        self.runs: dict[str, int] = {}
        self.add(
            "swe.task_started", title="A task", digest=HASH, tags=list(tags), pipeline="swe", routing=HASH,
            generated=generated,
        )  # fmt: skip

    def add(self, event_type: str, /, **payload: Any) -> Self:
        payload = {"task_id": self.task, **payload}
        if event_type in VALIDATORS:
            assert not VALIDATORS[event_type].violations(payload), VALIDATORS[event_type].violations(payload)
        seq = len(self.events)
        ts = f"2026-11-21T22:{seq // 60 % 60:02d}:{seq % 60:02d}.000Z"
        self.events.append(Event(seq, event_type, "agent", None, f"{seq + 1:016x}", None, ts, payload))
        return self

    def raw(self, event_type: str, /, **payload: Any) -> Self:
        """Add an event of the kernel, whose payload names no task."""
        self.add(event_type, **payload)
        del self.events[-1].payload["task_id"]  # type: ignore[attr-defined] # a dict that this story made
        return self

    def begin(self, phase: str, unit: str | None = None, *, tier: str = "mid", rule: str = "default") -> Self:
        """Begin a run of a phase, or its next unit: model, context, one call, and the answer of a model."""
        if unit is None or self.runs.get(phase, 0) == 0 or not self._is_open(phase):
            self.runs[phase] = self.runs.get(phase, 0) + 1
        at = {"phase": phase, "iteration": self.runs[phase], "unit": unit}
        self.add("swe.phase_started", **at, agent=f"{phase}-agent")
        self.add("swe.model_chosen", **at, tier=tier, rule=rule, reason="why")
        self.add("swe.context_assembled", **at, tokens=90, counted="provider", budget=100, parts=[], left_out=[])
        self.raw("tool.call", args={}, tool_name="swe/read")
        return self.raw(
            "llm.response", ability="model/mid", response={"usage": {"input_tokens": 90, "output_tokens": 10}}
        )

    def _is_open(self, phase: str) -> bool:
        last = next(each for each in reversed(self.events) if each.payload.get("phase"))
        return bool(last.payload["phase"] == phase)

    def complete(self, phase: str, unit: str | None = None, **facts: Any) -> Self:
        return self.add(
            "swe.phase_completed", phase=phase, iteration=self.runs[phase], unit=unit, gate=None, outputs={},
            facts={**FACTS.get(phase, {}), **facts},
        )  # fmt: skip

    def block(
        self, phase: str, rule: str | None = "unit-tests", *, by: str = "rule", unit: str | None = None, **more: Any
    ) -> Self:
        given = {
            "place": None,
            "severity": "BLOCKER",
            "issue": f"{phase}:{rule}:",
            "reason": "it failed",
            "missing": [],
        }
        return self.add(
            "swe.phase_blocked", phase=phase, iteration=self.runs[phase], unit=unit, by=by, rule=rule,
            **{**given, **more},
        )  # fmt: skip

    def back(
        self, phase: str, to: str, rule: str | None = "unit-tests", *, cascade: bool = False, at: str = ""
    ) -> Self:
        """Send the task back; *at* is the phase whose rule found the issue, if it is not *phase*."""
        return self.add(
            "swe.rolled_back", from_phase=phase, to_phase=to, issue=f"{at or phase}:{rule}:", reason="it failed",
            count=1, cascade=cascade,
        )  # fmt: skip

    def passing(self, *phases: str, tier: str = "mid", rule: str = "default", **facts: Any) -> Self:
        """Take the task through phases without trouble."""
        for phase in phases:
            units = ("u1", "u2") if phase == "implementation" else (None,)
            for unit in units:
                self.begin(phase, unit, tier=tier, rule=rule).complete(phase, unit, **facts)
        return self

    def end(self, state: str = "done") -> Self:
        return self.add("swe.task_ended", state=state, commit="c0ffee" if state == "done" else None)

    @property
    def record(self) -> TaskRecord:
        return TaskRecord.from_events(self.events, session="5e" * 16)


def clean(task: str = "t1", **how: Any) -> Story:
    """Return a task without any trouble."""
    return Story(task, **how).passing(*PHASES).end()


def reworked(task: str = "t1", **how: Any) -> Story:
    """Return a task that security sends back to implementation, through verification."""
    story = Story(task, **how).passing(*PHASES[:5]).begin("security").block("security", "token-in-query", unit=None)
    story.back("security", "verification", "token-in-query")
    story.back("verification", "implementation", "token-in-query", cascade=True, at="security")
    return story.passing(*PHASES[3:]).end()
