"""The runtime as its clients meet it: real processes of ``deedbook serve``, and connections to their socket."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import serving
from commandline import SCHEMAS, until
from serving import Wire, runtime

from deedbook.format.errors import DeedbookError
from deedbook.format.sealed import MAX_INLINE
from deedbook_serve.client import Runtime
from deedbook_serve.serving.methods import record_context
from deedbook_serve.serving.session_table import OpenSession


def call(ident, ability="echo", /, *, after=(), **args):
    return {"id": ident, "action": "CALL", "ability": ability, "args": args, **({"after": [*after]} if after else {})}


def statuses(results):
    return {each["id"]: each["status"] for each in results}


def refusal(ask, *args, **more):
    """Return the code that *ask* is refused with."""
    with pytest.raises(DeedbookError) as caught:
        ask(*args, **more)
    return caught.value.error.code


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Give a served workspace; in the end its server ends well, and every ledger is sound."""
    made = serving.workspace(tmp_path_factory.mktemp("served") / "workspace")
    with serving.served(made, "--grace", "0.3"):
        yield made


@pytest.fixture
def own(tmp_path):
    """Give a workspace that nobody serves yet."""
    return serving.workspace(tmp_path / "workspace")


@pytest.fixture
def peer(place):
    with runtime(place) as connection:
        yield connection


@pytest.fixture
def session(peer):
    return peer.open()


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_session_is_opened_used_and_ended(place, peer):
    session = peer.open()
    assert [each["session"] for each in peer.sessions() if each["session"] == session] == [session]
    assert peer.call(session, "echo", {"text": "hi"}) == {"text": "hi"}
    peer.end(session)
    assert refusal(peer.call, session, "echo", {"text": "hi"}) == "SESSION_NOT_FOUND"
    events = place.events(session)
    assert events[0].payload["principal"] == {"id": "local", "via": "runtime", "roles": [], "on_behalf_of": None}
    assert events[-1].payload == {"ok": True, "reason": "its client ended it"}


def test_prompt_is_asked_about_recorded_and_answered_with_what_hooks_signal(place, peer, session):
    taken = peer.submit(session, "say hello")
    assert taken == {
        "prompt": "say hello",
        "signals": {
            "normalized_intent": [{"hook": "hints", "value": "greet"}],
            "routing_hint": [{"hook": "hints", "value": {"ability": "echo"}}],
        },
    }
    assert refusal(peer.submit, session, "something forbidden") == "PROMPT_DENIED"
    peer.call(session, "echo", {"text": "hi"})
    events = {event.span: event for event in place.events(session)}
    received = next(event for event in events.values() if event.type == "action.received")
    assert events[received.parent].type == "user.message"


def test_context_of_a_prompt_is_recorded_and_read_by_hooks_until_the_next_prompt(place, peer, session):
    def hinted(*context):
        return peer.submit(session, "say hello", *context)["signals"]["routing_hint"][0]["value"]["ability"]

    assert [hinted(), hinted({"ability": "count"}), hinted(), hinted()] == ["echo", "count", "echo", "echo"]
    recorded = [event.payload["context"] for event in place.events(session) if event.type == "x.prompts.context"]
    assert recorded == [{"ability": "count"}, {}]
    assert refusal(peer.submit, session, "say hello", "no object") == "SCHEMA_VIOLATION"


def test_hooks_read_the_whole_context_of_a_prompt_that_the_ledger_seals(peer, session):
    context = {"ability": "count", "file": "x" * MAX_INLINE}
    assert peer.submit(session, "say hello", context)["signals"]["routing_hint"][0]["value"]["ability"] == "count"


def test_context_is_refused_where_nobody_could_read_it(lab):
    with pytest.raises(DeedbookError, match="a context needs features:") as caught:
        record_context(OpenSession(lab.session(), None, "local"), {"ability": "count"})
    assert (caught.value.error.code, lab.all("x.prompts.context")) == ("NOT_AVAILABLE", [])


