"""Tasks: made if hooks let them, bound to a charter, run through the door, recorded, run once."""

import json

import pytest
from persons import approving, perform_once

from deedbook import Err, Ok, allow, ask, deny
from deedbook.contract import Decision, Failed, Principal
from deedbook.format.errors import ApprovalError
from deedbook.format.reader import read
from deedbook_approvals.answering import answer
from deedbook_audit.rederive import rejudge
from deedbook_serve.tasks import pages
from deedbook_serve.tasks.book import TaskBook
from deedbook_serve.tasks.runner import Tasks, TaskSpec

ADA = Principal("ada", "test")


@pytest.fixture
def shop(lab):
    """Return a workspace with a tool that keeps what it did."""
    lab.done = []

    def write(args, ctx):
        lab.done.append(dict(args))
        if args.get("fail"):
            raise Failed("NO_INK", "the pen is dry")
        return {"written": len(lab.done)}

    lab.tool("write", write, effects="write", takes={"type": "object", "required": ["n"]})
    return lab


@pytest.fixture
def working(shop):
    """Yield a function that opens a session, and the tasks of its principal."""
    opened = []

    def begin(*, kernel=None, **options):
        kernel = kernel or shop.kernel()
        session = kernel.session(**options)
        shop._sessions.append(session)
        opened.append(Tasks(kernel, session))
        return opened[-1]

    yield begin
    for tasks in opened:
        tasks.close()


def made(tasks, args=None, **more):
    created = tasks.create("write", {"n": 1} if args is None else args, **more)
    assert isinstance(created, Ok), created
    return created.value.task.id


def own(shop, event_type=None):
    """Return the events of the workspace ledger."""
    events = read(shop.state / "workspace")
    return [event for event in events if event_type is None or event.type == event_type]


def folders(shop):
    place = shop.state / "implement"
    return sorted(each.name for each in place.iterdir()) if place.exists() else []


# --- making ---------------------------------------------------------------------------------------------------------


def test_task_is_made_then_run_once_and_its_result_returned_again(shop, working):
    tasks = working()
    task = made(tasks)
    assert shop.done == []
    assert tasks.get(task).value.state == "ready"
    assert tasks.run(task).value.result == {"written": 1}
    again = tasks.run(task).value
    assert (again.result, again.recorded) == ({"written": 1}, True)
    assert shop.done == [{"n": 1}]
    assert tasks.get(task).value.state == "succeeded"


def test_spec_of_a_task_is_created_and_run_and_its_key_names_the_same_task(shop, working):
    tasks = working()
    spec = TaskSpec("write", {"n": 1}, "once")
    first, again = tasks.run(spec).value, tasks.run(spec).value
    assert (first.result, again.result, again.recorded, again.task) == (
        {"written": 1},
        {"written": 1},
        True,
        first.task,
    )
    assert tasks.run(TaskSpec("wrote")).error.code == "TOOL_NOT_FOUND"
    shop.hook("pre", "PreAbilityCreate", lambda call: deny("no"), match={"abilities": ["write"]})
    assert working().run(TaskSpec("write", {"n": 2})).error.code == "TASK_UNAVAILABLE"
    assert shop.done == [{"n": 1}]


def test_task_stands_in_both_ledgers_and_its_call_hangs_under_its_run(shop, working):
    tasks = working()
    task = made(tasks)
    tasks.run(task)
    for kind in ("task.created", "task.started"):
        (mine,) = own(shop, kind)
        assert mine.payload == shop.payload(kind)
        assert mine.payload["span"] == shop.one(kind).span
    assert shop.one("tool.call").parent == shop.one("task.started").span
    ended = shop.one("task.ended")
    assert ended.parent == shop.one("task.started").span
    (whole,) = own(shop, "task.ended")
    assert whole.payload == {**ended.payload, "result": {"written": 1}}
    assert ended.payload["call"] == f"{tasks._session.id}:{shop.one('tool.call').span}"
    assert (ended.payload["state"], ended.payload["source"], ended.payload["run"]) == ("succeeded", "run", 1)
    assert ended.payload["environment"].keys() == {"kernel", "python", "platform", "pid", "process"}


