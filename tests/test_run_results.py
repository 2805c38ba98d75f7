"""What callers from outside get of a flow that keeps a context: its state and reply, and an error if it failed."""

import pytest
from persons import approving

from deedbook import Branch, Err, Ok
from deedbook.cli.execution import call_ending
from deedbook.format.reader import read
from deedbook_approvals.answering import answer
from deedbook_serve.serving.action_records import read_actions
from deedbook_serve.serving.actions import BatchRunner, OutcomeSources, describe_ended, rebuild_outcomes
from deedbook_serve.serving.batches import order_actions
from deedbook_serve.tasks.run_outcome import read_run_outcome

DIGEST = "d1" * 32
NO_SOURCES = OutcomeSources(lambda _: None, lambda _: None)
ENDS = {"FAILED": "RUN_ENDED", "HALTED": "RUN_ENDED", "NEEDS_HUMAN": "NEEDS_HUMAN"}


@pytest.fixture
def shop(lab):
    """Return a lab with a flow that ends as its prompt says."""

    def end(args, run):
        moves = {"FAILED": run.context.fail, "HALTED": run.context.halt, "NEEDS_HUMAN": run.context.need_human}
        if move := moves.get(args["prompt"]):
            return move("no reader agreed")
        return f"read {args['prompt']}"

    lab.flow("check", end)
    return lab


def batch(session, tasks, *actions, request="r1"):
    steps = order_actions([{"id": f"a{number}", **each} for number, each in enumerate(actions)]).value
    return list(BatchRunner(session, tasks, None, lambda: None).run(steps, request, DIGEST).values()), steps


def test_batch_reports_the_reply_of_a_run_that_completed(shop):
    session = shop.session()
    with shop.tasks(session) as tasks:
        call = {"ability": "check", "args": {"prompt": "page.md"}}
        (called, made, ran), _ = batch(
            session, tasks, {"action": "CALL", **call}, {"action": "CREATE_TASK", **call},
            {"action": "RUN_TASK", "task": {"from": "a1"}},
        )  # fmt: skip
        (got,), _ = batch(session, tasks, {"action": "GET_TASK", "task": made["task"]}, request="r2")
    for each in (called, ran):
        assert each["status"] == "ok"
        assert (each["result"]["state"], each["result"]["reply"]) == ("COMPLETED", "read page.md")
    assert got["result"]["result"] == ran["result"]
    assert [event.payload["result"] for event in shop.all("flow.result")] == [
        {"context": called["result"]["context"]},
        {"context": ran["result"]["context"]},
    ]
    (ended,) = (event for event in read(shop.state / "workspace") if event.type == "task.ended")
    assert ended.payload["result"] == {"context": ran["result"]["context"]}


@pytest.mark.parametrize(("state", "code"), ENDS.items())
def test_run_that_did_not_complete_is_no_success(shop, state, code):
    session = shop.session()
    status = "needs_human" if state == "NEEDS_HUMAN" else "failed"
    with shop.tasks(session) as tasks:
        call = {"ability": "check", "args": {"prompt": state}}
        outcomes, steps = batch(
            session, tasks, {"action": "CALL", **call}, {"action": "CREATE_TASK", **call},
            {"action": "RUN_TASK", "task": {"from": "a1"}}, {"action": "CALL", "idempotency_key": "k", **call},
        )  # fmt: skip
        called, made, ran, keyed = outcomes
        again = tasks.direct_run("check", {"prompt": state}, idempotency_key="k")
        task = tasks.get(made["task"]).value
        assert len(shop.all("flow.call")) == 3  # the use with a key is not made again
        repeated = tasks.run(made["task"])
        assert len(shop.all("flow.call")) == 4  # a task that failed can be tried again
    for each in (called, ran, keyed):
        assert (each["status"], each["error"]["code"]) == (status, code)
        assert f"ended {state}: no reader agreed" in each["error"]["message"]
    assert isinstance(again, Err)
    assert isinstance(repeated, Err)
    assert again.error.code == repeated.error.code == code
    assert (task.state, task.code) == ("failed", code)
    recorded = read_actions(shop.events(session), "r1")
    rebuilt = rebuild_outcomes(recorded, steps, DIGEST, describe_ended(session.id), NO_SOURCES)
    assert [rebuilt[each["id"]] for each in outcomes] == outcomes


def test_repeated_request_and_task_give_the_reply_of_an_ended_session(shop):
    first = shop.session()
    with shop.tasks(first) as tasks:
        call = {"ability": "check", "args": {"prompt": "page.md"}}
        outcomes, steps = batch(
            first, tasks, {"action": "CALL", **call}, {"action": "CREATE_TASK", **call},
            {"action": "RUN_TASK", "task": {"from": "a1"}},
        )  # fmt: skip
    first.end(ok=True, reason="done")
    recorded = read_actions(shop.events(first), "r1")
    rebuilt = rebuild_outcomes(recorded, steps, DIGEST, describe_ended(first.id), NO_SOURCES)
    assert [rebuilt[each["id"]] for each in outcomes] == outcomes
    with shop.tasks(shop.session()) as tasks:
        again = tasks.run(outcomes[1]["task"]).value
    assert again.recorded
    assert again.result == outcomes[2]["result"]


