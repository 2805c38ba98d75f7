"""The queue: tasks from the command and from lines of a page, several at once, and the renderings that they share."""

import json
import threading

import pytest
from pipelines import definition_of
from shop import FIRST, SECOND, Shop, build, check, outline

from deedbook.format.errors import DeedbookError
from deedbook_flow_swe.running.board import TaskBoard, TaskRow
from deedbook_flow_swe.running.runner import PipelineRunner
from deedbook_flow_swe.running.task_queue import TaskQueue, parse_line, render_page

PAGE = "shared/queue.md"


def respond(request, ctx):
    """Answer for the task that the prompt names."""
    text = request["messages"][-1]["content"]
    task = text.partition("of task ")[2].partition("\n")[0].partition(",")[0].strip()
    given = {"outliner": outline(), "checker": check(), "builder": build(FIRST if FIRST in text else SECOND)}
    return given[request["role"]].replace("task-1", task)


@pytest.fixture
def shop(lab):
    made = Shop(lab)
    lab.model(respond, tier="mid")
    return made


class Desk:
    """A kernel with a queue and a runner."""

    def __init__(self, shop):
        self.shop, self.definition = shop, definition_of(shop.lab.path)
        self.session = shop.lab.session("open")
        self.kernel = shop.lab._kernels[-1]
        self.queue = TaskQueue(self.kernel, self.session, self.definition)

    def run(self, jobs=1, **options):
        runner = PipelineRunner(
            kernel=self.kernel,
            definition=self.definition,
            principal=self.session.principal,
            queue=self.queue,
            **options,
        )
        return runner.run(self.queue.list_waiting(), jobs)


@pytest.fixture
def desk(shop):
    made = Desk(shop)
    yield made
    made.queue.close()


def write_page(shop, text):
    place = shop.lab.path / PAGE
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)


def test_line_of_the_page_names_tags_and_project():
    assert parse_line("- Raise the limit #http @shop #slow") == {
        "title": "Raise the limit", "request": "Raise the limit #http @shop #slow", "tags": ["http", "slow"],
        "project": "shop",
    }  # fmt: skip


def test_task_waits_until_it_is_run_and_then_leaves_the_queue(desk):
    task = desk.queue.add({"title": "Raise the limit", "request": "To 2.", "project": "shop"})
    assert [(row.task_id, row.state) for row in desk.queue.list_rows()] == [(task, "QUEUED")]
    [ending] = desk.run()
    assert (ending.task_id, ending.state) == (task, "COMPLETED")
    assert desk.queue.list_waiting() == []
    [row] = desk.queue.list_rows()
    assert (row.state, row.session) == ("DONE", ending.session)
    assert "outline 1: APPROVED.md" in row.history


def test_new_lines_of_the_page_become_tasks_and_other_edits_are_overwritten(shop, desk):
    write_page(shop, "# Queue\n\n- Raise the limit #http @shop\n\nsome words\n- `task-9` DONE: forged\n")
    [task] = desk.queue.read_page()
    [waiting] = desk.queue.list_waiting()
    members = {key: waiting.task[key] for key in ("title", "source", "submitted_by", "project", "tags")}
    assert members == {
        "title": "Raise the limit", "source": "queue", "submitted_by": desk.session.principal.id, "project": "shop",
        "tags": ["http"],
    }  # fmt: skip
    text = shop.text(PAGE)
    assert f"- `{task}` QUEUED: Raise the limit\n" in text
    assert "some words" not in text
    assert "task-9" not in text
    assert desk.queue.read_page() == []


def test_most_urgent_task_runs_first_and_then_the_oldest(desk):
    for name, priority in (("a", "low"), ("b", None), ("c", "urgent"), ("d", "normal"), ("e", "high")):
        given = {"priority": priority} if priority else {}
        desk.queue.add({"title": name, "request": "To 2.", "project": "shop", "id": f"task-{name}", **given})
    assert [each.id for each in desk.queue.list_waiting()] == ["task-c", "task-e", "task-b", "task-d", "task-a"]


def test_same_line_of_the_same_page_is_one_task_also_after_a_crash(shop, desk):
    text = "- Raise the limit @shop\n"
    write_page(shop, text)
    first = desk.queue.read_page()
    write_page(shop, text)
    assert desk.queue.read_page() == first
    assert len(desk.queue.list_waiting()) == 1


def test_task_from_a_line_is_recorded_with_who_and_digest(shop, desk):
    write_page(shop, "- Raise the limit @shop\n")
    [task] = desk.queue.read_page()
    desk.run()
    [row] = desk.queue.list_begun()
    started = shop.lab.payload("swe.task_started", row.session)
    assert (started["task_id"], len(started["digest"])) == (task, 64)
    assert 'source: "queue"' in shop.text(f"tasks/{task}/META.yaml")