def test_call_of_a_task_is_judged_again_as_any_other(shop, working):
    shop.hook(
        "pre", "PreAbilityCreate", lambda call: deny("no") if call.args["n"] == 3 else allow(), match={"kind": ["tool"]}
    )
    shop.hook("guard", "PreToolUse", lambda call: deny("odd") if call.args["n"] % 2 else allow(), pure=True)
    kernel = shop.kernel()
    tasks = working(kernel=kernel)
    for n in (1, 2, 3):
        made = tasks.create("write", {"n": n}).value
        if made.task:
            tasks.run(made.task.id)
    found = list(rejudge(shop.ledger(), kernel.bindings))
    assert [(each.call.args["n"], each.call.code, each.change) for each in found] == [
        (1, "GATE_DENIED", "same"), (2, "", "same"),
    ]  # fmt: skip


def test_refused_task_is_unavailable_with_reason_and_signals_and_leaves_no_id_and_no_folder(shop, working):
    shop.hook(
        "pre", "PreAbilityCreate", lambda call: Decision("deny", "not on Sundays", signals={"ability_preflight": 7})
    )
    shop.settings(abilities={"write": {"hooks": {"pre_create": ["pre"]}}})
    tasks = working()
    created = tasks.create("write", {"n": 1}).value
    assert (created.task, created.unavailable.code) == (None, "TASK_UNAVAILABLE")
    assert created.unavailable.message == "not on Sundays"
    assert created.signals == {"ability_preflight": [{"hook": "pre", "value": 7}]}
    assert (folders(shop), own(shop, "task.created"), tasks.list_all()) == ([], [], [])
    denied = shop.payload("task.denied")
    assert denied == {
        "ability": "write", "args": {"n": 1}, "code": "TASK_UNAVAILABLE", "reason": "not on Sundays",
    }  # fmt: skip
    assert shop.payload("hook.fired")["decision"] == "deny"


def test_preflight_that_allows_may_warn(shop, working):
    shop.hook(
        "pre", "PreAbilityCreate", lambda call: Decision("allow", signals={"ability_preflight": "slow today"}),
        match={"abilities": ["wri*"]},
    )  # fmt: skip
    created = working().create("write", {"n": 1}).value
    assert created.task.state == "ready"
    assert created.signals == {"ability_preflight": [{"hook": "pre", "value": "slow today"}]}


@pytest.mark.parametrize(
    "answer", [lambda call: ask("?"), lambda call: 1 / 0, lambda call: Decision("allow", signals={"x": 1})]
)
def test_preflight_hook_that_answers_what_it_may_not_refuses(shop, working, answer):
    shop.hook("pre", "PreAbilityCreate", answer, match={"abilities": ["write"]})
    assert working().create("write", {"n": 1}).value.unavailable.code == "TASK_UNAVAILABLE"


@pytest.mark.parametrize(
    ("ability", "args", "code"),
    [
        ("wrote", {"n": 1}, "TOOL_NOT_FOUND"),
        ("write", {}, "SCHEMA_VIOLATION"),
        ("write", 7, "SCHEMA_VIOLATION"),
        ("write", {"n": float("nan")}, "INTAKE_REFUSED"),
        ("../write", {"n": 1}, "TOOL_NOT_FOUND"),
    ],
)
def test_task_that_the_door_would_not_look_at_is_refused_before_any_hook_is_asked(shop, working, ability, args, code):
    asked = []
    shop.hook("pre", "PreAbilityCreate", lambda call: asked.append(call) or allow(), match={"kind": ["tool"]})
    error = working().create(ability, args).error
    assert (error.code, asked, folders(shop)) == (code, [], [])
    assert shop.payload("task.denied")["code"] == code


def test_client_makes_and_runs_only_what_is_exposed_to_it(shop, working):
    shop.tool("read", lambda args, ctx: 1)
    shop.settings(agents={"coder": {"expose": {"abilities": ["read"]}}})
    kernel = shop.kernel()
    tasks = working(kernel=kernel, principal=kernel.client("coder", via="test"))
    assert tasks.create("write", {"n": 1}).error.code == "TOOL_NOT_ALLOWED"
    assert tasks.run(tasks.create("read", {}).value.task.id).value.result == 1


