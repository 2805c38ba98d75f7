"""The files that all tasks share: they have the parts of the tasks that have not ended, and of the last that have."""

import json

import pytest
from pipelines import copy_workspace, definition_of

from deedbook_flow_swe.running.renderings import (
    HUMAN,
    METRICS,
    MOST_ENDED,
    ROLLBACKS,
    STATE,
    Parts,
    read_part,
    render_shared,
)


@pytest.fixture
def definition(tmp_path):
    return definition_of(copy_workspace("small", tmp_path / "work"))


def parts(task, minute, state="DONE"):
    """Return the parts of a task that completed a phase at a *minute*."""
    time = f"2026-01-31T09:{minute:02}:00.000Z"
    row = {"task_id": task, "state": state, "phase_started": None, "phase_history": [{"completed": time}]}
    return Parts(state=row, rollbacks=("a rollback",), waits=("a question",), metrics=(json.dumps({"task_id": task}),))


def shown(files):
    """Return the tasks that each shared file shows."""
    names = [f"task-{number:02}" for number in range(MOST_ENDED + 10)]
    return {path: [name for name in names if read_part(path, name, text).strip("[]")] for path, text in files.items()}


def test_shared_files_have_the_last_tasks_that_ended_and_all_that_have_not(definition):
    files = {}
    for number in range(MOST_ENDED + 5):
        minute = 59 - number  # the tasks with the first names end last
        state = "BUILD" if number == MOST_ENDED + 4 else "DONE"
        files = render_shared(definition, f"task-{number:02}", parts(f"task-{number:02}", minute, state), files)
    last = f"task-{MOST_ENDED + 5:02}"
    files = render_shared(definition, last, parts(last, 0), files)
    wanted = [*(f"task-{number:02}" for number in range(MOST_ENDED)), f"task-{MOST_ENDED + 4:02}", last]
    assert shown(files) == dict.fromkeys((STATE, ROLLBACKS, HUMAN, METRICS), wanted)


def test_shared_files_stay_small_where_the_page_of_states_is_damaged(definition):
    lines = "".join(f'{{"task_id":"task-{number:02}"}}\n' for number in range(MOST_ENDED + 10))
    sections = "".join(f"## task-{number:02}\n\n- a\n" for number in range(MOST_ENDED + 10))
    files = render_shared(definition, "own", parts("own", 1), {STATE: "[", METRICS: lines, HUMAN: sections})
    assert [len(names) for path, names in shown(files).items() if path in (METRICS, HUMAN)] == [MOST_ENDED] * 2
    assert "task-29" in files[METRICS]


def test_line_that_is_of_no_task_is_carried_over(definition):
    found = {METRICS: "a remark\n[1]\n"}
    assert render_shared(definition, "task-00", parts("task-00", 1), found)[METRICS].startswith("a remark\n[1]\n{")
