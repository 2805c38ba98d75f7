"""Files that show people where tasks stand; pure. They are renderings of the record, and never read as state.

Several tasks share some files. Each run writes the part of its own task and carries over the parts of others as they
are. A part that was edited is found by its text, reported, and written again. Of the tasks that have ended, these
files have the last `MOST_ENDED`: a run reads and records them at each phase, so they must not grow with all tasks.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook import Object
from deedbook_flow_swe.definition import Definition
from deedbook_flow_swe.shown import ROLLBACK_LOG
from deedbook_flow_swe.yaml_text import render_yaml

from .state import AWAITING_HUMAN, DONE, ENDS, PipelineState
from .values import MalformedFile, read_object, read_value

STATE: Final = "shared/pipeline-state.yaml"
ROLLBACKS: Final = ROLLBACK_LOG
HUMAN: Final = "shared/human-review-queue.md"
METRICS: Final = "metrics/pipeline.jsonl"
SHARED: Final = (STATE, ROLLBACKS, HUMAN, METRICS)
"""The files that all tasks share, from the data folder."""
_TITLES: Final[Mapping[str, str]] = {
    ROLLBACKS: "# Rollbacks\n\nThe runner writes this page from the ledger. Edits are reported and overwritten.\n",
    HUMAN: "# Tasks that wait for a person\n\nThe runner writes this page from the ledger. Edits are reported and "
    "overwritten.\nAnswer with `deedbook approvals` or `deedbook swe resume`.\n",
}
_ANSWERED: Final = "- A person has answered; `deedbook swe run` goes on with the task."
_NAME: Final = re.compile(r"## (\S+)")
MOST_ENDED: Final = 20
"""The most tasks in the shared files that have ended; `deedbook swe status` and `metrics` read all from the ledgers."""


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
    rows = [each for each in _read_rows(found.get(STATE, "")) if each.get("task_id") != task]
    old = _find_old(rows)
    rows = [each for each in rows if each.get("task_id") not in old]
    others = _Others(frozenset(str(each.get("task_id")) for each in rows), {task, *old})
    return {
        STATE: _render_states(definition, [*rows, dict(parts.state)]),
        ROLLBACKS: _render_sections(ROLLBACKS, task, parts.rollbacks, found.get(ROLLBACKS, ""), others),
        HUMAN: _render_sections(HUMAN, task, parts.waits, found.get(HUMAN, ""), others),
        METRICS: _render_lines(parts.metrics, found.get(METRICS, ""), others),
    }


@attrs.frozen
class _Others:
    """The other tasks whose parts are carried over: those that have *rows*, and the last of any others not *left*.

    A task without a row is in a page whose neighbour was edited or removed.
    """

    rows: frozenset[str]
    left: Collection[str]

    def choose(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of *names*, in their order, are carried over."""
        strangers = dict.fromkeys(each for each in names if each not in self.rows and each not in self.left)
        return self.rows | frozenset([*strangers][-MOST_ENDED:])


def _find_old(rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the tasks of *rows* that have ended, without the last `MOST_ENDED`."""
    ended = sorted((_last_time(each), str(each.get("task_id"))) for each in rows if each.get("state") in ENDS)
    return frozenset(task for _, task in ended[: max(0, len(ended) - MOST_ENDED)])


def _last_time(row: Mapping[str, Any]) -> str:
    history = row.get("phase_history")
    phases = [each for each in history if isinstance(each, dict)] if isinstance(history, list) else []
    return max([str(row.get("phase_started") or ""), *(str(each.get("completed") or "") for each in phases)])


def read_part(path: str, task: str, text: str) -> str:
    """Return the part of *task* in a shared file, in a form in which only edits differ."""
    return _READERS[path](task, text)


# --- pipeline-state.yaml ----------------------------------------------------------------------------------------------


def _render_states(definition: Definition, rows: Sequence[Mapping[str, Any]]) -> str:
    ordered = sorted(rows, key=lambda each: str(each.get("task_id")))
    return render_yaml({"schema_version": "v1", "pipeline": definition.id, "tasks": ordered})


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


def _render_sections(path: str, task: str, lines: Sequence[str], found: str, others: _Others) -> str:
    """Return the page with the section of *task*, and those of *others* that were *found*."""
    there = _sections(found)
    carried = others.choose(there)
    sections = {name: body for name, body in there.items() if name in carried}
    if lines:
        sections[task] = f"## {task}\n\n" + "".join(f"- {_plain(each)}\n" for each in lines)
    bodies = "".join(f"\n{sections[name].rstrip()}\n" for name in sorted(sections))
    return f"{_TITLES[path]}{bodies}"


def _read_section(task: str, text: str) -> str:
    return _sections(text).get(task, "").strip()


def mark_answered(text: str, tasks: Collection[str]) -> str:
    """Return the page of the tasks that wait, on which *tasks* have an answer."""
    for name, body in _sections(text).items():
        if name in tasks and _ANSWERED not in body:
            text = text.replace(body, f"{body}\n{_ANSWERED}")
    return text


def _read_wait(task: str, text: str) -> str:
    """Return the section of a task that waits; that it was answered is no edit of it."""
    return _read_section(task, text).removesuffix(_ANSWERED).rstrip()


def _plain(line: str) -> str:
    return " ".join(line.split())


# --- pipeline.jsonl ---------------------------------------------------------------------------------------------------


def _render_lines(lines: Sequence[str], found: str, others: _Others) -> str:
    there = [(_task_of(line), line) for line in found.splitlines() if line.strip()]
    carried = others.choose(task for task, _ in there if task is not None)
    kept = [line for task, line in there if task is None or task in carried]
    return "".join(f"{line}\n" for line in [*kept, *lines])


def _task_of(line: str) -> str | None:
    task = read_object(line).get("task_id")
    return task if isinstance(task, str) else None


def _read_lines(task: str, text: str) -> str:
    return "\n".join(line for line in text.splitlines() if _task_of(line) == task)


_READERS: Final[Mapping[str, Callable[[str, str], str]]] = {
    STATE: _read_state,
    ROLLBACKS: _read_section,
    HUMAN: _read_wait,
    METRICS: _read_lines,
}
