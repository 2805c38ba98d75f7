"""Asking witnesses: ours over HTTP and through a folder, and one of somebody else's, written from C2SP's page alone."""

import http.server
import re
import threading
import time
from base64 import b64decode
from contextlib import contextmanager, suppress
from hashlib import sha256

import ledgers
import logs
import pytest
import rfc9162
from cases import for_each
from otherlog import OtherLog

from deedbook.format.errors import WitnessError
from deedbook.format.notes import VerifierKey, WitnessKey
from deedbook_audit.submission import FolderChannel, HttpChannel, WitnessAheadError, WitnessClient
from deedbook_audit.transparency.cosignatures import cosigned_at
from deedbook_audit.transparency.witness_requests import Answer, body
from deedbook_log.witnessing.store import WitnessStore
from deedbook_log.witnessing.witness import Witness
from deedbook_log.witnessing.witness_folder import WitnessFolder
from deedbook_log.witnessing.witness_server import WitnessServer

LOG = OtherLog()
FORK = OtherLog(fork="!")


class OtherWitness(http.server.BaseHTTPRequestHandler):
    """A witness in forty lines: https://c2sp.org/tlog-witness with RFC 9162 as it is written, nothing of the kernel."""

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append(raw)
        head, _, note = raw.partition("\n\n")
        first, *proof = head.split("\n")
        old = int(re.fullmatch("old ([0-9]+)", first)[1])
        text, _, below = note.rpartition("\n\n")
        origin, size, root = f"{text}\n".rstrip("\n").split("\n")
        size, root, path = int(size), b64decode(root), [b64decode(line) for line in proof]
        known, known_root = self.server.known
        if origin != LOG.origin:
            return self.say(404, "")
        if ledgers.signed(f"{text}\n", LOG.name, LOG.seed).partition("\n\n")[2] not in f"{below}\n":
            return self.say(403, "")
        if old > size or len(path) > 63 or self.path != "/prefix/add-checkpoint":
            return self.say(400, "")
        if old != known:
            return self.say(409, f"{known}\n", "text/x.tlog.size")
        if old == size and root != known_root:
            return self.say(409, f"{known}\n", "text/x.tlog.size")
        if not rfc9162.is_consistent(old, known_root, size, root, path):
            return self.say(422, "")
        self.server.known = size, root
        line = logs.cosigned(note, "other.example/w", bytes(32), time=4711).rpartition("\n\n")[2].splitlines()[-1]
        return self.say(200, f"— somebody.else AAAAAAAAAAAAAAAA\n{line}\n")

    def say(self, status, text, kind="text/plain"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def other():
    with running(http.server.HTTPServer(("127.0.0.1", 0), OtherWitness)) as server:
        server.known, server.asked = (0, sha256(b"").digest()), []
        server.party = WitnessClient.read(
            {
                "key": logs.witness_key("other.example/w", bytes(32)),
                "url": f"http://127.0.0.1:{server.server_port}/prefix/",
            },
        )
        yield server


@pytest.fixture
def store(tmp_path):
    made = WitnessStore.create(tmp_path / "store", "w")
    made.trust(LOG.origin, VerifierKey.parse(LOG.key))
    return made


def submit(party, log, size, known=0):
    return party.submit(log.note(size), lambda old: log.proof(old, size), known)


def refused(party, log, size, known=0):
    with pytest.raises(WitnessError) as caught:
        submit(party, log, size, known)
    return caught.value.error.code


# --- another's witness ----------------------------------------------------------------------------------------------


def test_any_witness_that_keeps_to_the_protocol_can_serve(other):
    """Lines of others in its answer are not taken over, a size that it names is proved from, what it asked is exact."""
    signed = submit(other.party, LOG, 5)
    assert cosigned_at(other.party.key, signed) == 4711
    assert [each.name for each in signed.signatures] == [LOG.name, "other.example/w"]
    assert other.asked == [body(0, [], LOG.note(5)).decode()]
    assert cosigned_at(other.party.key, submit(other.party, LOG, 9, known=2)) == 4711
    assert [raw.partition("\n")[0] for raw in other.asked[1:]] == ["old 2", "old 5"]
    assert other.asked[-1].encode() == LOG.request(5, 9)


def test_what_another_witness_refuses_is_told_apart(other):
    submit(other.party, LOG, 5)
    assert refused(other.party, FORK, 5, known=5) == "WITNESS_REFUSED"
    assert refused(other.party, FORK, 8, known=5) == "WITNESS_REFUSED"
    assert refused(other.party, OtherLog("unknown"), 5) == "WITNESS_STRANGER"
    assert refused(other.party, OtherLog(seed=bytes(32)), 5) == "WITNESS_STRANGER"
    with pytest.raises(
        WitnessAheadError, match="has cosigned 5 leaves of this log, which has 3: the workspace was rolled back"
    ):
        submit(other.party, LOG, 3)


ANSWERS = {
    "nothing": (200, b"", "WITNESS_INVALID"),
    "no signature": (200, b"yes\n", "WITNESS_INVALID"),
    "not UTF-8": (200, b"\xff", "WITNESS_UNREACHABLE"),
    "another's": (200, logs.cosigned("x\n\n", "x").rpartition("\n\n")[2].encode(), "WITNESS_INVALID"),
    "endless": (200, b"x" * 70000, "WITNESS_UNREACHABLE"),
    "conflict without a size": (409, b"", "WITNESS_INVALID"),
    "conflict with nonsense": (409, b"-1\n", "WITNESS_INVALID"),
    "conflict about the same": (409, b"0\n", "WITNESS_REFUSED"),
    "a way elsewhere": (302, b"", "WITNESS_UNREACHABLE"),
    "broken": (500, b"Traceback (most recent call last)\n", "WITNESS_UNREACHABLE"),
    "bad": (400, b"\x1b[2Jno\n", "WITNESS_UNREACHABLE"),
}


@for_each("name", ANSWERS)
def test_answers_of_a_hostile_witness_count_for_nothing(name):
    status, text, code = ANSWERS[name]

    class Hostile:
        def ask(self, _):
            return Answer(status, text.decode()) if text != b"\xff" and len(text) < 70000 else self.http()

        def http(self):
            with running(http.server.HTTPServer(("127.0.0.1", 0), OtherWitness)) as server:
                server.RequestHandlerClass = type("", (OtherWitness,), {"do_POST": lambda own: reply(own, text)})
                return HttpChannel(f"http://127.0.0.1:{server.server_port}").ask(b"x")

    party = WitnessClient(WitnessKey.parse(logs.witness_key()), Hostile())
    with pytest.raises(WitnessError) as caught:
        party.submit(LOG.note(5), lambda old: LOG.proof(old, 5), 0)
    assert caught.value.error.code == code
    assert "\x1b" not in str(caught.value)


def reply(handler, raw):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(raw)


def test_witness_that_names_ever_other_sizes_is_left_alone():
    class Wavering:
        sizes = iter((1, 2, 3, 4, 5))

        def ask(self, _):
            return Answer(409, f"{next(self.sizes)}\n")

    party = WitnessClient(WitnessKey.parse(logs.witness_key()), Wavering())
    assert refused(party, LOG, 9) == "WITNESS_UNREACHABLE"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9", "http://[::1", "http://127.0.0.1:99999999", "gopher://x", "http://"]
)
def test_witness_that_is_not_there_is_said_to_be(url):
    key = {"key": logs.witness_key(), "url": url}
    assert refused(WitnessClient.read(key), LOG, 5) == "WITNESS_UNREACHABLE"