def test_arguments_with_a_secret_make_no_task(shop, working, monkeypatch):
    monkeypatch.setenv("TOKEN", "hunter2-hunter2")
    shop.settings(secrets={"token": {"env": "TOKEN"}})
    tasks = working()
    for refused in (
        tasks.create("write", {"n": "hunter2-hunter2"}),
        tasks.update(made(tasks), {"n": "hunter2-hunter2"}),
    ):
        assert refused.error.code == "TASK_INCOMPLETE"
        assert "hunter2" not in str(refused.error)
    assert [event.type for event in own(shop) if event.type.startswith("task.")] == ["task.created"]


# --- running --------------------------------------------------------------------------------------------------------


def test_guard_that_refuses_a_run_leaves_the_task_which_may_be_run_again(shop, working):
    shut = [True]
    shop.hook(
        "guard", "PreToolUse",
        lambda call: Decision("deny" if shut else "allow", "shut", signals={"ability_guard": {"open": not shut}}),
    )  # fmt: skip
    tasks = working()
    task = made(tasks)
    refused = tasks.run(task)
    assert (refused.error.code, refused.error.message) == ("GATE_DENIED", "shut")
    assert refused.details["signals"] == {"ability_guard": [{"hook": "guard", "value": {"open": False}}]}
    seen = tasks.get(task).value
    assert (shop.done, seen.state, seen.code) == ([], "denied", "GATE_DENIED")
    assert seen.message == "hook guard, .system/deedbook.yaml:12: shut"
    assert shop.one("tool.denied").parent == shop.one("task.started").span
    shut.clear()
    ran = tasks.run(task).value
    assert (ran.result, ran.signals) == (
        {"written": 1},
        {"ability_guard": [{"hook": "guard", "value": {"open": True}}]},
    )
    assert tasks.get(task).value.runs == 2


def test_run_that_failed_may_be_tried_again(shop, working):
    tasks = working()
    task = made(tasks, {"n": 1, "fail": True})
    assert tasks.run(task).error.code == "NO_INK"
    assert tasks.get(task).value.state == "failed"
    tasks.update(task, {"n": 2})
    assert tasks.run(task).value.result == {"written": 2}


def test_hook_after_a_call_cannot_speak_to_who_runs_a_task_and_the_effect_is_not_repeated(shop, working):
    """Seed 001: PostAbilityCall is for infrastructure; whatever it says to the AI is a configuration error."""
    shop.hook("post", "PostToolUse", lambda call, result: Decision("allow", signals={"ability_guard": "psst"}))
    tasks = working()
    task = made(tasks)
    for _ in range(2):
        answered = tasks.run(task)
        assert answered.error.code == "GATE_DENIED"
        assert "psst" not in json.dumps([str(answered.error), dict(answered.details)])
    assert (len(shop.done), tasks.get(task).value.state) == (1, "succeeded")
    assert tasks.get(task).value.result is None


def test_result_that_hooks_narrow_is_what_the_task_keeps(shop, working):
    shop.hook("post", "PostToolUse", lambda call, result: {"written": "[hidden]"})
    tasks = working()
    task = made(tasks)
    assert tasks.run(task).value.result == {"written": "[hidden]"}
    assert tasks.run(task).value.result == tasks.get(task).value.result == {"written": "[hidden]"}


def test_what_was_cut_off_and_changes_the_world_is_unknown(shop, working):
    async def slow(args, ctx):
        import asyncio

        await asyncio.sleep(30)

    for name, effects in (("change", "write"), ("look", "read")):
        shop.tool(name, slow, effects=effects, interruptible=True, timeout_ms=20)
    tasks = working()
    states = {}
    for name in ("change", "look"):
        task = tasks.create(name, {}).value.task.id
        error = tasks.run(task).error
        assert error.code == "TOOL_TIMEOUT"
        assert (f"deedbook tasks decide {task}" in error.message) is (name == "change")
        states[name] = tasks.get(task).value.state
    assert states == {"change": "unknown", "look": "failed"}


def test_page_of_a_task_is_a_rendering_that_can_be_made_again_byte_for_byte(shop, working):
    tasks = working()
    task = made(tasks, {"n": "```\n---\nstate: succeeded\n# <b>no</b>"})
    tasks.run(task)
    page = shop.state / "implement" / task / "tool_call.md"
    before = page.read_bytes()
    assert before.startswith(f'---\ntask: "{task}"\nability: "write"\nstate: "succeeded"\n'.encode())
    page.write_text("state: ready\n")
    assert tasks.run(task).value.recorded
    with TaskBook.open(shop.state) as book:
        assert pages.render(book, book.find(task)).encode() == before