def test_client_of_the_workspace_sees_what_is_exposed_to_it_and_acts_for_its_peer(place, peer):
    session = peer.open(client="desk")
    assert refusal(peer.call, session, "count") == "TOOL_NOT_ALLOWED"
    assert peer.call(session, "echo", {"text": "hi"}) == {"text": "hi"}
    (direct,) = peer.actions(session, [{"id": "d", "action": "DIRECT_RUN", "ability": "echo", "args": {"text": "hi"}}])
    assert (direct["status"], direct["error"]["code"]) == ("denied", "TOOL_NOT_ALLOWED")
    who = place.events(session)[0].payload["principal"]
    assert (who["id"], who["on_behalf_of"]) == ("agent:desk", "local")
    assert refusal(peer.open, client="nobody")


# --- actions ----------------------------------------------------------------------------------------------------------


def test_actions_are_done_in_an_order_that_respects_what_waits_for_what(place, peer, session):
    asked = [call("last", text="3", after=["first", "second"]), call("second", text="2"), call("first", text="1")]
    done = peer.actions(session, asked)
    assert [each["id"] for each in done] == ["last", "second", "first"]
    assert statuses(done) == {"last": "ok", "second": "ok", "first": "ok"}
    received = [event.payload["id"] for event in place.events(session) if event.type == "action.received"]
    assert received == ["second", "first", "last"]


def test_what_waits_for_something_that_was_not_ok_is_skipped_and_the_rest_goes_on(peer, session):
    asked = [
        call("a", "nowhere"),
        call("b", text="b", after=["a"]),
        call("c", text="c", after=["b"]),
        call("d", text="d"),
    ]
    done = peer.actions(session, asked)
    assert statuses(done) == {"a": "denied", "b": "skipped", "c": "skipped", "d": "ok"}
    assert [each["error"]["code"] for each in done[:3]] == ["TOOL_NOT_FOUND", "ACTION_SKIPPED", "ACTION_SKIPPED"]


def test_decisions_of_guards_come_with_the_results_whether_they_allow_or_not(peer, session):
    done = peer.actions(session, [call("a", "guarded", text="hi"), call("b", "guarded", text="rm -r")])
    hint = [{"hook": "guards", "value": {"looked_at": "guarded"}}]
    assert [each["guard"] for each in done] == [hint, hint]
    assert statuses(done) == {"a": "ok", "b": "denied"}
    assert done[1]["error"] == {"code": "GATE_DENIED", "message": "hook guards, .system/deedbook.yaml:13: no rm here"}


def test_call_that_a_person_has_to_decide_says_which_request_waits(place, peer, session):
    (done,) = peer.actions(session, [call("a", "gated", text="hi")])
    assert (done["status"], done["error"]["code"]) == ("needs_human", "NEEDS_HUMAN")
    assert done["approval"] == place.payloads("approval.requested", session)[0]["approval"]


def test_end_of_a_session_is_an_action_and_nothing_follows_it(place, peer, session):
    done = peer.actions(session, [call("a", text="a"), {"id": "end", "action": "END_SESSION"}, call("b", text="b")])
    assert statuses(done) == {"a": "ok", "end": "ok", "b": "failed"}
    assert done[2]["error"]["code"] == "SESSION_ENDED"
    assert place.types(session)[-2:] == ["action.done", "session.end"]