def test_witness_that_drips_is_left_after_the_time_that_it_has():
    """Each byte comes in time, and all of them never would."""

    def drip(handler):
        handler.send_response(200)
        handler.end_headers()
        with suppress(OSError):
            for _ in range(400):
                handler.wfile.write(b"x")
                time.sleep(0.05)

    with running(http.server.ThreadingHTTPServer(("127.0.0.1", 0), OtherWitness)) as server:
        server.RequestHandlerClass = type("", (OtherWitness,), {"do_POST": drip})
        begun = time.monotonic()
        with suppress(WitnessError):
            HttpChannel(f"http://127.0.0.1:{server.server_port}", seconds=0.3).ask(b"x")
        assert time.monotonic() - begun < 15


# --- ours -----------------------------------------------------------------------------------------------------------


def test_our_witness_is_asked_over_http_and_shows_what_it_cosigned(store):
    with running(WitnessServer(Witness(store, clock=lambda: 1000), "127.0.0.1", 0, report=lambda _: None)) as server:
        party = WitnessClient.read({"key": str(store.key.public), "url": server.url})
        assert party.fetch_newest(LOG.origin) is None
        assert cosigned_at(party.key, submit(party, LOG, 5)) == 1000
        assert party.fetch_newest(LOG.origin).text == LOG.text(5)
        with pytest.raises(WitnessAheadError):
            submit(party, LOG, 4)
        other = WitnessClient(WitnessKey.parse(logs.witness_key()), party.channel)
        with pytest.raises(WitnessError, match="not cosigned by its key"):
            other.fetch_newest(LOG.origin)


