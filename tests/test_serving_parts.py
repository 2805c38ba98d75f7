"""The parts of the runtime by themselves: the order of a batch, a stream, what a ledger says of a request."""

import errno
import os
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Event
from deedbook.format.errors import DeedbookError, Err, Ok
from deedbook.format.files import Folder
from deedbook_serve.client import Runtime
from deedbook_serve.serving.action_records import read_actions
from deedbook_serve.serving.actions import (
    OutcomeSources,
    describe_ended,
    describe_not_started,
    get_status,
    rebuild_outcomes,
)
from deedbook_serve.serving.batches import order_actions
from deedbook_serve.serving.instance_lock import hold_instance_lock
from deedbook_serve.serving.sockets import get_peer_uid, listen, notify, take_inherited
from deedbook_serve.serving.streams import MAX_LINE, LineTooLongError, Stream
from deedbook_serve.serving.wire import to_error

# --- the order of a batch --------------------------------------------------------------------------------------------


@st.composite
def batches(draw):
    """Return actions without a circle, in any order, and with one where *tangled* says so."""
    size = draw(st.integers(1, 12))
    actions = []
    for number in range(size):
        after = draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)) if number else []
        action = {"id": f"a{number}", "action": "GET_TASK", "after": [f"a{each}" for each in after]}
        if number and draw(st.booleans()):
            action["task"] = {"from": f"a{draw(st.integers(0, number - 1))}"}
        actions.append(action)
    return draw(st.permutations(actions))


@given(batches())
def test_order_respects_what_waits_for_what_and_is_always_the_same(actions):
    made = order_actions(actions)
    assert isinstance(made, Ok)
    names = [step.id for step in made.value]
    assert sorted(names) == sorted(action["id"] for action in actions)
    for step in made.value:
        assert all(names.index(before) < names.index(step.id) for before in step.depends_on)
    assert [step.id for step in order_actions(actions).value] == names
    assert [step.id for step in order_actions([step.request for step in made.value]).value] == names


@given(batches(), st.data())
def test_circle_is_found_before_anything_is_begun(actions, data):
    last = data.draw(st.sampled_from(actions))
    ahead = {"id": "x", "action": "CALL", "after": [last["id"]]}
    tangled = [{**action, "after": [*action["after"], "x"]} if action is last else action for action in actions]
    found = order_actions([ahead, *tangled])
    assert isinstance(found, Err)
    assert found.error.code == "BATCH_INVALID"


def test_action_that_waits_for_itself_is_a_circle():
    assert isinstance(order_actions([{"id": "a", "action": "CALL", "after": ["a"]}]), Err)


# --- a stream -------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    stream = Stream(ours, patience=0.2)
    with theirs:
        yield stream, theirs
    stream.close()


@given(st.lists(st.binary(max_size=50).map(lambda raw: raw.replace(b"\n", b"")), max_size=8), st.integers(1, 60))
def test_lines_come_as_they_went_however_they_were_cut(lines, size):
    ours, theirs = socket.socketpair()
    raw = b"".join(line + b"\n" for line in lines)
    with ours, theirs:
        stream = Stream(ours)
        for start in range(0, len(raw), size):
            theirs.sendall(raw[start : start + size])
        theirs.shutdown(socket.SHUT_WR)
        assert [stream.read_line() for _ in lines] == [line + b"\n" for line in lines]
        assert stream.read_line() == b""


def test_line_is_as_long_as_it_may_be_and_no_longer(pair):
    stream, theirs = pair
    theirs.sendall(b"123456\n1234567\n12345\n" + b"1" * 50 + b"\nlast\n")
    assert stream.read_line(7) == b"123456\n"
    with pytest.raises(LineTooLongError):
        stream.read_line(7)
    assert stream.read_line(7) == b"12345\n"
    with pytest.raises(LineTooLongError):
        stream.read_line(7)
    assert stream.read_line(7) == b"last\n"


def test_who_begins_a_message_has_to_end_it_in_time(pair):
    stream, theirs = pair
    theirs.sendall(b"half")
    with pytest.raises(TimeoutError):
        stream.read_line()
    theirs.sendall(b" and more")
    with pytest.raises(TimeoutError):
        stream.read_exactly(100)