def test_every_action_is_recorded_with_what_came_of_it(place, peer, session):
    peer.actions(session, [call("a", text="hi"), call("b", "nowhere", after=["a"])], idempotency_key="k")
    assert [(each["id"], each["request"], each["after"]) for each in place.payloads("action.received", session)] == [
        ("a", "k", []),
        ("b", "k", ["a"]),
    ]
    assert [(each["id"], each["status"]) for each in place.payloads("action.done", session)] == [
        ("a", "ok"),
        ("b", "denied"),
    ]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ([{"id": "a", "action": "EXPLODE"}], "ACTION_UNKNOWN"),
        ([{"id": "a", "action": "CALL"}], "SCHEMA_VIOLATION"),
        ([call("a", after=["b"])], "BATCH_INVALID"),
        ([call("a", after=["b"]), call("b", after=["a"])], "BATCH_INVALID"),
        ([call("a"), call("a")], "BATCH_INVALID"),
        ([{"id": "a", "action": "RUN_TASK", "task": "../../etc"}], "SCHEMA_VIOLATION"),
    ],
)
def test_request_that_is_none_does_nothing_and_is_recorded(place, peer, session, asked, code):
    asked = [call("ok", "count", line=f"{code} {len(asked)}"), *asked]
    assert refusal(peer.actions, session, asked) == code
    assert [each["code"] for each in place.payloads("action.refused", session)] == [code]
    assert "action.received" not in place.types(session)
    assert peer.call(session, "echo", {"text": "on"}) == {"text": "on"}


# --- tasks ------------------------------------------------------------------------------------------------------------


def create(ident, **args):
    return {"id": ident, "action": "CREATE_TASK", "ability": "chore", "args": args}


def about(ident, action, task, **more):
    return {"id": ident, "action": action, "task": task if isinstance(task, str) else {"from": task[0]}, **more}


def test_key_of_a_request_holds_in_its_session_and_that_of_a_task_in_every_one_of_its_principal(place, peer):
    direct = [call("a", "count", line="keyed request")]
    task = [{**create("made", line="keyed task"), "idempotency_key": "task-1"}, about("ran", "RUN_TASK", ["made"])]
    first, second = peer.open(), peer.open()
    for session in (first, first, second):
        told = peer.actions(session, direct, idempotency_key="both")
        told += peer.actions(session, task, idempotency_key="both-too")
        assert set(statuses(told).values()) == {"ok"}
    assert [line for line in serving.effects(place) if line.startswith("keyed")] == [
        "keyed request",
        "keyed task",
        "keyed request",
    ]


@pytest.mark.parametrize("action", ["CALL", "DIRECT_RUN"])
def test_key_of_an_action_holds_in_every_session_of_its_principal(place, peer, action):
    asked = {**call("a", "count", line=f"once by {action}"), "action": action, "idempotency_key": action}
    for session in (peer.open(), peer.open()):
        (told,) = peer.actions(session, [asked])
        assert told["status"] == "ok"
    assert serving.effects(place).count(f"once by {action}") == 1
    (told,) = peer.actions(session, [{**asked, "args": {"line": "other"}}])
    assert told["error"]["code"] == "TASK_KEY_REUSED"


def test_arguments_that_do_not_fit_make_no_task_and_are_a_failure(peer, session):
    (told,) = peer.actions(session, [create("made", lin="a slip")])
    assert (told["status"], told["error"]["code"]) == ("failed", "SCHEMA_VIOLATION")
    assert told["error"]["message"].startswith("the arguments of chore: $")


def test_task_is_made_run_looked_at_and_deleted_in_one_request(place, peer, session):
    asked = [
        about("deleted", "DELETE_TASK", ["made"], after=["seen"]),
        about("seen", "GET_TASK", ["made"], after=["ran"]),
        about("ran", "RUN_TASK", ["made"], after=["changed"]),
        about("changed", "UPDATE_TASK", ["made"], args={"line": "changed"}),
        create("made", line="first"),
    ]
    done = {each["id"]: each for each in peer.actions(session, asked)}
    assert {each["status"] for each in done.values()} == {"ok"}
    task = done["made"]["task"]
    assert {each["task"] for each in done.values()} == {task}
    looked = {"hook": "preflight", "value": {"looked_at": "chore"}}
    assert done["made"]["preflight"] == done["changed"]["preflight"] == [looked]
    assert done["ran"]["guard"] == [{"hook": "guards", "value": {"looked_at": "chore"}}]
    assert (done["ran"]["result"], done["seen"]["result"]["state"]) == ({"line": "changed"}, "succeeded")