@pytest.mark.parametrize("state", ["COMPLETED", *ENDS])
def test_outcome_of_a_lost_run_is_that_of_its_context(shop, state):
    session = shop.session()
    result = session.call("check", {"prompt": state})
    assert isinstance(result, Ok)
    cause = shop.one("flow.call").parent
    outcome = read_run_outcome(shop.state, session.id, cause, session.bindings.find("check"))
    assert (outcome.known, outcome.result) == (True, result.value)
    assert (outcome.state, outcome.code) == (("failed" if state in ENDS else "succeeded"), ENDS.get(state))


def test_task_whose_run_cannot_be_read_any_more_has_no_result(shop):
    first = shop.session()
    with shop.tasks(first) as tasks:
        task = tasks.create("check", {"prompt": "page.md"}).value.task.id
        assert isinstance(tasks.run(task), Ok)
    first.end(ok=True, reason="done")
    place = shop.ledger(first)
    shop.damaged = True
    with shop.tasks(shop.session()) as tasks:
        place.rename(place.with_name("gone"))
        again = tasks.run(task)
        assert "context" in tasks.list_all()[0].result  # the reference stands in the workspace ledger
    assert isinstance(again, Err)
    assert again.error.code == "TASK_INCOMPLETE"


# --- tools that call a flow ------------------------------------------------------------------------------------------


def test_tool_gets_the_reply_of_a_flow_that_it_calls(shop):
    shop.tool("ask", lambda args, ctx: ctx.call("check", {"prompt": "page.md"}), uses=["check"])
    result = shop.session().call("ask", {}).value
    assert (result["state"], result["reply"]) == ("COMPLETED", "read page.md")
    assert shop.payload("flow.result")["result"] == {"context": result["context"]}


@pytest.mark.parametrize(("state", "code"), ENDS.items())
def test_flow_that_did_not_complete_fails_for_the_tool_that_called_it(shop, state, code):
    async def ask(args, ctx):
        return await ctx.acall("check", {"prompt": state})

    for name, handler in {"ask": lambda args, ctx: ctx.call("check", {"prompt": state}), "ask-later": ask}.items():
        shop.tool(name, handler, uses=["check"])
    session = shop.session()
    for name in ("ask", "ask-later"):
        result = session.call(name, {})
        assert isinstance(result, Err)
        assert result.error.code == code
        assert "no reader agreed" in result.error.message


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["COMPLETED", *ENDS])
def test_command_prints_the_state_and_the_reply_of_a_flow(shop, state):
    session = shop.session()
    ending = call_ending(session.call("check", {"prompt": state}), session)
    reply = "no reader agreed" if state in ENDS else "read COMPLETED"
    assert (ending.state, ending.members["result"]["state"], ending.members["result"]["reply"]) == (state, state, reply)
    assert reply in ending.text


# --- a person inside a called flow ------------------------------------------------------------------------------------


@pytest.fixture
def office(lab):
    """Return a lab with a flow that asks ada, an approver, about each name of its prompt."""
    lab.done = []
    spend = {"takes": {}, "gives": {"type": "object"}, "effects": "none", "tags": ["approval-gate"]}
    lab.flow("spend", lambda args, run: lab.done.append(args["to"]) or {}, **spend)

    def travel(args, run):
        names = args["prompt"].split()
        run.parallel([Branch(name, lambda own, name=name: own.call("spend", {"to": name})) for name in names])
        return f"paid {args['prompt']}"

    lab.flow("trip", travel, uses=["spend"])
    approving(lab)
    return lab


@pytest.mark.parametrize("names", ["bob", "bob eve"])
def test_client_of_a_flow_that_needs_a_person_gets_the_requests_and_goes_through_after_the_answers(office, names):
    call = {"ability": "trip", "args": {"prompt": names}}
    actions = [
        {"action": "CALL", **call}, {"action": "CREATE_TASK", **call}, {"action": "RUN_TASK", "task": {"from": "a1"}},
    ]  # fmt: skip
    session = office.session()
    with office.tasks(session) as tasks:
        outcomes, steps = batch(session, tasks, *actions)
        (got,), _ = batch(session, tasks, {"action": "GET_TASK", "task": outcomes[1]["task"]}, request="r2")
    waiting = list(dict.fromkeys(each.payload["approval"] for each in office.all("approval.requested")))
    for each in (outcomes[0], outcomes[2]):
        assert (each["status"], each["approval"]) == ("needs_human", waiting[-1])
        assert each.get("approvals", [each["approval"]]) == waiting
    assert (got["result"]["state"], got["result"]["approval"]) == ("failed", waiting[-1])
    recorded = read_actions(office.events(session), "r1")
    rebuilt = rebuild_outcomes(recorded, steps, DIGEST, describe_ended(session.id), NO_SOURCES)
    assert [rebuilt[each["id"]] for each in outcomes] == outcomes
    for identity in waiting:
        answer(office.path, identity, approve=True, catalogue=office.catalogue())
    with office.tasks(office.session()) as tasks:
        assert tasks.run(outcomes[1]["task"]).value.result["reply"] == f"paid {names}"
    assert sorted(office.done) == sorted(names.split())
