"""Gate files: what the runner writes when a phase passes, is blocked, or waits for a person; pure.

Only the runner writes gate files. A contract's limits exclude them, and `is_gate` finds them in an agent's answer. A
gate file is for people: the runner decides from the record of the run, never from a gate file.
"""

import json
from collections.abc import Mapping
from typing import Any

from deedbook import Object
from deedbook.format.paths import fold_path
from deedbook_flow_swe.contract import Contract

from .blocks import LONGEST_REASON, Block


def is_gate(contract: Contract, path: str) -> bool:
    """Return whether *path* has the name of a gate file of any spelling; agents may not write such a file."""
    names = {fold_path(name) for name in contract.gate.names}
    return fold_path(path.rpartition("/")[2]) in names


def render_document(front: Mapping[str, Any], body: str) -> str:
    """Return Markdown with *front* as its front matter; each value is JSON, which is also YAML."""
    lines = "".join(f"{key}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}\n" for key, value in front.items())
    return f"---\n{lines}---\n{body.rstrip()}\n"


def build_gate(
    contract: Contract,
    *,
    task: str,
    iteration: int,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    time: str,
    approved_by: str | None = None,
) -> dict[str, Any]:
    """Return the front matter of the gate file of a phase that has passed (``gate_v1``)."""
    return {
        "schema_version": "v1",
        "task_id": task,
        "phase": contract.phase,
        "unit": None,
        "iteration": iteration,
        "gate": contract.gate.passed,
        "contract": {"version": contract.version, "agent": contract.agent},
        "inputs": dict(inputs),
        "outputs": dict(outputs),
        "rules": [rule.id for rule in contract.rules],
        "approved_by": approved_by,
        "time": time,
    }


def render_gate(gate: Object) -> str:
    """Return the text of the gate file of a phase that has passed."""
    listed = "".join(f"- `{path}`\n" for path in sorted(gate["outputs"]))
    return render_document(gate, f"# {gate['phase']}: passed\n\nThe runner has approved these files:\n\n{listed}")


def build_signal(block: Block, *, task: str, phase: str, iteration: int, to_phase: str | None) -> dict[str, Any]:
    """Return the front matter of the gate file of a phase that is blocked (``block_signal_v1``)."""
    event = block.as_event(task, phase, iteration)
    return {"schema_version": "v1", "to_phase": to_phase, **event, "reason": event["reason"] or "no reason was given"}


def render_signal(signal: Object) -> str:
    """Return the text of the gate file of a phase that is blocked.

    It is part of a prompt with a budget: the text repeats nothing of the front matter.
    """
    return render_document(signal, f"# {signal['phase']}: blocked\n")


def render_review(
    *, task: str, phase: str, issue: str, reason: str, decision: str | None, note: str, seen: Mapping[str, str]
) -> str:
    """Return the text of the gate file of a phase that waits for a person, or that a person has decided about."""
    front = {
        "schema_version": "v1", "task_id": task, "phase": phase, "issue": issue, "reason": reason[:LONGEST_REASON],
        "decision": decision, "note": note, "seen": dict(seen),
    }  # fmt: skip
    state = f"A person decided: {decision}." if decision else "A person has to decide."
    return render_document(front, f"# {phase}: {state}\n")
