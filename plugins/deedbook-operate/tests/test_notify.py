"""Notifications: real webhooks, a real mail server, a real command; nothing is lost, and nothing secret is told."""

import json
import os
import socketserver
import sys
import threading
from contextlib import contextmanager
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue

import pytest
from commandline import Place
from dying import die
from persons import approving

from deedbook.call.queue import open_queue
from deedbook.contract import ask
from deedbook.format.errors import BindingError, LedgerError
from deedbook.format.files import Folder
from deedbook_approvals.answering import answer
from deedbook_operate.freezing import open_freezer
from deedbook_operate.notifying.delivery import Command, DeliveryError, Email, Webhook, build_targets
from deedbook_operate.notifying.outbox import Outbox
from deedbook_operate.notifying.runner import Runner

WAIT = 20
"""How many seconds a test waits for an event; then it fails."""


@contextmanager
def serve(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Chat(ThreadingHTTPServer):
    """A webhook that answers with *statuses* in turn, then with 200, and keeps what it was sent."""

    def __init__(self, *statuses):
        super().__init__(("127.0.0.1", 0), ChatHandler)
        self.statuses, self.got = list(statuses), Queue()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/services/T0/very-secret"

    def texts(self):
        return [self.got.get_nowait() for _ in range(self.got.qsize())]


class ChatHandler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.server.got.put(body["text"])
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


class Post(socketserver.ThreadingTCPServer):
    """A mail server that keeps each mail; it refuses receivers whose name begins with ``no``."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), PostHandler)
        self.mails = Queue()


class PostHandler(socketserver.StreamRequestHandler):
    def say(self, line):
        self.wfile.write(f"{line}\r\n".encode())

    def handle(self):
        self.say("220 here")
        receivers = []
        for line in self.rfile:
            word = line[:4].upper()
            if word in (b"EHLO", b"HELO", b"MAIL", b"RSET"):
                self.say("250 fine")
            elif word == b"RCPT":
                refused = b"<no" in line
                receivers += [] if refused else [line]
                self.say("550 nobody here" if refused else "250 fine")
            elif word == b"DATA":
                self.say("354 go on")
                self.server.mails.put((receivers, b"".join(iter(self.rfile.readline, b".\r\n"))))
                self.say("250 kept")
            elif word == b"QUIT":
                self.say("221 bye")
                return


@pytest.fixture
def chat():
    with serve(Chat()) as made:
        yield made


@pytest.fixture
def asking(lab):
    """Give a lab in which calls of the tool a wait for ada."""
    approving(lab)
    lab.settings(features={"freeze": {}})
    lab.tool("a", lambda args, ctx: {})
    lab.policy("careful", lambda call: ask("is <this> right & proper?"))
    return lab


def park(lab, *texts):
    with lab.session() as session:
        return [session.call("a", {"text": text}).details["approval"] for text in texts]


@contextmanager
def runner(lab, targets, failures=None, **more):
    with Folder.at(lab.state, create=True) as state:
        told = failures if failures is not None else []
        yield Runner(state, "shop", targets, lambda name, why: told.append((name, why)), first_wait=0.001, **more)


def run_once(lab, targets, failures=None):
    with runner(lab, targets, failures) as made:
        return made.run(once=True)


# --- what is told -----------------------------------------------------------------------------------------------------


def test_waiting_request_is_told_once_with_its_digest_and_the_command_that_shows_it(asking, chat):
    (request,) = park(asking, "private words")
    assert run_once(asking, {"team": Webhook(chat.url)}) == {"team": 1}
    (text,) = chat.texts()
    assert text.startswith("Deedbook shop: 1 request waits for a person\n- a, asked by local: is &lt;this&gt; right")
    assert f"deedbook approvals show {request}" in text
    assert "private words" not in text
    assert "approvals approve" not in text
    with open_queue(asking.state) as queue:
        assert queue.get(request).requested.payload["shown"] in text
    assert run_once(asking, {"team": Webhook(chat.url)}) == {"team": 0}
    assert chat.texts() == []


def test_new_requests_are_told_together_and_answered_ones_are_not(asking, chat):
    target = {"team": Webhook(chat.url)}
    assert run_once(asking, target) == {"team": 0}
    first, second, third = park(asking, "1", "2", "3")
    answer(asking.path, first, approve=False, catalogue=asking.catalogue())
    assert run_once(asking, target) == {"team": 1}
    (text,) = chat.texts()
    assert "2 requests wait" in text
    assert [name in text for name in (first, second, third)] == [False, True, True]


def test_freeze_and_thaw_are_told(asking, chat):
    target = {"team": Webhook(chat.url)}
    (request,) = park(asking, "1")
    with open_freezer(str(asking.path)) as freezer:
        freezer.freeze("", "a", "a spill", None, partial=False)
    assert run_once(asking, target) == {"team": 1}
    (text,) = chat.texts()
    assert text.startswith("Deedbook shop: frozen\n- frozen by ada since ")
    assert "ability a: a spill\n  look at it: deedbook freeze" in text
    assert request not in text
    with open_freezer(str(asking.path)) as freezer:
        freezer.thaw("", None)
    run_once(asking, target)
    assert "- thawed by ada: ability a" in chat.texts()[0]
    assert run_once(asking, {"late": Webhook(chat.url)}) == {"late": 0}


def test_many_requests_make_one_message_of_bounded_length(asking, chat):
    park(asking, *map(str, range(23)))
    assert run_once(asking, {"team": Webhook(chat.url)}) == {"team": 1}
    (text,) = chat.texts()
    assert text.count("approvals show") == 20
    assert "… and 3 more: deedbook approvals list" in text


def test_sealed_reason_is_not_told(lab, chat):
    lab.settings(seal=["approval.requested/reason"])
    lab.tool("a", lambda args, ctx: {})
    lab.policy("careful", lambda call: ask("private words"))
    park(lab, "1")
    assert run_once(lab, {"team": Webhook(chat.url)}) == {"team": 1}
    assert "private" not in chat.texts()[0]


# --- targets ----------------------------------------------------------------------------------------------------------


def test_mail_is_sent_to_every_receiver(asking):
    (request,) = park(asking, "1")
    with serve(Post()) as post:
        said = {"server": "127.0.0.1", "port": post.server_address[1], "tls": "none", "from": "d@x.org"}
        assert run_once(asking, {"duty": Email({**said, "to": ["a@x.org", "b@x.org"]})}) == {"duty": 1}
        receivers, raw = post.mails.get_nowait()
    mail = message_from_bytes(raw)
    assert len(receivers) == 2
    assert (mail["Subject"], mail["To"]) == ("Deedbook shop: 1 request waits for a person", "a@x.org, b@x.org")
    assert f"deedbook approvals show {request}" in mail.get_payload(decode=True).decode()
    assert mail["Message-ID"].endswith("@deedbook.invalid>")


def test_refused_receiver_is_a_failure(asking):
    park(asking, "1")
    failures = []
    with serve(Post()) as post:
        said = {"server": "127.0.0.1", "port": post.server_address[1], "tls": "none", "from": "d@x.org"}
        assert run_once(asking, {"duty": Email({**said, "to": ["no@x.org"]})}, failures) == {"duty": -1}
    assert "the mail server" in failures[0][1]


def test_mail_server_without_tls_is_not_sent_a_password():
    with serve(Post()) as post:
        said = {
            "server": "127.0.0.1",
            "port": post.server_address[1],
            "from": "d@x.org",
            "to": ["a@x.org"],
            "user": "u",
        }
        with pytest.raises(DeliveryError, match="the mail server cannot be used: SMTPNotSupportedError"):
            Email(said, "very-secret").deliver(None)


def test_command_gets_the_message_as_json_and_only_its_variables(asking, tmp_path, monkeypatch):
    (request,) = park(asking, "private words")
    monkeypatch.setenv("UNRELATED", "1")
    program = "import json, os, sys; json.dump([json.load(sys.stdin), dict(os.environ)], open(sys.argv[1], 'w'))"
    place = tmp_path / "got"
    target = Command((sys.executable, "-c", program, str(place)), {"TOKEN": "very-secret"})
    assert run_once(asking, {"pager": target}) == {"pager": 1}
    message, env = json.loads(place.read_text())
    assert message["requests"][0]["approval"] == request
    assert "args" not in message["requests"][0]
    assert "private words" not in place.read_text()
    assert (env["TOKEN"], "UNRELATED" in env) == ("very-secret", False)


@pytest.mark.parametrize(
    ("run", "why"),
    [([sys.executable, "-c", "raise SystemExit(7)"], "ended with the status 7"), (["/nothing/here"], "NOT_STARTED")],
)
def test_failing_command_is_reported(asking, run, why):
    park(asking, "1")
    failures = []
    assert run_once(asking, {"pager": Command(tuple(run))}, failures) == {"pager": -1}
    assert why in failures[-1][1]


# --- failures ---------------------------------------------------------------------------------------------------------


def test_message_is_tried_again_and_no_report_has_the_address(asking):
    park(asking, "1")
    failures = []
    with serve(Chat(500, 302)) as chat:
        assert run_once(asking, {"team": Webhook(chat.url)}, failures) == {"team": 1}
        first, second, third = chat.texts()
    assert first == second == third
    assert [why.partition(";")[0] for _, why in failures] == [
        "the webhook answered with the status 500", "the webhook answered with the status 302",
    ]  # fmt: skip
    assert "very-secret" not in str(failures)


def test_target_that_fails_keeps_its_message_and_the_others_get_theirs(asking, chat):
    park(asking, "1")
    failures = []
    with serve(Chat()) as gone:
        dead = Webhook(gone.url)
    targets = {"team": Webhook(chat.url), "dead": dead}
    assert run_once(asking, targets, failures) == {"team": 1, "dead": -1}
    assert len(chat.texts()) == 1
    assert {name for name, _ in failures} == {"dead"}
    assert "very-secret" not in f"{failures}{dead!r}"
    assert "ConnectError" in failures[0][1]
    assert run_once(asking, {"dead": Webhook(chat.url)}) == {"dead": 1}


def test_process_that_dies_after_the_delivery_sends_the_same_message_again(asking, chat, monkeypatch):
    park(asking, "1")
    child = os.fork()
    if not child:
        monkeypatch.setattr(Outbox, "move", lambda *_: die())
        run_once(asking, {"team": Webhook(chat.url)})
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert run_once(asking, {"team": Webhook(chat.url)}) == {"team": 1}
    first, second = chat.texts()
    assert first == second


def test_running_process_tells_what_comes_and_ends_when_it_is_stopped(asking, chat, monkeypatch):
    monkeypatch.setattr("deedbook_operate.notifying.runner.POLL_SECONDS", 0.01)
    asking.kernel()
    with runner(asking, {"team": Webhook(chat.url)}) as made:
        serving = threading.Thread(target=made.run, kwargs={"once": False})
        serving.start()
        try:
            for text in "12":
                (request,) = park(asking, text)
                assert request in chat.got.get(timeout=WAIT)
        finally:
            made.stopped.set()
            serving.join(WAIT)
    assert not serving.is_alive()
    with pytest.raises(Empty):
        chat.got.get_nowait()


def test_two_processes_do_not_tell_the_same_target(asking):
    other = pytest.raises(BindingError, match="another process tells the target team")
    with Folder.at(asking.state, create=True) as state, Outbox.open(state, "team", "shop"), other:
        run_once(asking, {"team": Webhook("http://127.0.0.1:9")})


@pytest.mark.parametrize("cursor", ["", "{}", '{"seq": "x", "hash": 1}', '{"schema_version":"v1","seq":1,"hash":"0"}'])
def test_cursor_that_does_not_fit_the_ledger_is_an_error_and_nothing_is_sent(asking, chat, cursor):
    park(asking, "1")
    run_once(asking, {"team": Webhook(chat.url)})
    chat.texts()
    park(asking, "2")
    (asking.state / "notify" / "team.json").write_text(cursor)
    with Folder.at(asking.state) as state, Outbox.open(state, "team", "shop") as box, pytest.raises(LedgerError):
        box.collect()
    assert chat.texts() == []


def test_secret_without_a_value_is_refused():
    said = {"targets": {"team": {"webhook": {"secret": "hook"}}}}
    with pytest.raises(BindingError, match="is not declared; declare it"):
        build_targets(said, {})
    with pytest.raises(BindingError, match="has no value"):
        build_targets(said, {"hook": None})
    assert build_targets(said, {"hook": "u"}) == {"team": Webhook("u")}


# --- the command ------------------------------------------------------------------------------------------------------


def test_command_tells_the_declared_targets_and_prints_no_secret(tmp_path, chat, monkeypatch):
    monkeypatch.setattr("deedbook_operate.notifying.runner.ATTEMPTS", 1)
    monkeypatch.setenv("HOOK", chat.url)
    place = Place(tmp_path / "workspace")
    settings = {
        "schema_version": "v1",
        "secrets": {"hook": {"env": "HOOK"}},
        "features": {"notify": {"targets": {"team": {"webhook": {"secret": "hook"}}}}},
        "abilities": {"say": {"summary": "Echo.", "handler": {"tool": "echo"}, "tags": ["approval-gate"]}},
    }
    place.system("deedbook.yaml", json.dumps(settings))
    place.here("call", "say", "text=hi", status=3)
    sent = place.here("notify", "run", "--once", status=0)
    assert "target team: 1 message sent" in sent.err
    assert "1 request waits" in chat.texts()[0]
    place.here("call", "say", "text=ho", status=3)
    chat.statuses = [500]
    failed = place.here("notify", "run", "--once", status=1)
    assert "the webhook answered with the status 500; it is sent by the next run" in failed.err
    assert "very-secret" not in failed.err + failed.out
    monkeypatch.delenv("HOOK")
    missing = place.here("notify", "run", "--once", status=1)
    assert "SECRET_MISSING" in missing.err


def test_command_without_targets_says_what_to_add(tmp_path):
    place = Place(tmp_path / "workspace")
    place.system("deedbook.yaml", "schema_version: v1\n")
    refused = place.here("notify", "run", "--once", status=1)
    assert "add features: {notify: {targets: " in refused.err