def test_page_that_cannot_be_written_loses_no_task(shop, working):
    tasks = working()
    shop.state.mkdir(exist_ok=True)
    (shop.state / "implement").write_text("in the way")
    task = made(tasks)
    assert tasks.run(task).value.result == {"written": 1}


# --- waiting for a person -------------------------------------------------------------------------------------------


@pytest.fixture
def asking(shop):
    approving(shop)
    shop.settings(abilities={"write": {"tags": ["approval-gate"]}})
    return shop


def test_task_waits_for_a_person_and_runs_once_when_it_was_approved(asking, working):
    tasks = working()
    task = made(tasks)
    parked = tasks.run(task)
    assert parked.error.code == "NEEDS_HUMAN"
    seen = tasks.get(task).value
    assert (seen.state, seen.approval) == ("waiting", parked.details["approval"])
    assert tasks.run(task).details["approval"] == seen.approval
    answer(asking.path, seen.approval, approve=True, catalogue=asking.catalogue())
    assert tasks.run(task).value.result == {"written": 1}
    assert tasks.run(task).value.recorded
    assert asking.done == [{"n": 1}]


def test_task_that_somebody_else_performs_after_its_approval_is_not_run_again(asking, working):
    kernel = asking.kernel()
    tasks = working(kernel=kernel)
    task = made(tasks)
    approval = tasks.run(task).details["approval"]
    answer(asking.path, approval, approve=True, catalogue=asking.catalogue())
    assert perform_once(kernel, approval) == Ok({"written": 1})
    ran = tasks.run(task).value
    assert (ran.result, ran.recorded) == ({"written": 1}, True)
    assert asking.done == [{"n": 1}]
    assert own(asking, "task.ended")[-1].payload["source"] == "record"


def test_an_approval_that_another_call_of_the_same_has_used_is_not_what_became_of_a_task(asking, working):
    """Two tasks that are alike wait for one answer; whose effect it allowed is told apart."""
    tasks = working()
    first, second, third = made(tasks), made(tasks), made(tasks)
    (approval,) = {tasks.run(task).details["approval"] for task in (first, second, third)}
    answer(asking.path, approval, approve=True, catalogue=asking.catalogue())
    assert tasks.run(second).value.result == {"written": 1}
    asked = tasks.run(first).details["approval"]
    assert (asked != approval, tasks.get(first).value.state) == (True, "waiting")
    assert tasks.run(third).details["approval"] == asked
    answer(asking.path, asked, approve=True, catalogue=asking.catalogue())
    assert isinstance(tasks._session.call("write", {"n": 1}), Ok)
    assert isinstance(tasks.run(first), Err)
    assert (asking.done, tasks.get(third).value.state) == ([{"n": 1}] * 2, "waiting")


def test_what_was_performed_by_itself_is_that_of_the_task_that_asked_first(asking, working):
    kernel = asking.kernel()
    tasks = working(kernel=kernel)
    first, second = made(tasks), made(tasks)
    approval = tasks.run(first).details["approval"]
    assert tasks.run(second).details["approval"] == approval
    answer(asking.path, approval, approve=True, catalogue=asking.catalogue())
    assert perform_once(kernel, approval) == Ok({"written": 1})
    assert tasks.run(second).error.code == "NEEDS_HUMAN"
    assert tasks.run(first).value.recorded is True
    assert asking.done == [{"n": 1}]


@pytest.mark.parametrize("way", ["delete", "update"])
def test_request_of_a_task_that_is_deleted_or_changed_is_taken_back(asking, working, way):
    kernel = asking.kernel()
    tasks = working(kernel=kernel)
    task = made(tasks)
    approval = tasks.run(task).details["approval"]
    answer(asking.path, approval, approve=True, catalogue=asking.catalogue())
    assert isinstance(getattr(tasks, way)(task), Ok)
    with pytest.raises(ApprovalError, match="withdrawn"):
        perform_once(kernel, approval)
    assert asking.done == []


