"""Runs of prompts over the runtime: what a client gets, and how a run goes on after a person, a stop or a kill."""

import signal
import threading
from pathlib import Path

import pytest
import serving
from commandline import Place, starter, until
from payments import SKILL, SLOW
from serving import runtime

from deedbook_serve.client import Runtime

DECIDE = """
    from functools import partial

    from deedbook import Branch, HandlerSpec


    class Plugin:
        spec = HandlerSpec(takes={"type": "object", "required": ["prompt"]}, effects="none")

        def __init__(self, settings, host):
            pass

        def __call__(self, args, run):
            def ask(word, own):
                own.call("approve", {"step": word, "description": "Decide.", "tags": ["approval-gate"]})

            words = args["prompt"].split()
            run.parallel([Branch(word, partial(ask, word)) for word in words])
            run.answer("decided " + ", ".join(words))
"""
SETTINGS = """
principals:
  ada: {key: ada.pub, roles: [approver]}
agents:
  desk: {expose: {abilities: [decide]}}
features: {prompts: {}}
abilities:
  decide: {summary: Decide., handler: {flow: decide}, uses: [approve]}
  approve: {summary: Ask a person., handler: {flow: plan-approval}, tags: [approval-gate]}
  slow: {summary: Wait., handler: {tool: slow}}
"""
POLICY = """\
    schema_version: v1
    id: people
    kind: rules
    match: {abilities: [echo]}
    rules: [{match: {args: {/text: hi}}, then: ask, reason: a person decides}]
    default: allow
    """


