"""The witness: what goes on is remembered and then cosigned, nothing else is; over HTTP, a folder, and hostile."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import ledgers
import pytest
import rfc9162
from commandline import SCHEMAS
from otherlog import OtherLog

from deedbook.cli import program as cli
from deedbook.format import files
from deedbook.format.errors import SignatureError
from deedbook.format.notes import Note, VerifierKey, WitnessKey
from deedbook_audit.transparency.cosignatures import cosigned_at
from deedbook_audit.transparency.witness_requests import MAX_BODY, Answer
from deedbook_log.witnessing import witness_server as http_side
from deedbook_log.witnessing.store import WitnessStore
from deedbook_log.witnessing.witness import Witness
from deedbook_log.witnessing.witness_folder import WitnessFolder
from deedbook_log.witnessing.witness_server import WitnessServer

LOG = OtherLog()
HASH = sha256(LOG.origin.encode()).hexdigest()
NAME = "witness.example.com/w1"


@pytest.fixture
def store(tmp_path):
    made = WitnessStore.create(tmp_path / "store", NAME)
    made.trust(LOG.origin, VerifierKey.parse(LOG.key))
    return made


@pytest.fixture
def witness(store):
    return Witness(store, clock=lambda: 1000)


def known(store):
    note = store.read_newest(HASH)
    return int(note.text.split("\n")[1]) if note else 0


def cosigned(store, log, size, answer, *, at=1000):
    """Say whether *answer* is the witness's word for the log's note of *size*."""
    note = Note.parse(log.note(size) + answer.text)
    return answer.status == 200 and cosigned_at(store.key.public, note) == at


# --- what is cosigned -------------------------------------------------------------------------------------------------


def test_log_that_grows_is_cosigned_step_by_step(store, witness):
    old = 0
    for size in (0, 1, 2, 7, 7, 8, 30):
        assert cosigned(store, LOG, size, witness.add(LOG.request(old, size)))
        assert known(store) == size
        old = size


def test_newest_checkpoint_is_kept_with_the_logs_signature_and_its_own(store, witness):
    witness.add(LOG.request(0, 5))
    note = store.read_newest(HASH)
    assert note.is_signed_by(VerifierKey.parse(LOG.key))
    assert cosigned_at(store.key.public, note) == 1000


def test_time_of_a_cosignature_never_goes_back(store):
    Witness(store, clock=lambda: 2000).add(LOG.request(0, 1))
    assert cosigned(store, LOG, 2, Witness(store, clock=lambda: 1000).add(LOG.request(1, 2)), at=2000)


def test_log_may_change_its_key(store, witness):
    new = OtherLog(seed=bytes(32))
    witness.add(LOG.request(0, 2))
    assert witness.add(new.request(2, 3)).status == 403
    store.trust(LOG.origin, VerifierKey.parse(new.key))
    assert cosigned(store, new, 3, witness.add(new.request(2, 3)))
    assert cosigned(store, LOG, 4, witness.add(LOG.request(3, 4)))


def test_signatures_of_unknown_keys_are_ignored(store, witness):
    more = LOG.note(3) + ledgers.signed("x\n", "stranger").partition("\n\n")[2]
    assert cosigned(store, LOG, 3, witness.add(LOG.request(0, 3, note=more)))


# --- what is refused --------------------------------------------------------------------------------------------------

FORK = OtherLog(fork="!")
REFUSED = {
    "unknown origin": (OtherLog("other").request(0, 1), 404),
    "unknown key": (OtherLog(seed=bytes(32)).request(5, 6), 403),
    "signature of other text": (LOG.request(5, 6, note=LOG.text(6) + "\n" + LOG.note(7).partition("\n\n")[2]), 403),
    "old beyond the checkpoint": (LOG.request(7, 6, proof=[]), 400),
    "old too small": (LOG.request(4, 6), 409),
    "old too large": (LOG.request(6, 7), 409),
    "nothing known": (LOG.request(0, 6), 409),
    "smaller than before": (LOG.request(3, 4), 409),
    "fork": (FORK.request(5, 8), 422),
    "fork of the same size": (FORK.request(5, 5), 422),
    "no proof": (LOG.request(5, 8, proof=[]), 422),
    "proof of another": (LOG.request(5, 8, proof=LOG.proof(5, 9)), 422),
    "proof too long": (LOG.request(5, 8, proof=[*LOG.proof(5, 8), bytes(32)]), 422),
    "proof where nothing is added": (LOG.request(5, 5, proof=[bytes(32)]), 422),
    "64 hashes": (LOG.request(5, 8, proof=[bytes(32)] * 64), 400),
    "empty": (b"", 400),
    "not UTF-8": (b"old 5\n\n\xff", 400),
    "no note": (b"old 5\n\nx\n", 400),
    "no blank line": (b"old 5\nx\n", 400),
    "old with a leading zero": (LOG.request(5, 6).replace(b"old 5", b"old 05"), 400),
    "old negative": (LOG.request(5, 6).replace(b"old 5", b"old -5"), 400),
    "old enormous": (LOG.request(5, 6).replace(b"old 5", b"old " + b"9" * 19), 400),
    "old without a space": (LOG.request(5, 6).replace(b"old 5", b"old5"), 400),
    "carriage returns": (LOG.request(5, 6).replace(b"\n", b"\r\n"), 400),
    "hash of 31 bytes": (LOG.request(5, 6, proof=[bytes(31)]), 400),
    "no base64": (LOG.request(5, 6).replace(b"old 5\n", b"old 5\n????\n"), 400),
    "size with a sign": (LOG.request(5, 6).replace(b"log\n6\n", b"log\n+6\n"), 400),
    "too long": (LOG.request(5, 6) + b"x" * MAX_BODY, 400),
    "NUL": (LOG.request(5, 6).replace(b"example.com/log\n6", b"example.com\0\n6"), 400),
    "path as origin": (OtherLog("../../key").request(0, 1), 404),
}


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_refused_and_nothing_is_changed(store, witness, name):
    request, status = REFUSED[name]
    witness.add(LOG.request(0, 5))
    before = store.read_newest(HASH)
    answer = witness.add(request)
    assert answer.status == status, answer
    assert answer.text.endswith("\n")
    assert (answer.text == "5\n", answer.size) == ((status == 409), 5 if status == 409 else None)
    assert store.read_newest(HASH) == before


def test_requests_that_prove_a_fork_are_kept_and_only_so_many(store, witness, monkeypatch):
    monkeypatch.setattr("deedbook_log.witnessing.store.MAX_REFUSED", 3)
    witness.add(LOG.request(0, 5))
    forks = [FORK.request(5, size) for size in range(6, 11)]
    for request in forks:
        witness.add(request)
    kept = {path.name: path.read_bytes() for path in (store.place / "logs" / HASH / "refused").iterdir()}
    assert kept == {sha256(request).hexdigest(): request for request in forks[:3]}


@pytest.mark.parametrize("damage", [b"", b"x", LOG.note(3).encode(), b"\xff"])
def test_witness_that_cannot_read_what_it_knew_signs_nothing(store, witness, damage):
    """A checkpoint without its own cosignature is not what it wrote."""
    witness.add(LOG.request(0, 5))
    (store.place / "logs" / HASH / "checkpoint").write_bytes(damage)
    assert witness.add(LOG.request(0, 6)).status == 500
    assert witness.add(LOG.request(3, 6)).status == 500


def test_disk_that_does_not_take_it_lets_nothing_be_signed(store, witness, monkeypatch):
    witness.add(LOG.request(0, 5))

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "write", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(files.os, name, fail)
            answer = witness.add(LOG.request(5, 6))
            assert (answer.status, "—" in answer.text) == (500, False), name
    assert known(store) in (5, 6)
    assert cosigned(store, LOG, 6, witness.add(LOG.request(known(store), 6)))


# --- faults -----------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from deedbook_log.witnessing.store import WitnessStore
from deedbook_log.witnessing.witness import Witness

keep = WitnessStore.save
def killed(self, note):
    if sys.argv[2] == "after":
        keep(self, note)
    os.kill(os.getpid(), signal.SIGKILL)
WitnessStore.save = killed
print(Witness(WitnessStore(Path(sys.argv[1]))).add(sys.stdin.buffer.read()))
"""


