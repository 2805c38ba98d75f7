"""What the runner does about learning in one task: the routing in force, metrics, the reward, promotions.

The runner records every event through `TaskLearning.record`, so that the record of the task, from which everything
here is computed, is the same as the one that anybody folds from the ledger afterwards.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from deedbook import Failed, Object, Run
from deedbook_flow_swe import events as names
from deedbook_flow_swe.task_record import TaskRecord

from . import world
from .evidence import PROMOTED, Mention, PatternEvidence
from .metrics import build_line, render_line
from .policy_kinds import PATTERN_SUBJECT, PROMOTION, ROUTING, ROUTING_SUBJECT, name_policy
from .reward import compute_reward
from .routing import RoutingPolicy

NO_ROUTING: Final = "0" * 64
"""The digest that stands for no routing policy."""
_TIMED: Final = frozenset({names.TASK_STARTED, names.PHASE_COMPLETED, names.TASK_ENDED})
"""The events whose time the record keeps."""


class TaskLearning:
    """Learns from one task of *pipeline*; *run* records and asks the policies of the pipeline."""

    def __init__(self, run: Run, pipeline: str, task: str) -> None:
        self._run, self._pipeline, self._task = run, pipeline, task
        self._record: TaskRecord | None = None

    # --- routing ------------------------------------------------------------------------------------------------------

    def find_routing(self, charter_policy: Object | None) -> RoutingPolicy | None:
        """Return the routing policy in force as the task begins; the task keeps it. Raises `Failed`.

        *charter_policy* is that of the definition; without one there is no policy.
        """
        if charter_policy is None:
            return None
        policy = name_policy(ROUTING, self._pipeline)
        answer = self._run.decide(policy, ROUTING_SUBJECT, {"task_id": self._task}).decision
        if answer.outcome != "allow":
            raise Failed("NOT_AVAILABLE", f"the routing policy in force is unknown: {answer.reason}")
        return RoutingPolicy.parse(answer.signals["policy"])

    # --- the record ---------------------------------------------------------------------------------------------------

    def record(self, event_type: str, payload: Object) -> None:
        """Record an event of the task (`events`), and apply it to the record; *payload* may lack ``task_id``."""
        whole = {"task_id": self._task, **payload}
        self._run.record(event_type, whole)
        now = self._run.now() if event_type in _TIMED else ""
        if event_type == names.TASK_STARTED:
            self._record = TaskRecord.begin(whole, now)
        else:
            self.task.apply(event_type, whole, now)

    @property
    def task(self) -> TaskRecord:
        """The record of the task so far; raises `RuntimeError` before its first event."""
        if self._record is None:
            raise RuntimeError("the task has not begun")
        return self._record

    def build_metrics_line(self, phase: str, iteration: int) -> str:
        """Return the line of ``metrics/pipeline.jsonl`` after a run of a phase."""
        return render_line(build_line(self.task, phase, iteration, self._run.now()))

    # --- the end ------------------------------------------------------------------------------------------------------

    def reward(self, mentions: Sequence[Object] = ()) -> dict[str, str]:
        """Compute and record the reward, promote what the evidence confirms, and return files by path.

        *mentions* are the patterns that the retrospective names (`evidence.Mention`). The paths begin at the data
        folder. Call it once, after the retrospective, or after the end of a task that failed.
        """
        found = [Mention.parse(each) for each in mentions]
        reward = compute_reward(self.task, self._run.now(), found)
        self.record(names.REWARDED, {"reward": reward})
        files = {f"tasks/{self._task}/retrospective/reward.yaml": world.render_reward(reward)}
        for mention in found:
            files |= dict(self._promote(reward, mention))
        return files

    def _promote(self, reward: Object, mention: Mention) -> Iterator[tuple[str, str]]:
        """Ask whether *mention* is promoted, record it if so, and yield the files about it."""
        policy = name_policy(PROMOTION, self._pipeline)
        subject = {"reward": reward, "pattern": mention.pattern, "kind": mention.kind}
        answer = self._run.decide(policy, PATTERN_SUBJECT, subject).decision
        if "evidence" not in answer.signals:
            return
        evidence = PatternEvidence.parse(answer.signals["evidence"])
        if answer.outcome == "allow":
            tasks: list[Any] = [row["task_id"] for row in evidence.rows]
            promoted = {"pattern": mention.pattern, "kind": mention.kind, "tasks": tasks}
            self.record(names.PATTERN_PROMOTED, promoted)
            evidence = attrs.evolve(evidence, state=PROMOTED)
            yield world.pattern_path(mention.kind, mention.pattern), world.render_pattern(evidence, mention)
        yield world.evidence_path(mention.kind, mention.pattern), world.render_evidence(evidence)