def test_unavailable_task_has_no_id_and_nothing_that_waits_for_it_is_done(peer, session):
    done = peer.actions(session, [create("made", line="never"), about("ran", "RUN_TASK", ["made"])])
    assert statuses(done) == {"made": "unavailable", "ran": "skipped"}
    assert "task" not in done[0]
    assert done[0]["preflight"] == [{"hook": "preflight", "value": {"looked_at": "chore"}}]
    assert done[0]["error"] == {"code": "TASK_UNAVAILABLE", "message": "not this one"}


def test_task_that_a_guard_refuses_is_made_and_does_not_run(place, peer, session):
    done = peer.actions(session, [create("made", line="rm -r"), about("ran", "RUN_TASK", ["made"])])
    assert statuses(done) == {"made": "ok", "ran": "denied"}
    assert done[1]["guard"] == [{"hook": "guards", "value": {"looked_at": "chore"}}]
    assert "rm -r" not in serving.effects(place)


def test_task_outlives_its_session_and_is_not_run_twice(place, peer):
    before, after = peer.open(), peer.open()
    ((made),) = peer.actions(before, [create("made", line="outlives")])
    peer.end(before)
    asked = [about("ran", "RUN_TASK", made["task"])]
    first = peer.ask("actions", session=after, actions=asked, idempotency_key="k")
    assert peer.actions(after, asked)[0]["result"] == {"line": "outlives"}
    assert peer.ask("actions", session=after, actions=asked, idempotency_key="k")["results"] == first["results"]
    assert serving.effects(place).count("outlives") == 1
    assert (place.path / f".deedbook/implement/{made['task']}/tool_call.md").exists()


def test_task_that_is_none_or_about_none_is_said(peer, session):
    done = peer.actions(
        session,
        [
            about("a", "GET_TASK", f"t-{'0' * 32}"),
            call("b", text="b"),
            about("c", "RUN_TASK", ["b"]),
        ],
    )
    assert [each["error"]["code"] for each in done if "error" in each] == ["TASK_NOT_FOUND", "TASK_NOT_FOUND"]


# --- again ------------------------------------------------------------------------------------------------------------

MANY = [
    call("a", "count", line="again"),
    call("b", "nowhere"),
    call("c", text="c", after=["b"]),
    call("d", "guarded", text="rm -r"),
    call("e", "guarded", text="fine"),
    call("f", "narrowed", text="secret"),
    call("g", "gated", text="g"),
    call("h", "echo", wrong=1),
]


def test_request_that_is_repeated_has_its_effects_once_and_the_same_answer(place, peer, session):
    before = len(serving.effects(place))
    first = peer.ask("actions", session=session, actions=MANY, idempotency_key="once")
    again = peer.ask("actions", session=session, actions=MANY, idempotency_key="once")
    assert (first["repeated"], again["repeated"]) == (False, True)
    assert again["results"] == first["results"]
    assert first["results"][5]["result"] == {"text": "narrowed"}
    assert len(serving.effects(place)) == before + 1
    peer.end(session)
    after_the_end = peer.ask("actions", session=session, actions=MANY, idempotency_key="once")
    assert after_the_end == again


def test_key_of_another_request_is_refused(place, peer, session):
    peer.actions(session, [call("a", text="a")], idempotency_key="k")
    assert refusal(peer.actions, session, [call("a", text="b")], idempotency_key="k") == "REQUEST_REUSED"
    assert [each["code"] for each in place.payloads("action.refused", session)] == ["REQUEST_REUSED"]


def test_answer_that_was_lost_is_given_to_who_asks_again(place, session, peer):
    """The client goes in the middle of a call; what was begun is finished, recorded, and told when it comes back."""
    asked = [call("a", "count", line="lost", until=str(place.path / "go")), call("b", text="b", after=["a"])]
    with Wire(place) as wire:
        request = b'{"jsonrpc":"2.0","id":1,"method":"actions","params":%b}\n'
        params = {"session": session, "actions": asked, "idempotency_key": "lost"}
        wire.send(request % json.dumps(params).encode())
        serving.wait_for_effect(place, "lost")
    (place.path / "go").touch()
    again = peer.ask("actions", session=session, actions=asked, idempotency_key="lost")
    assert again["repeated"] is True
    assert statuses(again["results"]) == {"a": "ok", "b": "ok"}
    assert serving.effects(place).count("lost") == 1