@pytest.mark.parametrize(("moment", "size"), [("before", 5), ("after", 8)])
def test_killed_witness_has_said_nothing_and_goes_on_from_what_it_kept(store, moment, size):
    witness = Witness(store, clock=lambda: 1000)
    witness.add(LOG.request(0, 5))
    argv = [sys.executable, "-c", KILLED, store.place, moment]
    ran = subprocess.run(argv, input=LOG.request(5, 8), capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (-signal.SIGKILL, b"")
    assert known(store) == size
    assert Witness(store).add(FORK.request(size, 9)).status == 422
    assert Witness(store).add(LOG.request(size, 8)).status == 200


RACING = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from otherlog import OtherLog
from deedbook_log.witnessing.store import WitnessStore
from deedbook_audit.transparency.cosignatures import cosigned_at
from deedbook_log.witnessing.witness import Witness

log, witness = OtherLog(fork=sys.argv[3]), Witness(WitnessStore(Path(sys.argv[1])))
print("ready", flush=True)
sys.stdin.readline()
old, told = 0, []
for size in range(4, 40):
    answer = witness.add(log.request(min(old, size), size))
    if answer.status == 409:
        old = answer.size
        answer = witness.add(log.request(min(old, size), size))
    if answer.status == 200:
        old = size
    told.append(answer.status)
print(told)
"""


def test_two_processes_on_one_store_never_cosign_two_histories(store):
    """Each is asked by another branch of a log that lies; whoever is first, the other branch is never signed."""
    argv = [sys.executable, "-c", RACING, str(store.place), str(Path(__file__).parent)]
    running = [
        subprocess.Popen([*argv, fork], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for fork in "ab"
    ]
    for each in running:
        assert each.stdout.readline() == "ready\n"
    for each in running:
        each.stdin.write("\n")
        each.stdin.flush()
    told = [json.loads(each.communicate(timeout=60)[0]) for each in running]
    assert sum(200 in each for each in told) == 1
    assert {status for each in told for status in each} <= {200, 409, 422, 400}


def test_races_within_one_witness_leave_one_line_of_growth(store):
    """Of many threads that ask at once for different sizes, each that is signed went on from the one before."""
    signed, begin = [], threading.Barrier(8)

    def ask(size):
        witness = Witness(WitnessStore(store.place))
        begin.wait()
        old = 0
        for _ in range(20):
            answer = witness.add(LOG.request(min(old, size), size))
            if answer.status == 200:
                signed.append(size)
                return
            old = answer.size if answer.size is not None and answer.size <= size else size + 1
            if old > size:
                return

    threads = [threading.Thread(target=ask, args=(size,)) for size in range(1, 9)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert known(store) == max(signed) == 8


def test_store_that_is_held_answers_that_it_is_busy(store, monkeypatch):
    monkeypatch.setattr("deedbook_log.witnessing.store.LOCK_SECONDS", 0.01)
    with WitnessStore(store.place).lock():
        assert Witness(store).add(LOG.request(0, 1)).status == 503
    assert Witness(store).add(LOG.request(0, 1)).status == 200


# --- keys and logs ----------------------------------------------------------------------------------------------------


def test_key_is_the_witnesss_alone_and_is_not_replaced(tmp_path):
    made = WitnessStore.create(tmp_path / "w", NAME)
    assert (tmp_path / "w" / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "w").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "w" / "key.pub").read_text() == f"{made.key.public}\n"
    with pytest.raises(SignatureError, match="is there already"):
        WitnessStore.create(tmp_path / "w", NAME)
    (tmp_path / "w" / "key").chmod(0o640)
    with pytest.raises(SignatureError, match="mode 0640"):
        Witness(made)


def called(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["deedbook", *args])
    status = cli._status(cli.GlobalOptions())
    return status, *capsys.readouterr()


def test_witness_is_made_trusts_and_tells_through_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    status, out, _ = called(monkeypatch, capsys, "witness", "new", NAME)
    assert (status, WitnessKey.parse(out.strip()).name) == (0, NAME)
    key, new = LOG.key, OtherLog(seed=bytes(32)).key
    assert called(monkeypatch, capsys, "witness", "trust", key)[2] == "example.com/log: 1 key\n"
    assert called(monkeypatch, capsys, "witness", "trust", key)[2] == "example.com/log: 1 key\n"
    (tmp_path / "log.pub").write_text(f"{new}\n")
    assert called(monkeypatch, capsys, "witness", "trust", str(tmp_path / "log.pub"))[2].endswith(": 2 keys\n")
    assert called(monkeypatch, capsys, "witness", "trust", key, "--origin", "other")[2] == "other: 1 key\n"
    status, out, _ = called(monkeypatch, capsys, "witness", "show", "--json")
    assert not SCHEMAS.validator("output_witness_v1").violations(json.loads(out))
    assert [log["origin"] for log in json.loads(out)["logs"]] == ["example.com/log", "other"]
    status, out, _ = called(monkeypatch, capsys, "witness", "show")
    assert out.splitlines()[1] == "example.com/log: cosigned up to 0, 2 keys"
    status, _, err = called(monkeypatch, capsys, "witness", "trust", "nobody+00000000+AAAA")
    assert (status, "[KEY_INVALID]" in err) == (1, True)
    status, _, err = called(monkeypatch, capsys, "witness", "serve", "--listen", "here")
    assert (status, "no HOST:PORT" in err) == (2, True)
    status, _, err = called(monkeypatch, capsys, "witness", "show", "--store", str(tmp_path / "none"))
    assert (status, "deedbook witness new" in err) == (1, True)


def rotation(old, new, *, signers, origin="example.com/log", title="deedbook log key v1"):
    """Return a change of keys as docs/ledger-format.md has it, signed by the seeds *signers*."""
    text = f"{title}\n{origin}\n{new}\n{old}\n"
    lines = [ledgers.signed(text, "example.com/log", seed).partition("\n\n")[2] for seed in signers]
    return f"{text}\n{''.join(lines)}"


def test_change_of_keys_counts_when_a_trusted_key_signed_it(tmp_path, store, monkeypatch, capsys):
    old, new = LOG.key, OtherLog(seed=bytes(32)).key
    place = tmp_path / "change"
    command = ("witness", "trust", str(place), "--store", str(store.place))
    for signers, wrong in (
        ([bytes(32)], "no key that is trusted"),
        ([LOG.seed], "the new key did not sign"),
        ([bytes(32), b"s" * 32], "no key that is trusted"),
    ):
        place.write_text(rotation(old, new, signers=signers))
        status, _, err = called(monkeypatch, capsys, *command)
        assert (status, wrong in err) == (1, True), err
    place.write_text(rotation(old, new, signers=[LOG.seed, bytes(32)], title="deedbook log key v2"))
    assert "not a change of keys" in called(monkeypatch, capsys, *command)[2]
    place.write_text(rotation(old, new, signers=[LOG.seed, bytes(32)]))
    assert called(monkeypatch, capsys, *command)[2] == "example.com/log: 2 keys\n"
    assert Witness(store).add(OtherLog(seed=bytes(32)).request(0, 1)).status == 200


# --- HTTP -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(store):
    with serving(Witness(store, clock=lambda: 1000)) as made:
        yield made


@contextmanager
def serving(witness):
    said = []
    with WitnessServer(witness, "127.0.0.1", 0, report=said.append) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        made.said = said
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


def ask(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(*server.server_address, timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        connection.close()


def raw(server, sent):
    with socket.create_connection(server.server_address, timeout=20) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_witness_answers_over_http_as_the_protocol_says(store, server):
    status, kind, text = ask(server, "POST", "/add-checkpoint", LOG.request(0, 5))
    assert cosigned(store, LOG, 5, Answer(status, text))
    assert kind.startswith("text/plain")
    assert ask(server, "POST", "/add-checkpoint", LOG.request(0, 5)) == (409, "text/x.tlog.size", "5\n")
    assert ask(server, "GET", f"/{HASH}/checkpoint")[2] == str(store.read_newest(HASH))
    told = {name: ask(server, "POST", "/add-checkpoint", request)[0] for name, (request, _) in REFUSED.items()}
    assert told == {name: 413 if name == "too long" else status for name, (_, status) in REFUSED.items()}


def test_connection_may_be_used_again(server):
    connection = http.client.HTTPConnection(*server.server_address, timeout=20)
    for old, size in ((0, 1), (1, 2), (2, 3)):
        connection.request("POST", "/add-checkpoint", LOG.request(old, size))
        assert connection.getresponse().read().startswith("— ".encode())
    connection.close()


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 404),
        ("GET", f"/{'0' * 64}/checkpoint", {}, 404),
        ("GET", f"/../{HASH}/checkpoint", {}, 404),
        ("GET", "/key", {}, 404),
        ("POST", "/", {}, 404),
        ("POST", "/add-checkpoint?x", {}, 404),
        ("POST", "/add-checkpoint", {"Content-Length": "999999"}, 413),
        ("POST", "/add-checkpoint", {"Content-Length": "-1"}, 411),
        ("POST", "/add-checkpoint", {"Content-Length": "99999999999999999999"}, 411),
        ("POST", "/add-checkpoint", {"Transfer-Encoding": "chunked"}, 411),
        ("PUT", "/add-checkpoint", {}, 405),
        ("DELETE", "/key", {}, 405),
        ("x" * 70000, "/", {}, 414),
    ],
)
def test_other_requests_are_refused_in_a_line(server, method, path, headers, status):
    shown = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    got = raw(server, f"{method} {path} HTTP/1.1\r\nHost: w\r\n{shown}\r\n".encode())
    assert got.split(b" ")[1:2] == [b"%d" % status], got[:200]
    assert b"Traceback" not in got


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02", b"GET\r\n\r\n", b"\r\n" * 50, b"GET / HTTP/9.9\r\n\r\n", b"\0" * 9]
)
def test_what_is_no_http_ends_the_connection(server, sent):
    assert b"Traceback" not in raw(server, sent)
    assert ask(server, "GET", "/")[0] == 404


def test_slow_client_is_let_go_and_the_others_are_answered(store, monkeypatch):
    """One byte now and then does not hold a connection: there is a limit for the whole request."""
    monkeypatch.setattr(http_side, "SECONDS", 0.3)
    with serving(Witness(store)) as server:
        with socket.create_connection(server.server_address, timeout=20) as slow:
            slow.sendall(b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: 100\r\n\r\n")
            ended = time.monotonic() + 20
            with suppress(OSError):  # a broken pipe or a reset, as the system likes
                while time.monotonic() < ended:
                    slow.sendall(b"x")
                    time.sleep(0.05)
            assert time.monotonic() < ended
        assert ask(server, "POST", "/add-checkpoint", LOG.request(0, 1))[0] == 200


def test_too_many_connections_are_told_to_come_again(store, monkeypatch):
    monkeypatch.setattr(http_side, "CONNECTIONS", 2)
    with serving(Witness(store)) as server:
        held = [socket.create_connection(server.server_address, timeout=20) for _ in range(2)]
        for each in held:
            each.sendall(b"GET")
        deadline = time.monotonic() + 20
        while server._free._value and time.monotonic() < deadline:
            time.sleep(0.01)
        assert raw(server, b"").startswith(b"HTTP/1.1 503 ")
        for each in held:
            each.close()
        while not server._free._value and time.monotonic() < deadline:
            time.sleep(0.01)
        assert ask(server, "GET", "/")[0] == 404


def test_program_serves_until_it_is_told_to_stop(store):
    """As its users start it: a process that says where it answers, and ends with status 0 on SIGTERM."""
    argv = [str(Path(sys.executable).with_name("deedbook")), "witness", "serve", "--listen", "127.0.0.1:0"]
    running = subprocess.Popen([*argv, "--store", store.place], stderr=subprocess.PIPE, text=True)
    host, _, port = running.stderr.readline().removeprefix("answers at http://").strip().partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.request("POST", "/add-checkpoint", LOG.request(0, 5))
    assert connection.getresponse().status == 200
    connection.close()
    assert running.stderr.readline() == "POST 127.0.0.1: 200\n"  # it is written once the answer is sent
    running.send_signal(signal.SIGTERM)
    _, told = running.communicate(timeout=20)
    assert (running.returncode, told) == (0, "")


# --- a folder ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def inbox(store, tmp_path):
    (tmp_path / "shared").mkdir()
    said = []
    made = WitnessFolder(Witness(store, clock=lambda: 1000), tmp_path / "shared", report=said.append)
    made.place, made.said = tmp_path / "shared", said
    return made


def put(inbox, number, body):
    (inbox.place / "requests").mkdir(exist_ok=True)
    (inbox.place / "requests" / f"{number:032x}").write_bytes(body)
    return inbox.place / "answers" / f"{number:032x}"


def test_requests_in_a_folder_are_answered_once_and_answers_go_with_them(store, inbox):
    assert inbox.answer_requests() == 0
    places = [put(inbox, 1, LOG.request(0, 5)), put(inbox, 2, LOG.request(0, 6))]
    assert (inbox.answer_requests(), inbox.answer_requests()) == (2, 0)
    first, second = (Answer.parse(place.read_bytes()) for place in places)
    assert cosigned(store, LOG, 5, first)
    assert second == Answer(409, "5\n")
    assert (inbox.place / "checkpoints" / HASH).read_text() == str(store.read_newest(HASH))
    assert {oct(place.stat().st_mode & 0o777) for place in [*places, inbox.place / "checkpoints" / HASH]} == {"0o644"}
    (inbox.place / "requests" / f"{1:032x}").unlink()
    inbox.answer_requests()
    assert [place.exists() for place in places] == [False, True]
    assert inbox.said == [f"{1:032x}: 200", f"{2:032x}: 409 5"]


def test_hostile_files_are_answered_or_left_alone(store, inbox, tmp_path):
    (tmp_path / "secret").write_bytes(LOG.request(0, 5))
    long = put(inbox, 1, b"x" * (MAX_BODY + 1))
    requests = inbox.place / "requests"
    (requests / f"{2:032x}").symlink_to(tmp_path / "secret")
    os.link(tmp_path / "secret", requests / f"{3:032x}")
    os.mkfifo(requests / f"{4:032x}")
    (requests / f"{5:032x}").mkdir()
    for name in ("README", "x" * 32, "A" * 32, ".deedbook-draft"):
        (requests / name).write_bytes(LOG.request(0, 5))
    (inbox.place / "answers").mkdir(exist_ok=True)
    assert inbox.answer_requests() == 1
    assert long.read_bytes().startswith(b"400\n")
    assert known(store) == 0
    planted = put(inbox, 7, LOG.request(0, 5))
    planted.symlink_to(tmp_path / "elsewhere")
    put(inbox, 8, LOG.request(5, 6))
    assert [inbox.answer_requests(), inbox.answer_requests()] == [2, 0]
    assert "not answered" in inbox.said[1]
    assert known(store) == 6
    assert not (tmp_path / "elsewhere").exists()


def test_watch_once_answers_what_is_there_through_the_command(store, inbox, monkeypatch, capsys):
    place = put(inbox, 1, LOG.request(0, 5))
    command = ("witness", "watch", str(inbox.place), "--once", "--store", str(store.place))
    assert called(monkeypatch, capsys, *command)[0] == 0
    assert place.read_bytes().startswith(b"200\n")


# --- the second implementation ----------------------------------------------------------------------------------------


def test_proofs_of_the_definitions_are_what_the_kernel_makes_and_takes():
    """RFC 9162 as it is written, and as the kernel does it, for every pair of small trees."""
    from deedbook_audit.transparency import merkle as proofs

    leaves = LOG.leaves(20)
    tree = proofs.MerkleTree(leaves)
    for size in range(1, 21):
        top = rfc9162.root(leaves[:size])
        assert tree.root(size) == top
        for index in range(size):
            path = rfc9162.inclusion(index, leaves[:size])
            assert tree.inclusion(index, size) == path
            assert proofs.includes(top, size, index, leaves[index], path)
            assert rfc9162.includes(top, size, index, leaves[index], path)
            assert not rfc9162.includes(top, size, index, leaves[index], [*path, bytes(32)])
        for old in range(size + 1):
            path = rfc9162.consistency(old, leaves[:size])
            before = rfc9162.root(leaves[:old])
            assert tree.consistency(old, size) == path
            assert rfc9162.is_consistent(old, before, size, top, path)
            assert rfc9162.is_consistent(old, bytes(32), size, top, path) is False
    assert b64encode(proofs.EMPTY) == b64encode(rfc9162.root([]))
