"""The files of ``world/``: renderings of what the ledgers say about patterns and routing; pure.

Only the runner writes them. The same record gives the same bytes.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from deedbook import Object
from deedbook_flow_swe.yaml_text import render_yaml

from .evidence import ANTI_PATTERN, PATTERN, Mention, PatternEvidence

MOST_REWARDS: Final = 50
"""The most rows of ``rewards.md``; the ledgers have all rewards."""
EVIDENCE_FOLDER: Final = "world/reward-evidence"
VERIFIED_PATTERNS: Final = "world/verified-patterns"
_FOLDERS: Final = {PATTERN: VERIFIED_PATTERNS, ANTI_PATTERN: "world/anti-patterns"}


def pattern_path(kind: str, pattern: str) -> str:
    """Return the file of a promoted pattern."""
    return f"{_FOLDERS[kind]}/{pattern}.md"


def evidence_path(kind: str, pattern: str) -> str:
    """Return the file with the evidence about a pattern."""
    return f"{EVIDENCE_FOLDER}/{pattern}{'-anti' if kind == ANTI_PATTERN else ''}-pattern.yaml"


def routing_path(policy: str) -> str:
    """Return the file of the routing policy in force."""
    return f"world/routing-policies/{policy}.yaml"


def agent_rewards_path(agent: str) -> str:
    """Return the file with the rewards of an agent."""
    return f"agents/{agent}/rewards.md"


def render_pattern(evidence: PatternEvidence, mention: Mention) -> str:
    """Return the file of a promoted pattern: tags and tasks as front matter, and the words of the retrospective."""
    front = {"id": evidence.pattern, "kind": evidence.kind, "title": mention.title, "tags": list(evidence.tags)}
    tasks = [row["task_id"] for row in evidence.rows]
    return f"---\n{render_yaml({**front, 'tasks': tasks})}---\n# {_one_line(mention.title)}\n\n{mention.text.strip()}\n"


def render_evidence(evidence: PatternEvidence, mention: Mention) -> str:
    """Return the file with the evidence about a pattern (``pattern_evidence_v2``).

    Its tags are those by which contracts select files for a task.
    """
    head = {"schema_version": "v2", "pattern_candidate": evidence.pattern, "kind": evidence.kind}
    return render_yaml({**head, "title": mention.title, "tags": list(evidence.tags), **evidence.as_json(), **head})


def summarise_evidence(document: Object) -> dict[str, Any]:
    """Return what a prompt shows of a file of `render_evidence`: no task, since prompts have no rewards of others.

    Raises `KeyError` for a document of another form.
    """
    shown = {name: document[name] for name in ("pattern_candidate", "kind", "title", "status")}
    criteria = {name: f"{row['found']} of {row['needed']}" for name, row in document["promotion_criteria"].items()}
    return {**shown, "tasks": len(document["evidence"]), **criteria}


def render_routing(policy: Object, revised: int | None) -> str:
    """Return the file of the routing policy in force, with the event of the workspace ledger that revised it."""
    since = "the charter" if revised is None else f"event {revised} of the workspace ledger"
    return f"# The policy in force, from {since}. Edits have no effect.\n{render_yaml(policy)}"


def render_reward(reward: Object) -> str:
    """Return ``reward.yaml``."""
    return render_yaml(reward)


def render_agent_rewards(agent: str, rewards: Sequence[tuple[Object, str]], earlier: str = "") -> str:
    """Return ``rewards.md`` of an agent: a row for each reward and phase of the agent. No agent gets to read it.

    The rows of other tasks in *earlier*, the present text of the page, stay: the last `MOST_REWARDS` rows in all.
    """
    rows = [_reward_row(reward, phase) for reward, phase in rewards]
    tasks = {_task_of(row) for row in rows}
    kept = [row for row in _find_rows(earlier) if _task_of(row) not in tasks]
    lines = [
        f"# Rewards of {agent}",
        "",
        "The runner writes this page. Edits have no effect.",
        "",
        _HEAD,
        _RULE,
        *[*kept, *rows][-MOST_REWARDS:],
    ]
    return "\n".join(lines) + "\n"


_HEAD: Final = "| task | phase | composite | iterations | outcome | cause |"
_RULE: Final = "|---|---|---|---|---|---|"


def _reward_row(reward: Object, phase: str) -> str:
    health = reward["phase_health"].get(phase, {})
    cells = (reward["task_id"], phase, reward["composite_score"], health.get("iterations"), health.get("outcome"))
    return "| " + " | ".join([*map(_cell, cells), _cell(health.get("cause", ""))]) + " |"


def _find_rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ") and line != _HEAD]


def _task_of(row: str) -> str:
    return row.removeprefix("| ").partition(" | ")[0]


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return _one_line(text).replace("|", "\\|")


def _one_line(text: str) -> str:
    return " ".join(text.split())