def workspace(path: Path, config: Path) -> Place:
    """Make a workspace with runs that need a person, and with ada, who has a key."""
    place = starter(path)
    place.env["XDG_CONFIG_HOME"] = str(config)
    settings = (place.path / ".system/deedbook.yaml").read_text()
    place.write(".system/deedbook.yaml", f"{settings}{SETTINGS}")
    place.system("policies/people.yaml", POLICY)
    place.system("skills/pay/SKILL.md", SKILL)
    place.offer("tools", "slow", SLOW, distribution="slowly")
    place.offer("flows", "decide", DECIDE, distribution="decides")
    place.run("keys", "new", "ada", "--out", ".system/ada.pub", status=0)
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Give a served workspace; in the end its server ends well, and every ledger is sound."""
    folder = tmp_path_factory.mktemp("runs")
    made = workspace(folder / "workspace", folder / "config")
    with serving.served(made):
        yield made


@pytest.fixture
def own(tmp_path):
    """Give a workspace that no process serves yet."""
    return workspace(tmp_path / "workspace", tmp_path / "config")


@pytest.fixture
def peer(place):
    with runtime(place) as connection:
        yield connection


def answer(place, approval, word="approve"):
    place.run("approvals", word, approval, "--as", "ada", status=0)


def ending(place, session):
    return place.payloads("session.end", session)[-1]


# --- a reply ----------------------------------------------------------------------------------------------------------


def test_run_gives_state_and_reply_and_has_the_record_of_a_run_on_the_command_line(place, peer):
    session = peer.open()
    ran = peer.run(session, "Say hello to Ada")
    assert (ran["status"], ran["result"]["state"], ran["result"]["reply"]) == ("ok", "COMPLETED", "Hello, Ada!")
    alike = place.run("run", "Say hello to Ada", status=0).session
    assert place.types(ran["run"]) == place.types(alike)
    (started,) = place.payloads("action.started", session)
    assert started == {"id": "run", "session": ran["run"]}
    assert ending(place, ran["run"]) == {"ok": True, "reason": "COMPLETED"}
    assert peer.resume_run(session, ran["run"])["result"] == ran["result"]


def test_run_without_a_reply_says_why(place, peer):
    session = peer.open()
    ran = peer.run(session, "Xyzzy")
    assert (ran["status"], ran["error"]["code"]) == ("failed", "NO_RULE")
    assert peer.resume_run(session, ran["run"])["error"]["code"] == "RUN_ENDED"
    assert ending(place, ran["run"]) == {"ok": False, "reason": "NO_RULE"}


def test_flow_mode_and_context_of_a_run_are_recorded(place, peer):
    ran = peer.run(peer.open(), "tea", flow="decide", mode="headless", context={"file": "a.txt"})
    assert ran["status"] == "needs_human"
    events = {event.type: event.payload for event in place.events(ran["run"])}
    assert events["session.start"]["mode"] == "headless"
    assert events["x.prompts.context"] == {"context": {"file": "a.txt"}}
    assert (events["user.message"]["text"], events["user.message"]["flow"]) == ("tea", "decide")


@pytest.mark.parametrize("wrong", [{}, {"prompt": ""}, {"prompt": "a", "model": "b"}, {"prompt": "a", "mode": "fast"}])
def test_run_of_another_form_is_refused_and_begins_nothing(place, peer, wrong):
    session, before = peer.open(), len(place.sessions())
    with pytest.raises(Exception, match=r"\$\.params\.actions\[0\]"):
        peer.actions(session, [{"id": "a", "action": "RUN", **wrong}])
    assert len(place.sessions()) == before


# --- a person ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "status", "code", "reply"), [("approve", "ok", None, "paid"), ("deny", "denied", "APPROVAL_REFUSED", None)]
)
def test_run_that_needs_a_person_is_suspended_and_goes_on_after_the_answer(place, peer, word, status, code, reply):
    session = peer.open()
    waits = peer.run(session, "pay")
    assert (waits["status"], waits["error"]["code"]) == ("needs_human", "NEEDS_HUMAN")
    again = peer.resume_run(session, waits["run"])
    assert (again["status"], again["approval"], again["run"]) == ("needs_human", waits["approval"], waits["run"])
    assert place.types(waits["run"])[-1] == "session.suspended"
    answer(place, waits["approval"], word)
    ran = peer.resume_run(session, waits["run"])
    assert (ran["status"], ran.get("error", {}).get("code")) == (status, code)
    assert ran.get("result", {}).get("reply") == reply
    assert peer.resume_run(session, waits["run"])["status"] in (status, "failed")
    assert place.types(waits["run"]).count("session.end") == 1


def test_run_that_waits_for_several_people_names_every_request(place, peer):
    session = peer.open()
    waits = peer.run(session, "one two", flow="decide")
    asked = {each["approval"] for each in place.payloads("approval.requested", waits["run"])}
    assert (set(waits["approvals"]), waits["approval"]) == (asked, waits["approvals"][-1])
    for approval in waits["approvals"]:
        answer(place, approval)
    assert peer.resume_run(session, waits["run"])["result"]["reply"] == "decided one, two"


def test_run_can_go_on_at_the_command_line_and_in_another_session(place, peer):
    waits = peer.run(peer.open(), "six", flow="decide")
    answer(place, waits["approval"])
    assert place.run("resume", waits["run"], status=0).out == "decided six\n"
    assert peer.resume_run(peer.open(), waits["run"])["result"]["reply"] == "decided six"


def test_request_that_is_repeated_gives_the_present_state_of_its_run(place, peer):
    session = peer.open()
    asked = [{"id": "a", "action": "RUN", "prompt": "seven", "flow": "decide"}]
    first = peer.actions(session, asked, idempotency_key="k")
    assert peer.actions(session, asked, idempotency_key="k") == first
    answer(place, first[0]["approval"])
    ran = peer.resume_run(session, first[0]["run"])
    peer.end(session)
    (later,) = peer.actions(session, asked, idempotency_key="k")
    assert (later["status"], later["result"], later["run"]) == ("ok", ran["result"], first[0]["run"])
    assert len(place.payloads("action.started", session)) == 1


# --- who may ----------------------------------------------------------------------------------------------------------


def test_client_names_a_flow_that_is_exposed_to_it(place, peer):
    session = peer.open(client="desk")
    before = len(place.sessions())
    refused = peer.run(session, "pay")
    assert (refused["status"], refused["error"]["code"]) == ("denied", "TOOL_NOT_ALLOWED")
    assert len(place.sessions()) == before
    waits = peer.run(session, "eight", flow="decide")
    answer(place, waits["approval"])
    assert peer.resume_run(session, waits["run"])["result"]["reply"] == "decided eight"
    who = place.events(waits["run"])[0].payload["principal"]
    assert (who["id"], who["on_behalf_of"]) == ("agent:desk", "local")
    refused = peer.run(session, "eight", flow="review")
    assert (refused["status"], refused["error"]["code"]) == ("denied", "TOOL_NOT_ALLOWED")
    assert "flow.call" not in place.types(refused["run"])


def test_run_of_another_principal_is_not_resumed(place, peer):
    waits = peer.run(peer.open(client="desk"), "nine", flow="decide")
    other = peer.open()
    refused = peer.resume_run(other, waits["run"])
    assert refused["error"]["code"] == "SESSION_NOT_YOURS"
    assert peer.resume_run(other, "f" * 32)["error"]["code"] == "SESSION_NOT_FOUND"
    assert peer.resume_run(other, other)["error"]["code"] == "RESUME_REFUSED"


def test_run_whose_charter_has_changed_is_left_to_a_person(own):
    with serving.served(own), runtime(own) as peer:
        waits = peer.run(peer.open(), "pay")
    own.system("policies/more.yaml", POLICY.replace("id: people", "id: more"))
    with serving.served(own), runtime(own) as peer:
        refused = peer.resume_run(peer.open(), waits["run"])
    assert (refused["status"], refused["error"]["code"]) == ("failed", "RESUME_CHARTER_CHANGED")


# --- stops and kills --------------------------------------------------------------------------------------------------


def begin_slowly(place, session, done):
    """Begin a run that waits for a file, on a thread; return when it waits."""

    def work():
        with runtime(place) as other:
            try:
                done.append(other.actions(session, [SLOWLY], idempotency_key="slow"))
            except Exception as problem:  # the server ends meanwhile
                done.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    until((place.path / "begun").exists)
    return thread


SLOWLY = {"id": "a", "action": "RUN", "prompt": "pay slowly"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_run_of_a_server_that_ends_goes_on_with_the_next_one(own, number):
    done = []
    server = serving.start(own, "--drain", "0.1")
    with serving.ending(server):
        with runtime(own) as peer:
            session = peer.open()
        thread = begin_slowly(own, session, done)
        server.send_signal(number)
        server.communicate(timeout=60)
        thread.join()
    (own.path / "go").touch()
    with serving.served(own), Runtime(own.path, seconds=60) as peer:
        (told,) = peer.actions(session, [SLOWLY], idempotency_key="slow")
        assert told["status"] == "failed"
        ran = peer.resume_run(peer.open(), told["run"])
        (later,) = peer.actions(session, [SLOWLY], idempotency_key="slow")
    assert (ran["status"], ran["result"]["reply"]) == ("ok", "paid slowly")
    assert later["result"] == ran["result"]


def test_session_that_is_ended_at_once_suspends_its_run(own):
    done = []
    with serving.served(own), runtime(own) as peer:
        session = peer.open()
        thread = begin_slowly(own, session, done)
        (own.path / "begun").unlink()
        peer.end(session, now=True)
        (own.path / "go").touch()
        thread.join()
        (started,) = own.payloads("action.started", session)
        assert own.types(started["session"])[-1] == "session.suspended"
        ran = peer.resume_run(peer.open(), started["session"])
    assert ran["result"]["reply"] == "paid slowly"