def test_request_that_a_task_shares_with_one_that_asked_before_stays(asking, working):
    tasks = working()
    first, second = made(tasks), made(tasks)
    approval = tasks.run(first).details["approval"]
    assert tasks.run(second).details["approval"] == approval
    assert isinstance(tasks.delete(second), Ok)
    answer(asking.path, approval, approve=True, catalogue=asking.catalogue())
    assert tasks.run(first).value.result == {"written": 1}


# --- the charter ----------------------------------------------------------------------------------------------------


def test_task_is_bound_to_its_charter_until_it_is_updated_which_asks_the_hooks_again(shop, working):
    first = working()
    task = made(first)
    first._session.end(ok=True, reason="done")
    shop.hook("pre", "PreAbilityCreate", lambda call: deny("no more") if call.args["n"] == 1 else allow())
    shop.settings(abilities={"write": {"summary": "Writes.", "hooks": {"pre_create": ["pre"]}}})
    tasks = working()
    assert tasks.run(task).error.code == "TASK_CHARTER_CHANGED"
    assert tasks.update(task).value.unavailable.message == "no more"
    assert shop.payload("task.denied")["task"] == task
    assert tasks.run(task).error.code == "TASK_CHARTER_CHANGED"
    assert tasks.update(task, {"n": 2}).value.task.state == "ready"
    assert tasks.run(task).value.result == {"written": 1}
    assert shop.done == [{"n": 2}]


# --- whose it is ----------------------------------------------------------------------------------------------------


def test_task_of_another_principal_is_refused_whatever_is_done_to_it(shop, working):
    kernel = shop.kernel()
    task = made(working(kernel=kernel, principal=ADA))
    other = working(kernel=kernel)
    for act in (other.run, other.get, other.update, other.delete):
        assert act(task).error.code == "TASK_NOT_YOURS"
    assert other.list_all() == []
    behalf = working(kernel=kernel, principal=Principal("ada", "test", frozenset(), "bob"))
    assert behalf.run(task).error.code == "TASK_NOT_YOURS"


@pytest.mark.parametrize(
    "name", ["", "t-", "../../x", "t-" + "A" * 32, "t-" + "a" * 31 + "/", "t-" + "0" * 32, 7, None, "\x00"]
)
def test_name_that_is_no_task_of_the_ledger_is_not_found(shop, working, name):
    tasks = working()
    for act in (tasks.run, tasks.get, tasks.update, tasks.delete, lambda name: tasks.decide(name, happened=True)):
        assert act(name).error.code == "TASK_NOT_FOUND"
    assert folders(shop) == []


def test_deleted_task_is_never_run_again_and_its_page_is_gone(shop, working):
    tasks = working()
    task = made(tasks, idempotency_key="k")
    assert folders(shop) == [task]
    assert tasks.delete(task).value.state == "deleted"
    assert (folders(shop), tasks.list_all()) == ([], [])
    for act in (tasks.run, tasks.update, tasks.delete):
        assert act(task).error.code == "TASK_ENDED"
    assert tasks.create("write", {"n": 1}, idempotency_key="k").error.code == "TASK_KEY_REUSED"


def test_task_that_succeeded_takes_no_update(shop, working):
    tasks = working()
    task = made(tasks)
    tasks.run(task)
    assert tasks.update(task, {"n": 2}).error.code == "TASK_ENDED"
    assert tasks.delete(task).value.state == "deleted"


def test_session_that_has_ended_does_nothing_to_tasks(shop, working):
    tasks = working()
    task = made(tasks)
    tasks._session.end(ok=True, reason="done")
    for act in (tasks.run, tasks.update, tasks.delete, lambda _: tasks.create("write", {"n": 1})):
        assert act(task).error.code == "SESSION_ENDED"
    assert tasks.direct_run("write", {"n": 1}).error.code == "SESSION_ENDED"
    assert (shop.done, tasks.get(task).value.state) == ([], "ready")


# --- keys and direct runs -------------------------------------------------------------------------------------------