# --- coming and going -------------------------------------------------------------------------------------------------


def test_session_is_kept_for_a_while_for_a_client_that_went_and_then_ended(place):
    with runtime(place) as first:
        session = first.open()
    with runtime(place) as second:
        assert second.call(session, "echo", {"text": "back"}) == {"text": "back"}
    until(lambda: place.types(session)[-1] == "session.end")
    assert place.payloads("session.end", session)[0]["reason"].startswith("its client went away and did not come back")


def test_session_that_is_used_over_two_connections_stays_as_long_as_one(place, peer, session):
    with runtime(place) as other:
        other.call(session, "echo", {"text": "hi"})
    threading.Event().wait(1.0)
    assert peer.call(session, "echo", {"text": "hi"}) == {"text": "hi"}


def test_two_connections_take_turns_in_one_session(place, session):
    def use(number):
        with runtime(place) as connection:
            return [connection.call(session, "echo", {"text": f"{number}.{each}"})["text"] for each in range(10)]

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(use, range(4)))
    assert said == [[f"{number}.{each}" for each in range(10)] for number in range(4)]
    depth = 0
    for event in place.events(session):
        depth += {"action.received": 1, "action.done": -1}.get(event.type, 0)
        assert depth <= 1


def test_forty_sessions_at_once_lose_nothing_and_mix_nothing(place):
    """Each client sees its own answers, and each ledger holds what its own client asked, in order, and nothing else."""

    def work(number):
        with runtime(place) as connection:
            session = connection.open()
            connection.submit(session, f"prompt {number}")
            for each in range(3):
                asked = [call(f"{kind}{each}", text=f"{number}.{each}.{kind}") for kind in "ab"]
                done = connection.actions(session, asked)
                assert [one["result"]["text"] for one in done] == [f"{number}.{each}.a", f"{number}.{each}.b"]
            connection.end(session)
            return number, session

    with ThreadPoolExecutor(40) as pool:
        worked = list(pool.map(work, range(40)))
    assert len({session for _, session in worked}) == 40
    for number, session in worked:
        assert [each["text"] for each in place.payloads("user.message", session)] == [f"prompt {number}"]
        texts = [each["args"]["text"] for each in place.payloads("tool.call", session)]
        assert texts == [f"{number}.{each}.{kind}" for each in range(3) for kind in "ab"]
        assert place.types(session).count("action.done") == 6


def test_session_that_hangs_is_ended_at_once_and_what_ran_is_unknown(place, session):
    with runtime(place) as other, ThreadPoolExecutor(1) as pool, runtime(place) as hanging:
        asked = [call("a", "count", line="hangs", until=str(place.path / "gone on"))]
        done = pool.submit(hanging.actions, session, asked, idempotency_key="k")
        serving.wait_for_effect(place, "hangs")
        other.end(session, now=True)
        assert place.payloads("tool.error", session)[0]["outcome"] == "unknown"
        (place.path / "gone on").touch()
        assert done.result()[0]["error"]["code"] == "OUTCOME_UNKNOWN"
        again = other.actions(session, asked, idempotency_key="k")
        assert again[0]["error"]["code"] == "OUTCOME_UNKNOWN"


def test_calls_of_actions_are_judged_again_as_they_were(place, peer, session):
    """Who looks at the ledger later finds the same caller, scope and decisions under actions and tasks."""
    peer.actions(session, [*MANY, create("made", line="judged"), about("ran", "RUN_TASK", ["made"])])
    peer.end(session)
    assert "nothing changed" in place.run("whatif", session, "--system", ".", status=0).out


# --- what it is -------------------------------------------------------------------------------------------------------


