"""The end of a task: its reward, and the patterns that its retrospective proposes; a policy decides about them."""

from collections.abc import Iterator
from typing import Any, Final

import attrs

from deedbook import Failed, Object, Run
from deedbook_flow_swe.events import PATTERN_PROMOTED, REWARDED
from deedbook_flow_swe.learning.evidence import PROMOTED, Mention, PatternEvidence
from deedbook_flow_swe.learning.policy_kinds import PATTERN_SUBJECT, PROMOTION, name_policy
from deedbook_flow_swe.learning.reward import compute_reward
from deedbook_flow_swe.learning.world import (
    agent_rewards_path,
    evidence_path,
    pattern_path,
    render_agent_rewards,
    render_evidence,
    render_pattern,
    render_reward,
)

from .material import TaskMaterial

RETROSPECTIVE: Final = "retrospective"
"""The phase whose outputs name patterns, and whose folder gets the reward."""
_ATTEMPTS: Final = 50
"""How often the pages of agents are read again: another task may have written its rows in between."""
_CONFLICT: Final = "WRITE_CONFLICT"


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
    if not reward["generated"]:
        _publish_rewards(run, material, reward)


def _publish_rewards(run: Run, material: TaskMaterial, reward: Object) -> None:
    """Add the reward to the page of each agent that worked on the task."""
    rows: dict[str, list[tuple[Object, str]]] = {}
    for contract in material.definition.phases:
        if contract.phase in reward["phase_health"]:
            rows.setdefault(contract.agent, []).append((reward, contract.phase))
    paths = {material.path(agent_rewards_path(agent)): agent for agent in rows}
    for _ in range(_ATTEMPTS):
        found: Any = run.call(material.ability("read"), {"paths": [], "optional": list(paths)})
        there = {each["path"]: each for each in found["files"]}
        earlier = {path: there[path]["text"] if path in there else "" for path in paths}
        texts = {path: render_agent_rewards(agent, rows[agent], earlier[path]) for path, agent in paths.items()}
        try:
            material.write(run, texts, {path: there[path]["digest"] if path in there else "" for path in paths})
        except Failed as failure:
            if failure.code != _CONFLICT:
                raise
        else:
            return
    raise Failed(_CONFLICT, f"other tasks wrote the rewards of agents {_ATTEMPTS} times in a row", retryable=True)


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
    files[evidence_path(mention.kind, mention.pattern)] = render_evidence(evidence, mention)
    return files