def test_who_ends_in_the_midst_of_a_message_has_sent_none(pair):
    stream, theirs = pair
    theirs.sendall(b"12345")
    assert stream.read_exactly(2) == b"12"
    theirs.close()
    with pytest.raises(ConnectionError):
        stream.read_exactly(4)
    assert stream.read_line() == b""


def test_who_takes_no_answer_is_not_waited_for(pair):
    stream, _ = pair
    with pytest.raises(TimeoutError):
        stream.send(b"x" * MAX_LINE)


def test_line_that_never_ends_ends_the_connection(pair):
    stream, theirs = pair

    def flood():
        try:
            while True:
                theirs.sendall(b"x" * 65_536)
        except OSError:
            return

    flooding = threading.Thread(target=flood)
    flooding.start()
    with pytest.raises(OSError, match=r"never ended|in time"):
        stream.read_line(1000)
    stream.cut()
    flooding.join()


def test_reader_that_is_woken_sees_the_end_and_can_still_answer(pair):
    stream, theirs = pair
    threading.Timer(0.05, stream.wake).start()
    assert stream.read_line() == b""
    stream.send(b"bye")
    assert theirs.recv(3) == b"bye"


# --- sockets and the state folder -----------------------------------------------------------------------------------


@pytest.fixture
def broken(tmp_path):
    """Return a connection that the runtime's side has closed before it answered."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with Runtime(tmp_path / "s") as runtime:
            listener.accept()[0].close()
            yield runtime


CALL = {"id": "a", "action": "CALL", "ability": "act", "args": {}}
QUESTIONS = {
    "health": (lambda runtime: runtime.health(), True),
    "describe": (lambda runtime: runtime.describe(), True),
    "sessions": (lambda runtime: runtime.sessions(), True),
    "open": (lambda runtime: runtime.open(), False),
    "call": (lambda runtime: runtime.call("s", "act"), False),
    "submit": (lambda runtime: runtime.submit("s", "Hi"), False),
    "actions": (lambda runtime: runtime.actions("s", [CALL]), False),
    "actions with a key": (lambda runtime: runtime.actions("s", [CALL], idempotency_key="k"), True),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_lost_answer_is_retryable_only_if_nothing_can_be_done_twice(broken, name):
    ask, retryable = QUESTIONS[name]
    with pytest.raises(DeedbookError) as caught:
        ask(broken)
    error = caught.value.error
    assert (error.code, error.retryable) == ("RUNTIME_UNREACHABLE", retryable)
    assert error.message.endswith("; what was asked may have been done")


def test_error_of_the_system_within_a_request_is_not_retryable():
    """It can come after an effect."""
    error = to_error(OSError(errno.EIO, "input/output error"))
    assert (error.code, error.retryable) == ("FAILED", False)


def test_peer_is_known_by_its_user_id():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert get_peer_uid(ours) == os.geteuid()


def test_service_manager_is_told_if_it_wants_to_know(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "n"))
        notify({"NOTIFY_SOCKET": str(tmp_path / "n")}, b"READY=1")
        assert listening.recv(16) == b"READY=1"
    notify({}, b"READY=1")
    notify({"NOTIFY_SOCKET": str(tmp_path / "nobody")}, b"READY=1")


def test_sockets_of_another_process_are_none_of_ours():
    assert take_inherited({}) == {}
    assert take_inherited({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) == {}
    for wrong in ("", "many", "9" * 5000, "\u0663"):
        with pytest.raises(DeedbookError, match="no number of sockets"):
            take_inherited({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": wrong})


def test_socket_is_made_for_its_owner_alone(tmp_path):
    with Folder.at(tmp_path) as folder, listen(folder, "x.sock"):
        assert oct((tmp_path / "x.sock").stat().st_mode & 0o777) == "0o600"


def test_no_socket_is_made_where_others_may_put_theirs(tmp_path):
    tmp_path.chmod(0o777)
    with Folder.at(tmp_path) as folder, pytest.raises(DeedbookError, match="others may write in it"):
        listen(folder, "x.sock")
    assert list(tmp_path.iterdir()) == []


def test_folder_has_one_tenant_who_says_who_it_is(tmp_path):
    with Folder.at(tmp_path) as folder, hold_instance_lock(folder, {"pid": 4711, "since": "today"}):
        with (
            pytest.raises(DeedbookError, match="process 4711, since today, serves"),
            hold_instance_lock(folder, {"pid": 1}),
        ):
            pass
        assert (tmp_path / "runtime.json").exists()
    assert not (tmp_path / "runtime.json").exists()
    with Folder.at(tmp_path) as folder, hold_instance_lock(folder, {}):
        pass


NO_SOURCES = OutcomeSources(lambda _: None, lambda _: None)


# --- what a ledger says of a request --------------------------------------------------------------------------------


def event(span, parent, kind, **payload):
    return Event(0, kind, "runtime", "local", span, parent, "", payload)


def received(span, ident, request="k"):
    return event(span, "root", "action.received", request=request, digest="d", id=ident, action="CALL", after=[])


def step(ident):
    return order_actions([{"id": ident, "action": "CALL"}]).value[0]


def test_action_whose_end_is_not_recorded_is_unknown_and_one_that_was_not_begun_is_not():
    known = read_actions([received("1", "a"), event("2", "1", "tool.call")], "k")
    told = rebuild_outcomes(known, [step("a"), step("b")], "d", describe_ended("s"), NO_SOURCES)
    assert [told[name]["error"]["code"] for name in "ab"] == ["OUTCOME_UNKNOWN", "SESSION_ENDED"]
    told = rebuild_outcomes(known, [step("a"), step("b")], "d", describe_not_started(), NO_SOURCES)
    assert [told[name]["error"]["code"] for name in "ab"] == ["OUTCOME_UNKNOWN", "ACTION_SKIPPED"]


def test_lost_run_of_a_task_is_told_with_who_decides_about_it():
    steps = order_actions([{"id": "a", "action": "RUN_TASK", "task": "t-" + "0" * 32}]).value
    (told,) = rebuild_outcomes(
        read_actions([received("1", "a")], "k"), steps, "d", describe_ended("s"), NO_SOURCES
    ).values()
    assert told["error"]["code"] == "OUTCOME_UNKNOWN"
    assert "deedbook tasks decide" in told["error"]["message"]


def test_calls_that_a_call_made_are_not_the_actions_own():
    inner = {"hook": "h", "signals": {"ability_guard": "inner"}}
    outer = {"hook": "h", "signals": {"ability_guard": "outer"}}
    known = read_actions(
        [
            received("1", "a"),
            event("2", "1", "hook.fired", event="PreToolUse", asked=[outer]),
            event("3", "1", "tool.call"),
            event("4", "3", "hook.fired", event="PreToolUse", asked=[inner]),
            event("5", "3", "tool.call"),
            event("6", "5", "tool.result", result="inner"),
            event("7", "3", "tool.result", result="outer"),
            event("8", "1", "action.done", id="a", status="ok"),
        ],
        "k",
    )
    told = rebuild_outcomes(known, [step("a")], "d", describe_not_started(), NO_SOURCES)["a"]
    assert (told["result"], told["guard"]) == ("outer", [{"hook": "h", "value": "outer"}])


def test_other_requests_are_not_mixed_in():
    events = [received("1", "a", "other"), event("2", "1", "action.done", id="a", status="ok")]
    assert read_actions(events, "k") == {}
    assert list(read_actions(events, "other")) == ["a"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("NEEDS_HUMAN", "needs_human"),
        ("TASK_UNAVAILABLE", "unavailable"),
        ("GATE_DENIED", "denied"),
        ("TOOL_NOT_ALLOWED", "denied"),
        ("TOOL_ERROR", "failed"),
        ("SOME_PLUGINS_OWN", "failed"),
    ],
)
def test_status_follows_the_code(code, said):
    assert get_status(code) == said