def test_description_holds_the_schemas_of_the_wire(peer):
    described = peer.describe()
    assert described["request"] == SCHEMAS.document("runtime_request_v2")
    assert described["response"] == SCHEMAS.document("runtime_response_v2")
    assert set(described["actions"]) >= {"CALL", "CREATE_TASK", "END_SESSION"}
    assert set(described["methods"]) >= {"session.open", "actions"}


def test_sockets_are_their_owners_alone(place):
    state = place.path / ".deedbook"
    assert stat.S_IMODE((state / "runtime.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_status_is_told_by_the_process_that_serves(place):
    assert place.run("serve", "--status", "--json", status=0).fits("output_serve_v1")["ok"] is True


def test_second_server_is_told_who_serves(place, peer):
    ran = place.run("serve", status=1)
    assert "RUNTIME_RUNNING" in ran.err
    assert f"process {peer.health()['pid']}" in ran.err


# --- the process ------------------------------------------------------------------------------------------------------


def test_nobody_who_serves_is_said(own):
    assert refusal(Runtime, own.path) == "RUNTIME_UNREACHABLE"
    assert "RUNTIME_UNREACHABLE" in own.here("serve", "--status", status=1).err
    assert "7 abilities" not in own.here("serve", "--check", status=0).out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_is_finished_before_the_process_ends(own, number):
    process = serving.start(own)
    with runtime(own) as connection, ThreadPoolExecutor(1) as pool:
        session, idle = connection.open(), connection.open()
        asked = [call("a", "count", line="drained", until=str(own.path / "go")), call("b", text="b")]
        done = pool.submit(connection.actions, session, asked)
        serving.wait_for_effect(own, "drained")
        process.send_signal(number)
        until(lambda: refused(own))
        (own.path / "go").touch()
        assert statuses(done.result()) == {"a": "ok", "b": "ok"}
    assert process.wait(60) == 0
    for each in (session, idle):
        assert own.payloads("session.end", each) == [{"ok": False, "reason": "the runtime was stopped"}]
    assert not (own.path / ".deedbook/runtime.sock").exists()
    process.communicate()


def refused(place):
    try:
        runtime(place).close()
    except DeedbookError:
        return True
    return False


def test_what_does_not_finish_in_time_is_recorded_as_unknown(own):
    with serving.served(own, "--drain", "0.2") as process, runtime(own) as connection, ThreadPoolExecutor(1) as pool:
        session = connection.open()
        done = pool.submit(connection.call, session, "count", {"line": "hangs", "until": "never"})
        serving.wait_for_effect(own, "hangs")
        assert serving.stop(process) == 0
        assert refusal(done.result) == "RUNTIME_UNREACHABLE"
    assert own.payloads("tool.error", session)[0]["outcome"] == "unknown"


def test_what_was_acknowledged_before_a_kill_is_answered_again_from_the_ledger(own):
    with serving.served(own) as process, runtime(own) as connection:
        session = connection.open()
        asked = [call("a", "count", line="kept"), call("b", text="b", after=["a"])]
        first = connection.actions(session, asked, idempotency_key="k")
        process.kill()
        process.communicate()
    with serving.served(own), runtime(own) as connection:
        again = connection.ask("actions", session=session, actions=asked, idempotency_key="k")
        assert again == {"results": first, "repeated": True}
        assert refusal(connection.actions, session, asked, idempotency_key="other") == "SESSION_ENDED"
        assert refusal(connection.actions, session, asked) == "SESSION_NOT_FOUND"
    assert serving.effects(own) == ["kept"]
    assert own.payloads("session.end", session)[0]["reason"].startswith("interrupted: the process died")


# --- people -----------------------------------------------------------------------------------------------------------


def test_call_and_task_that_a_person_has_approved_go_on_when_they_are_asked_for_again(own, tmp_path):
    own.env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    own.configure("agents:", "principals: {ada: {key: ada.pub, roles: [approver]}}\nagents:")
    own.run("keys", "new", "ada", "--out", ".system/ada.pub", status=0)
    with serving.served(own), runtime(own) as connection:
        session = connection.open()
        asked = [
            call("called", "gated", text="called"),
            {"id": "made", "action": "CREATE_TASK", "ability": "gated", "args": {"text": "a task"}},
            about("ran", "RUN_TASK", ["made"]),
        ]
        called, made, ran = connection.actions(session, asked)
        assert [called["status"], made["status"], ran["status"]] == ["needs_human", "ok", "needs_human"]
        for each in (called, ran):
            own.run("approvals", "approve", each["approval"], status=0)
        again = connection.actions(session, [asked[0], about("ran", "RUN_TASK", made["task"])])
        assert [each["result"] for each in again] == [{"text": "called"}, {"text": "a task"}]
        assert connection.actions(session, asked[:1])[0]["status"] == "needs_human"


# --- who asks ---------------------------------------------------------------------------------------------------------

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")


@as_root
def test_who_asks_is_known_by_user_id_and_their_sessions_are_theirs(own):
    own.configure("agents:", "principals: {ada: {roles: [editor], uid: 12001}}\nagents:")
    with serving.served(own):
        (own.path / ".deedbook").chmod(0o711)  # as an operator does who lets others in
        (own.path / ".deedbook/runtime.sock").chmod(0o666)
        open_to_all(own)
        with runtime(own) as mine, as_user(12001, own.path) as hers:
            session = mine.open()
            assert refusal(hers.call, session, "echo", {"text": "hi"}) == "SESSION_NOT_YOURS"
            assert refusal(hers.end, session) == "SESSION_NOT_YOURS"
            assert hers.sessions() == []
            own_session = hers.open()
            assert hers.call(own_session, "echo", {"text": "hi"}) == {"text": "hi"}
            mine.end(session)
            assert refusal(hers.actions, session, [call("a")], idempotency_key="k") == "SESSION_NOT_FOUND"
            with as_user(12002, own.path) as stranger:
                assert refusal(stranger.health) == "PEER_UNKNOWN"
    assert own.events(own_session)[0].payload["principal"]["id"] == "ada"
    refusals = [event for event in own.events(session) if event.type == "action.refused"]
    assert [(event.principal, event.payload["code"]) for event in refusals] == [("ada", "SESSION_NOT_YOURS")] * 2


def as_user(number, place):
    """Connect as another user; who is asked sees who one was then."""
    os.seteuid(number)
    try:
        return Runtime(place, seconds=60)
    finally:
        os.seteuid(0)


def open_to_all(place):
    """Let everybody go through the folders down to a workspace."""
    for folder in (place.path, *place.path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)


STATUS = """
import os, sys
from deedbook.cli import program as cli

def status():
    sys.argv = ["deedbook", "serve", "--status"]
    try:
        cli.main()
    except SystemExit as end:
        return end.code

status()  # imports everything: another user may not be able to read the interpreter's files
os.setgroups([]), os.setgid(12001), os.setuid(12001)
os._exit(status())
"""


@as_root
def test_runtime_of_another_user_is_said_to_be_that(own):
    (own.path / ".deedbook").mkdir(mode=0o700)
    open_to_all(own)
    for place in (own.path, own.path / ".deedbook", own.path / ".deedbook/runtime.sock"):
        with pytest.raises(DeedbookError, match="another user's") as caught:
            as_user(12001, place)
        assert caught.value.error.code == "RUNTIME_UNREACHABLE"
        assert caught.value.error.place == str(own.path / ".deedbook/runtime.sock")
    told = subprocess.run([sys.executable, "-c", STATUS], cwd=own.path, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    nobody, others = told.stderr.splitlines()
    assert "no process serves this workspace" in nobody
    assert "another user's" in others
    assert ".deedbook/.deedbook" not in others


def test_user_id_is_of_one_principal(own):
    own.configure("agents:", "principals: {ada: {uid: 7}, bob: {uid: 7}}\nagents:")
    ran = own.here("serve", "--check", status=1)
    assert '"ada" has the user id 7 already' in ran.err
