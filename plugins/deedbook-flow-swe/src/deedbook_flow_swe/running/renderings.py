"""Files that show people where tasks stand; pure. They are renderings of the record, and never read as state.

Several tasks share some files. Each run writes the part of its own task and carries over the parts of others as they
are. A part that somebody edited is found by its text, reported, and written again.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook import Object
from deedbook_flow_swe.definition import Definition

from .state import AWAITING_HUMAN, DONE, PipelineState
from .values import MalformedFile, read_object, read_value

STATE: Final = "shared/pipeline-state.yaml"
ROLLBACKS: Final = "shared/rollback-log.md"
HUMAN: Final = "shared/human-review-queue.md"
METRICS: Final = "metrics/pipeline.jsonl"
SHARED: Final = (STATE, ROLLBACKS, HUMAN, METRICS)
"""The files that all tasks share, from the data folder."""
_TITLES: Final[Mapping[str, str]] = {
    ROLLBACKS: "# Rollbacks\n\nThe runner writes this page from the ledger. Edits are reported and overwritten.\n",
    HUMAN: "# Tasks that wait for a person\n\nThe runner writes this page from the ledger. Edits are reported and "
    "overwritten.\nAnswer with `deedbook approvals` or `deedbook resume`.\n",
}
_NAME: Final = re.compile(r"## (\S+)")


def meta_path(task: str) -> str:
    """Return the path of a task's own page, from the data folder."""
    return f"tasks/{task}/META.yaml"


def render_meta(task: Object, state: str) -> str:
    """Return ``META.yaml``: the *task* (``swe_task_v1``) with its present status."""
    return render_yaml({**task, "status": state})


def describe_state(task: str, state: PipelineState) -> dict[str, Any]:
    """Return the row of a task in ``pipeline-state.yaml``."""
    entry = state.history[state.phase]
    waits = state.state == AWAITING_HUMAN
    known = {"in_progress", "completed", "blocked"}
    return {
        "task_id": task,
        "state": state.state,
        "current_phase": None if state.state == DONE else state.phase,
        "phase_status": "blocked" if waits else entry.status if entry.status in known else "waiting",
        "phase_started": state.started,
        "rollback_count_this_phase": entry.rollbacks,
        "total_rollbacks_this_task": state.rollbacks,
        "phase_history": [
            {
                "phase": each.phase,
                "status": each.status,
                "iterations": each.iterations,
                "rollbacks": each.rollbacks,
                "rollback_reason": each.rollback_reason,
                "completed": each.completed,
            }
            for each in (state.history[phase] for phase in state.phases)
            if each.iterations
        ],
        "human_review_pending": waits,
        "blocked": waits or entry.status == "blocked",
    }


@attrs.frozen(kw_only=True)
class Parts:
    """What one task contributes to the shared files.

    *state* is its row, *rollbacks* and *waits* are lines, and *metrics* are lines of JSON.
    """

    state: Object
    rollbacks: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()


def render_shared(definition: Definition, task: str, parts: Parts, found: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of the shared files with the *parts* of *task*; *found* are their present texts."""
    return {
        STATE: _render_states(definition, task, parts.state, found.get(STATE, "")),
        ROLLBACKS: _render_sections(ROLLBACKS, task, parts.rollbacks, found.get(ROLLBACKS, "")),
        HUMAN: _render_sections(HUMAN, task, parts.waits, found.get(HUMAN, "")),
        METRICS: _render_lines(task, parts.metrics, found.get(METRICS, "")),
    }


def read_part(path: str, task: str, text: str) -> str:
    """Return the part of *task* in a shared file, in a form in which only edits differ."""
    return _READERS[path](task, text)


# --- pipeline-state.yaml ----------------------------------------------------------------------------------------------


def _render_states(definition: Definition, task: str, row: Object, found: str) -> str:
    rows = [each for each in _read_rows(found) if each.get("task_id") != task]
    rows = sorted([*rows, dict(row)], key=lambda each: str(each.get("task_id")))
    return render_yaml({"schema_version": "v1", "pipeline": definition.id, "tasks": rows})


def _read_rows(text: str) -> list[dict[str, Any]]:
    try:
        value = read_value(STATE, text)
    except MalformedFile:
        return []
    rows = value.get("tasks") if isinstance(value, dict) else None
    return [each for each in rows if isinstance(each, dict)] if isinstance(rows, list) else []


def _read_state(task: str, text: str) -> str:
    rows = [each for each in _read_rows(text) if each.get("task_id") == task]
    return json.dumps(rows, sort_keys=True)


# --- pages with a section for each task -------------------------------------------------------------------------------


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    named = ((_NAME.match(each), each.strip()) for each in parts)
    return {name[1]: body for name, body in named if name}


def _render_sections(path: str, task: str, lines: Sequence[str], found: str) -> str:
    sections = {name: body for name, body in _sections(found).items() if name != task}
    if lines:
        sections[task] = f"## {task}\n\n" + "".join(f"- {_plain(each)}\n" for each in lines)
    bodies = "".join(f"\n{sections[name].rstrip()}\n" for name in sorted(sections))
    return f"{_TITLES[path]}{bodies}"


def _read_section(task: str, text: str) -> str:
    return _sections(text).get(task, "").strip()


def _plain(line: str) -> str:
    return " ".join(line.split())


# --- pipeline.jsonl ---------------------------------------------------------------------------------------------------


def _render_lines(task: str, lines: Sequence[str], found: str) -> str:
    others = [line for line in found.splitlines() if line.strip() and not _is_of(task, line)]
    return "".join(f"{line}\n" for line in [*others, *lines])


def _is_of(task: str, line: str) -> bool:
    return read_object(line).get("task_id") == task


def _read_lines(task: str, text: str) -> str:
    return "\n".join(line for line in text.splitlines() if _is_of(task, line))


_READERS: Final[Mapping[str, Callable[[str, str], str]]] = {
    STATE: _read_state,
    ROLLBACKS: _read_section,
    HUMAN: _read_section,
    METRICS: _read_lines,
}


# --- YAML -------------------------------------------------------------------------------------------------------------


def render_yaml(value: Mapping[str, Any]) -> str:
    """Return *value* as YAML: a line for each member, lists and objects indented, each scalar as JSON."""
    return "".join(_yaml_lines(value, ""))


def _yaml_lines(value: Mapping[str, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for key, each in value.items():
        lines += _yaml_member(f"{indent}{key}:", each, indent)
    return lines


def _yaml_member(head: str, value: Any, indent: str) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [f"{head}\n", *_yaml_lines(value, f"{indent}  ")]
    if isinstance(value, list) and value and any(isinstance(each, Mapping) for each in value):
        lines = [f"{head}\n"]
        for each in value:
            first, *rest = _yaml_lines(each, f"{indent}    ")
            lines += [f"{indent}  - {first.lstrip()}", *rest]
        return lines
    return [f"{head} {json.dumps(value, ensure_ascii=False)}\n"]