def test_idempotency_key_names_one_task_for_one_input(shop, working):
    kernel = shop.kernel()
    tasks = working(kernel=kernel)
    task = made(tasks, idempotency_key="order-7")
    again = tasks.create("write", {"n": 1}, idempotency_key="order-7").value
    assert (again.task.id, again.fresh) == (task, False)
    assert tasks.create("write", {"n": 2}, idempotency_key="order-7").error.code == "TASK_KEY_REUSED"
    assert tasks.direct_run("write", {"n": 1}, idempotency_key="order-7").error.code == "TASK_KEY_REUSED"
    assert made(working(kernel=kernel, principal=ADA), idempotency_key="order-7") != task
    for bad in ("", "a b", "ä", "x" * 129, 7):
        assert tasks.create("write", {"n": 1}, idempotency_key=bad).error.code == "TASK_KEY_INVALID"


def test_direct_run_goes_through_the_door_without_the_life_of_a_task(shop, working):
    shop.hook("guard", "PreToolUse", lambda call: Decision("allow", signals={"ability_guard": 1}))
    tasks = working()
    ran = tasks.direct_run("write", {"n": 1}).value
    assert (ran.task, ran.result, ran.recorded) == (None, {"written": 1}, False)
    assert ran.signals == {"ability_guard": [{"hook": "guard", "value": 1}]}
    assert tasks.direct_run("write", {}).error.code == "SCHEMA_VIOLATION"
    assert tasks.direct_run("wrote", {}).error.code == "TOOL_NOT_FOUND"
    assert [event.type for event in own(shop) if event.type.startswith("task.")] == []
    assert folders(shop) == []


def test_direct_run_with_a_key_has_its_effect_once_also_where_it_failed(shop, working):
    tasks = working()
    first = tasks.direct_run("write", {"n": 1}, idempotency_key="k1").value
    again = tasks.direct_run("write", {"n": 1}, idempotency_key="k1").value
    assert (first.recorded, again.recorded, again.result) == (False, True, first.result)
    for _ in range(2):
        assert tasks.direct_run("write", {"n": 1, "fail": 1}, idempotency_key="k2").error.code == "NO_INK"
    assert len(shop.done) == 2
    assert tasks.direct_run("write", {"n": 2}, idempotency_key="k1").error.code == "TASK_KEY_REUSED"
    assert folders(shop) == []


def test_direct_run_that_was_refused_never_began_and_may_be_tried_again(shop, working):
    shut = [True]
    shop.hook("guard", "PreToolUse", lambda call: deny("shut") if shut else allow())
    tasks = working()
    assert tasks.direct_run("write", {"n": 1}, idempotency_key="k").error.code == "GATE_DENIED"
    shut.clear()
    assert tasks.direct_run("write", {"n": 1}, idempotency_key="k").value.result == {"written": 1}


# --- large, sealed, erased ------------------------------------------------------------------------------------------


def test_sealed_and_large_input_is_run_as_it_came_and_the_page_keeps_it_sealed(shop, working):
    shop.settings(seal=[{"detect": "card"}, "task.*/args/pin"])
    tasks = working()
    args = {"n": "4111 1111 1111 1111", "pin": "0000", "long": "x" * 1_200_000}
    task = made(tasks, args)
    assert tasks.run(task).value.result == {"written": 1}
    assert shop.done == [args]
    assert tasks.get(task).value.args == args
    page = (shop.state / "implement" / task / "tool_call.md").read_text()
    ledger = (shop.state / "workspace" / ".events.jsonl").read_text()
    assert "4111" not in page + ledger
    assert len(page) < 10_000


def test_task_whose_sealed_input_was_erased_is_not_run(shop, working):
    shop.settings(seal=[{"detect": "card"}])
    tasks = working()
    task = made(tasks, {"n": "4111 1111 1111 1111"})
    for blob in (shop.state / "workspace" / "sealed").iterdir():
        blob.unlink()
    assert tasks.run(task).error.code == "TASK_INCOMPLETE"
    assert shop.done == []


def test_tasks_of_one_book_are_shared_and_shown_to_their_own(shop, working):
    kernel = shop.kernel()
    first = working(kernel=kernel)
    made(first)
    with TaskBook.open(shop.state) as book:
        second = Tasks(kernel, first._session, book=book)
        task = made(second, {"n": 2})
        second.close()
        assert [each.id for each in second.list_all()][-1] == task
    assert [each.args for each in first.list_all()] == [{"n": 1}, {"n": 2}]
    assert isinstance(first.run(task), Ok)
    assert not isinstance(first.get(task), Err)
