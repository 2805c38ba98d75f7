"""What no honest client sends, and clients that come in crowds, go in the middle, or do not listen."""

import json
import os
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import serving
from commandline import COMMAND, environment, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import Wire, runtime

from deedbook.format.errors import CODES, DeedbookError
from deedbook_serve.client import Runtime
from deedbook_serve.serving.addresses import address, connect

MIB = 1024 * 1024
QUICK = settings(database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Give a served workspace that lets in twelve connections; in the end its server ends well."""
    made = serving.workspace(tmp_path_factory.mktemp("hostile") / "workspace")
    with serving.served(made, "--connections", "12"):
        yield made


@pytest.fixture
def wire(place):
    with Wire(place) as made:
        yield made


def alive(wire):
    """Say whether the connection still answers."""
    return wire.ask("runtime.health")["result"]["ok"]


def code(answer):
    assert answer["error"]["data"]["code"] in CODES
    return answer["error"]["data"]["code"]


# --- messages ---------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["jsonrpc", "id", "method", "params", "session", "actions", "x", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.sampled_from(["2.0", "actions", "session.open", "session.end", "CALL", "runtime.health"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
NEARLY = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | VALUES, "id": st.integers(0, 9) | VALUES, "method": VALUES},
    optional={"params": VALUES},
)


@QUICK
@given(st.binary(max_size=200).map(lambda raw: raw.replace(b"\n", b"")))
def test_any_line_has_one_answer_and_the_connection_goes_on(wire, line):
    wire.send(line + b"\n")
    assert "error" in wire.answer()
    assert alive(wire)


@QUICK
@given(VALUES | NEARLY)
def test_any_json_has_one_answer_and_the_connection_goes_on(wire, value):
    wire.send(json.dumps(value).encode() + b"\n")
    answer = wire.answer()
    assert "result" in answer or code(answer)
    assert alive(wire)


REQUEST = '{"jsonrpc":"2.0","id":1,"method":"runtime.health"}'


@pytest.mark.parametrize(
    ("line", "number", "said"),
    [
        (b"", -32700, "INTAKE_REFUSED"),
        (b"\xff\xfe", -32700, "INTAKE_REFUSED"),
        (b'{"jsonrpc":"2.0"', -32700, "INTAKE_REFUSED"),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"runtime.health"}', -32700, "INTAKE_REFUSED"),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"runtime.health"}', -32700, "INTAKE_REFUSED"),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"runtime.health"}', -32700, "INTAKE_REFUSED"),
        (b"[" * 100_000, -32700, "INTAKE_REFUSED"),
        (b"[" * 100_000 + b"]" * 100_000, -32700, "INTAKE_REFUSED"),
        (b"[0" + b",0" * 100_000 + b"]", -32700, "INTAKE_REFUSED"),
        (f"[{REQUEST},{REQUEST}]".encode(), -32600, "MESSAGE_INVALID"),
        (b'"runtime.health"', -32600, "MESSAGE_INVALID"),
        (b'{"jsonrpc":"2.0","method":"runtime.health"}', -32600, "MESSAGE_INVALID"),
        (b'{"jsonrpc":"2.0","id":null,"method":"runtime.health"}', -32600, "MESSAGE_INVALID"),
        (b'{"jsonrpc":"1.0","id":1,"method":"runtime.health"}', -32600, "MESSAGE_INVALID"),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600, "MESSAGE_INVALID"),
        (b'{"jsonrpc":"2.0","id":1,"method":"runtime.heath"}', -32601, "METHOD_UNKNOWN"),
        (b'{"jsonrpc":"2.0","id":1,"method":"runtime.health","params":[]}', -32602, "SCHEMA_VIOLATION"),
        (b'{"jsonrpc":"2.0","id":1,"method":"runtime.health","params":{"x":1}}', -32602, "SCHEMA_VIOLATION"),
        (b'{"jsonrpc":"2.0","id":1,"method":"session.end"}', -32602, "SCHEMA_VIOLATION"),
        (b'{"jsonrpc":"2.0","id":1,"method":"session.end","params":{"session":"../x"}}', -32602, "SCHEMA_VIOLATION"),
        (b'{"jsonrpc":"2.0","id":1,"method":"session.end","params":{"session":"x"}}', -32000, "SESSION_NOT_FOUND"),
    ],
)  # fmt: skip
def test_message_that_is_no_request_is_answered_with_a_code_that_stays(wire, line, number, said):
    wire.send(line + b"\n")
    answer = wire.answer()
    assert (answer["error"]["code"], code(answer)) == (number, said)
    assert alive(wire)


def test_unknown_names_come_with_the_nearest_one(wire):
    wire.send(b'{"jsonrpc":"2.0","id":1,"method":"runtime.heath"}\n')
    assert 'did you mean "runtime.health"?' in wire.answer()["error"]["message"]
    answer = wire.ask("actions", session="x", actions=[{"id": "a", "action": "CAL"}])
    assert 'did you mean "CALL"?' in answer["error"]["message"]


def test_line_that_is_too_long_is_skipped_and_the_connection_goes_on(wire):
    wire.send(b"x" * (17 * MIB) + b"\n")
    assert code(wire.answer()) == "INTAKE_REFUSED"
    assert alive(wire)


def test_requests_may_come_byte_by_byte_and_many_at_once(wire):
    for byte in REQUEST.encode() + b"\n":
        wire.send(bytes([byte]))
    assert "result" in wire.answer()
    lines = [REQUEST.replace('"id":1', f'"id":{number}') for number in range(50)]
    wire.send(("\n".join(lines) + "\n").encode())
    assert [wire.answer()["id"] for _ in range(50)] == list(range(50))


def test_large_and_deep_arguments_come_back_as_they_went(place):
    deep = json.loads("[" * 50 + "]" * 50)
    with runtime(place) as connection:
        session = connection.open()
        text = "ä" * (2 * MIB)
        assert connection.call(session, "echo", {"text": text}) == {"text": text}
        with pytest.raises(DeedbookError) as caught:
            connection.call(session, "echo", {"text": deep})
        assert caught.value.error.code == "SCHEMA_VIOLATION"


def test_request_whose_answer_is_full_does_no_more(place):
    """Two answers fill a line; what comes after them is not begun, and may be asked for again."""
    large = {"action": "CALL", "ability": "count", "args": {"line": "0123456789", "times": 9 * MIB // 10}}
    small = {"action": "CALL", "ability": "count", "args": {"line": "after the large ones"}}
    with runtime(place) as connection:
        session = connection.open()
        done = connection.actions(session, [{"id": "a", **large}, {"id": "b", **large}, {"id": "c", **small}])
        assert [each["status"] for each in done] == ["ok", "ok", "skipped"]
        assert done[2]["error"]["code"] == "ACTION_SKIPPED"
    assert "after the large ones" not in serving.effects(place)


# --- refusals in the ledger -------------------------------------------------------------------------------------------


def test_ledger_of_a_session_does_not_grow_with_all_that_is_refused(place, wire):
    session = wire.ask("session.open")["result"]["session"]
    for _ in range(150):
        assert code(wire.ask("actions", session=session, actions=[{"id": "a", "action": "X"}])) == "ACTION_UNKNOWN"
    assert place.types(session).count("action.refused") == 100


# --- coming and going -------------------------------------------------------------------------------------------------


def test_half_a_request_does_nothing(place, wire):
    session = wire.ask("session.open")["result"]["session"]
    asked = {
        "session": session,
        "actions": [{"id": "a", "action": "CALL", "ability": "count", "args": {"line": "half"}}],
    }
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "actions", "params": asked}).encode()
    with Wire(place) as other:
        other.send(line[:-5])
    with Wire(place) as other:
        other.send(line)  # whole, but for the end of its line
    assert alive(wire)
    assert place.types(session) == ["session.start"]


def test_client_that_does_not_read_keeps_nobody_else_waiting(place):
    with Wire(place) as deaf, runtime(place) as other:
        session = deaf.ask("session.open")["result"]["session"]
        call = {"id": "a", "action": "CALL", "ability": "echo", "args": {"text": "x" * MIB}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "actions", "params": {"session": session, "actions": [call]}}
        line = json.dumps(request).encode() + b"\n"
        sending = threading.Thread(target=lambda: [deaf.send(line) for _ in range(8)])
        sending.start()
        until(lambda: "action.done" in place.types(session))
        own = other.open()
        assert other.call(own, "echo", {"text": "hi"}) == {"text": "hi"}
        assert all(len(deaf.answer()["result"]["results"][0]["result"]["text"]) == MIB for _ in range(8))
        sending.join()


def test_more_connections_than_are_attended_to_are_told_to_come_again(place):
    wires = [Wire(place) for _ in range(12)]
    try:
        until(lambda: all(alive(each) for each in wires))
        with Wire(place) as late:
            answer = late.answer()
            assert (code(answer), answer["error"]["data"]["retryable"]) == ("RUNTIME_BUSY", True)
            assert late.answer() is None
    finally:
        for each in wires:
            each.close()
    until(lambda: came_in(place))


def came_in(place):
    with Wire(place) as wire:
        return "result" in wire.ask("runtime.health")


def test_crowd_that_comes_and_goes_leaves_nothing_behind(place):
    def come(number):
        with Wire(place) as wire:
            wire.send((b"", b"x", REQUEST.encode(), REQUEST.encode() + b"\n")[number % 4])

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(come, range(200)))
    until(lambda: came_in(place))
    with Wire(place) as wire:
        until(lambda: wire.ask("runtime.health")["result"]["connections"] == 1)


# --- sockets ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path):
    """Give a workspace that nobody serves yet, at a path that no address of a socket has room for."""
    return serving.workspace(tmp_path / ("deep" * 20) / ("deeper" * 15) / "workspace")


def test_socket_of_a_server_that_was_killed_is_replaced_at_a_path_of_any_length(own):
    for _ in range(2):
        process = serving.start(own)
        with runtime(own) as connection:
            assert connection.health()["ok"]
            process.kill()
            process.communicate()
    assert (own.path / ".deedbook/runtime.sock").is_socket()
    with serving.served(own), runtime(own) as connection:
        assert connection.health()["ok"]


def test_file_that_is_no_socket_is_left_alone(own):
    own.here("serve", "--check", status=0)
    (own.path / ".deedbook/runtime.sock").write_text("precious")
    ran = own.run("serve", status=1)
    assert "is there and is no socket" in ran.err
    assert (own.path / ".deedbook/runtime.sock").read_text() == "precious"


def test_socket_of_a_service_manager_is_taken(own):
    """As systemd does it: a listening socket at descriptor 3, for the process that has the id."""
    place = own.path.parent / "run"
    place.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        fd = os.open(place, os.O_RDONLY)
        with address(fd, "runtime.sock") as at:
            listening.bind(at)
        os.close(fd)
        listening.listen()
        number = listening.fileno()
        command = f"exec 3<&{number}; LISTEN_PID=$$ LISTEN_FDS=1 exec {COMMAND} serve"
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=own.path, env=environment(**own.env), pass_fds=[number], stderr=subprocess.PIPE
        )
    with process:
        assert process.stderr is not None
        while b"serving" not in process.stderr.readline():
            pass
        connect(place / "runtime.sock").close()
        with Runtime(place / "runtime.sock") as connection:
            assert connection.health()["pid"] == process.pid
        process.terminate()
        process.communicate()
    assert process.returncode == 0
    assert (place / "runtime.sock").exists()
    assert not (own.path / ".deedbook/runtime.sock").exists()