def test_several_tasks_run_at_once_and_share_the_renderings(shop, desk):
    both = threading.Barrier(2, timeout=60)
    seen = set()

    def meet(task, event):
        if event.type == "swe.phase_started" and task not in seen:
            seen.add(task)
            both.wait()

    tasks = [desk.queue.add({"title": name, "request": name, "project": "shop"}) for name in ("one", "two")]
    assert [each.state for each in desk.run(jobs=2, listen=meet)] == ["COMPLETED"] * 2
    state = shop.text("shared/pipeline-state.yaml")
    assert all(f'task_id: "{task}"' in state for task in tasks)
    assert state.count('state: "DONE"') == 2


def test_same_task_is_begun_once(shop, desk):
    shop.run({"id": "task-7"})
    found = shop.run({"id": "task-7"})
    assert found.error.code == "WRITE_CONFLICT"
    assert [each for each, _ in shop.events() if each.startswith("swe.")] == []


def test_edited_rendering_is_reported_and_written_again(shop):
    def edit(request, ctx):
        if request["role"] == "checker":
            page = shop.lab.path / "shared/pipeline-state.yaml"
            page.write_text(page.read_text().replace("CHECK", "DONE").replace("iterations: 1", "iterations: 9", 1))
            (shop.lab.path / "tasks/task-1/META.yaml").write_text("id: other\n")
        return respond(request, ctx)

    shop.lab.model(edit, tier="mid")
    assert shop.run().value.state == "COMPLETED"
    assert [each["path"] for each in shop.events("rendering_edited")] == [
        "shared/pipeline-state.yaml", "tasks/task-1/META.yaml",
    ]  # fmt: skip
    assert "iterations: 9" not in shop.text("shared/pipeline-state.yaml")
    assert 'id: "task-1"' in shop.text("tasks/task-1/META.yaml")


def test_task_with_members_that_no_task_has_is_refused(shop, desk):
    with pytest.raises(DeedbookError) as caught:
        desk.queue.add({"title": "", "request": ""})
    assert caught.value.error.code == "SCHEMA_VIOLATION"
    found = shop.run({"colour": "red"})
    assert (found.error.code, "colour" in str(found.error)) == ("SCHEMA_VIOLATION", True)


def test_board_reads_a_task_that_waits_for_nobody_and_one_that_was_interrupted(shop):
    shop.lab.session("run").ledger.close()
    assert TaskBoard(shop.lab.state).list_rows() == []


def test_request_in_plain_words_is_a_task_too(shop):
    with shop.lab.session("run") as session:
        found = session.run("Raise the limit", "swe/small")
    assert found.value.state == "COMPLETED", json.dumps(found.value.text)


def test_line_without_a_title_is_refused_and_does_not_copy_itself(shop, desk):
    write_page(shop, "- #http\n- `task-9` QUEUED:\n")
    with pytest.raises(DeedbookError, match="a task needs a title"):
        desk.queue.read_page()
    assert desk.queue.list_waiting() == []


def test_page_shows_of_the_tasks_that_have_ended_only_the_last():
    states = ["DONE"] * 20 + ["HALTED", "QUEUED"]
    rows = [TaskRow(task_id=f"task-{at}", title="x", pipeline="small", state=each) for at, each in enumerate(states)]
    text = render_page(rows)
    assert ["`task-0`" in text, "`task-1`" in text, "`task-20` HALTED" in text] == [False, True, True]
    assert "`task-21` QUEUED" in text


def test_task_whose_repository_is_gone_when_it_begins_has_failed(lab):
    desk = Desk(Shop(lab, with_git=True))
    desk.queue.add({"title": "Raise the limit", "request": "Raise it.", "project": "shop"})
    desk.shop.repository.rename(lab.path / "elsewhere")
    assert [each.state for each in desk.run()] == ["GIT_REFUSED"]
    [row] = desk.queue.list_rows()
    assert row.state == "FAILED"
    assert "FAILED" in render_page([row])
    desk.queue.close()


def test_id_that_is_taken_is_refused(desk):
    desk.queue.add({"title": "Raise the limit", "request": "Raise it.", "id": "task-7"})
    with pytest.raises(DeedbookError, match="there is a task task-7 already"):
        desk.queue.add({"title": "Lower the limit", "request": "Lower it.", "id": "task-7"})


def test_task_of_a_project_without_a_repository_is_refused_before_it_waits(lab):
    desk = Desk(Shop(lab, with_git=True))
    with pytest.raises(DeedbookError, match=r"repos/nope is no git repository.*; projects: shop"):
        desk.queue.add({"title": "Raise the limit", "request": "Raise it.", "project": "nope"})
    assert desk.queue.list_waiting() == []
    desk.queue.close()