def test_our_witness_is_asked_through_a_folder(store, tmp_path):
    inbox = WitnessFolder(Witness(store, clock=lambda: 1000), tmp_path, report=lambda _: None)
    stop = threading.Event()

    def watch():
        while not stop.wait(0.01):
            inbox.answer_requests()

    thread = threading.Thread(target=watch)
    thread.start()
    party = WitnessClient.read({"key": str(store.key.public), "folder": str(tmp_path)})
    try:
        assert party.fetch_newest(LOG.origin) is None
        assert cosigned_at(party.key, submit(party, LOG, 5)) == 1000
        assert cosigned_at(party.key, submit(party, LOG, 8)) == 1000
        assert party.fetch_newest(LOG.origin).text == LOG.text(8)
        assert refused(party, FORK, 9, known=8) == "WITNESS_REFUSED"
    finally:
        stop.set()
        thread.join()
    inbox.answer_requests()
    assert not [*(tmp_path / "requests").iterdir(), *(tmp_path / "answers").iterdir()]


def test_answer_that_comes_later_is_collected_later_and_an_older_question_is_taken_back(store, tmp_path):
    inbox = WitnessFolder(Witness(store, clock=lambda: 1000), tmp_path, report=lambda _: None)
    channel = FolderChannel(tmp_path, seconds=0)
    party = WitnessClient(store.key.public, channel)
    for size in (3, 5):
        assert refused(party, LOG, size) == "WITNESS_UNREACHABLE"
    assert len([*(tmp_path / "requests").iterdir()]) == 1
    assert channel.collect(LOG.origin) == []
    inbox.answer_requests()
    assert channel.collect("another") == []
    ((request, answer),) = channel.collect(LOG.origin)
    assert cosigned_at(party.key, party.add_cosignature(str(request.note), answer.text)) == 1000
    assert (request.checkpoint.size, channel.collect(LOG.origin)) == (5, [])


def test_folder_that_is_not_there_or_holds_nonsense_is_said_to_be(store, tmp_path):
    party = WitnessClient.read({"key": str(store.key.public), "folder": str(tmp_path / "none")})
    assert refused(party, LOG, 5) == "WITNESS_UNREACHABLE"
    for name in ("requests", "answers"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ("0" * 32)).write_bytes(b"nonsense")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / sha256(LOG.origin.encode()).hexdigest()).write_bytes(b"nonsense")
    party = WitnessClient(store.key.public, FolderChannel(tmp_path, seconds=0))
    assert refused(party, LOG, 5) == "WITNESS_UNREACHABLE"
    with pytest.raises(WitnessError, match="no checkpoint"):
        party.fetch_newest(LOG.origin)
