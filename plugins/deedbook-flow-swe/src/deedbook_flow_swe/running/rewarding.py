"""The end of a task: its reward, and the patterns that its retrospective proposes; a policy decides about them."""

from collections.abc import Iterator
from typing import Any, Final

import attrs

from deedbook import Object, Run
from deedbook_flow_swe.events import PATTERN_PROMOTED, REWARDED
from deedbook_flow_swe.learning.evidence import PROMOTED, Mention, PatternEvidence
from deedbook_flow_swe.learning.policy_kinds import PATTERN_SUBJECT, PROMOTION, name_policy
from deedbook_flow_swe.learning.reward import compute_reward
from deedbook_flow_swe.learning.world import evidence_path, pattern_path, render_evidence, render_pattern, render_reward

from .material import TaskMaterial

RETROSPECTIVE: Final = "retrospective"
"""The phase whose outputs name patterns, and whose folder gets the reward."""


def reward_task(run: Run, material: TaskMaterial) -> None:
    """Compute, record and write the reward of a task that has ended, and promote what the policy allows."""
    record = material.record
    if record is None:
        return
    mentions = list(find_mentions(material))
    reward = compute_reward(record, material.time, mentions)
    folder = f"tasks/{material.id}/{RETROSPECTIVE}"
    files = {f"{folder}/reward.yaml": render_reward(reward)}
    material.note(run, REWARDED, {"reward": reward})
    for mention in mentions:
        files |= _judge(run, material, reward, mention)
    material.write(run, {material.path(name): text for name, text in files.items()})


def find_mentions(material: TaskMaterial) -> Iterator[Mention]:
    """Yield the patterns that the outputs of the retrospective propose."""
    for value in material.outputs.get(RETROSPECTIVE, {}).values():
        rows = value.get("patterns") if isinstance(value, dict) else None
        for row in rows if isinstance(rows, list) else ():
            mention = Mention.read(row)
            if mention is not None:
                yield mention


def _judge(run: Run, material: TaskMaterial, reward: Object, mention: Mention) -> dict[str, str]:
    """Ask the policy about a pattern, and return the files that show the evidence, and a promoted pattern."""
    policy = name_policy(PROMOTION, material.definition.id)
    value = {"reward": reward, "pattern": mention.pattern, "kind": mention.kind}
    decision = run.decide(policy, PATTERN_SUBJECT, value).decision
    document: Any = decision.signals.get("evidence")
    if document is None:
        return {}
    evidence = PatternEvidence.parse(document)
    files: dict[str, str] = {}
    if decision.outcome == "allow":
        tasks = [str(row["task_id"]) for row in evidence.rows]
        material.note(run, PATTERN_PROMOTED, {"pattern": mention.pattern, "kind": mention.kind, "tasks": tasks})
        evidence = attrs.evolve(evidence, state=PROMOTED)
        files[pattern_path(mention.kind, mention.pattern)] = render_pattern(evidence, mention)
    files[evidence_path(mention.kind, mention.pattern)] = render_evidence(evidence)
    return files
