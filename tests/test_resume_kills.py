"""A run that is killed at any line of its ledger, resumed, and killed again, ends as if nothing had happened.

Every process dies by a real SIGKILL while it appends a line: after the whole line, or after half of it. Effects are
lines of files. ``pytest --campaign tests/test_resume_kills.py`` kills more than 300 processes.
"""

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from persons import approving
from test_resume import REPORT, resume, sessions
from test_resume_results import take_over

from deedbook import HandlerSpec, Ok
from deedbook.contract import Branch

KILLS = 3
"""The most kills of one run."""


class Book:
    """A booking at a service that knows idempotency keys: to ask it again about a key does nothing twice."""

    spec = HandlerSpec(effects="write", takes={"type": "object"}, gives={"type": "object"}, reconciles=True)
    place = Path()

    def __init__(self, settings, host):
        pass

    def __call__(self, args, ctx):
        return self.reconcile(args, ctx.idempotency_key)

    def reconcile(self, args, idempotency_key):
        add(self.place, "book", args["item"], idempotency_key, once=True)
        return {"booked": args["item"]}


def add(place, name, item, key, *, once=False):
    """Add a line to the file of effects, in one write; *once*: unless the key has one."""
    if once and place.exists() and f" {key}\n" in place.read_text():
        return
    with place.open("a") as file:
        file.write(f"{name} {item} {key}\n")


def trip(args, run):
    """Book and pay: calls, branches, branches in a branch, and a flow of its own."""
    run.context.clarify({"goal": args["prompt"]})
    run.context.plan({"steps": []})
    run.context.begin_execution()
    run.call("pay", {"item": "deposit", "now": run.now()})
    run.parallel([Branch("hotel", hotel), Branch("train", lambda branch: branch.call("book", {"item": "train"}))])
    run.call("insure", {"item": "luggage", "id": run.new_id()})
    run.call("look", {"item": "weather"})
    run.call("pay", {"item": "rest"})
    run.context.verify(REPORT)
    run.context.complete({"verdict": "pass"})


def hotel(branch):
    branch.call("look", {"item": "stars"})
    branch.parallel(
        [
            Branch("room", lambda inner: inner.call("book", {"item": "room"})),
            Branch("meal", lambda inner: inner.call("pay", {"item": "meal"})),
        ]
    )


def insure(args, run):
    run.context.clarify({"goal": args["item"]})
    run.context.plan({"steps": []})
    run.context.begin_execution()
    run.call("book", {"item": "policy"})
    run.context.verify(REPORT)
    run.context.complete({"verdict": "pass"})


@pytest.fixture
def trips(lab, tmp_path):
    """Give a lab with the flow, and the file of effects."""
    place = Book.place = tmp_path / "effects"

    def act(name):
        def handler(args, ctx):
            add(place, name, args["item"], ctx.idempotency_key)
            return {"did": args["item"]}

        return handler

    lab.tool("pay", act("pay"), effects="write")
    lab.tool("look", act("look"), effects="read")
    lab.offer("tool", "booking", Book)
    lab.settings(abilities={"book": {"summary": "Book.", "handler": {"tool": "booking"}}})
    approving(lab)
    lab.flow("insure", insure)
    lab.flow("work", trip)
    lab.skill("clerk", allows="pay look book insure", triggers="hello")
    return lab, place


def run(lab):
    with lab.session("run") as session:
        session.run("hello")
    return session.id


# --- real kills -------------------------------------------------------------------------------------------------------


def killed(work, line, *, torn, session=""):
    """Do *work* in a process that is killed while it appends the line *line* of the session; return whether it was."""
    child = os.fork()
    if not child:
        try:
            os.write = _killing(os.write, line, torn, session)
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.WIFSIGNALED(status)


def _killing(real, line, torn, session):
    state = {"left": line, "session": session}

    def write(fd, data):
        text = bytes(data)
        if not state["session"] and b'"event_type":"session.start"' in text[:400]:
            state["session"] = json.loads(text.splitlines()[0])["session_id"]
        if not state["session"] or f'"session_id":"{state["session"]}"'.encode() not in text[:200]:
            return real(fd, data)
        lines = text.splitlines(keepends=True)
        if len(lines) < state["left"]:
            state["left"] -= len(lines)
            return real(fd, data)
        last = lines[state["left"] - 1]
        real(fd, b"".join(lines[: state["left"] - 1]) + (last[: len(last) // 2] if torn else last))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    return write


# --- comparing --------------------------------------------------------------------------------------------------------

_SUSPENSION = {
    "ledger.recovered",
    "session.resumed",
    "session.suspended",
    "context.needs_human",
    "context.resumed",
    "call.settled",
}


def story(lab, session):
    """Return what happened, branch by branch, without lost calls that were made again; one line for each event."""
    events = lab.events(session)
    spans = {event.span for event in events}
    below, lost = {}, set()
    for event in events:
        below.setdefault(event.parent, []).append(event)
        if event.type == "tool.error" and event.payload["outcome"] == "unknown":
            lost.add(event.parent)

    def plain(value):
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items() if name not in ("now", "id", "value")}
        if isinstance(value, list):
            return [plain(each) for each in value]
        return "*" if value in spans or value == session else value

    def tree(parent, depth):
        found = [each for each in below.get(parent, []) if each.type not in _SUSPENSION]
        found = [each for each in found if each.span not in lost or each.payload["tool_name"] != "look"]
        for each, after in zip(found, [*found[1:], None], strict=False):
            if each.type == "policy.check" and (after is None or after.type == "policy.check"):
                continue  # of a lost call, or of one whose intent was not written any more
            yield f"{depth} {each.type} {each.actor} {each.principal} {json.dumps(plain(each.payload))}"
            yield from settled(each, depth + 1) if each.span in lost else tree(each.span, depth + 1)

    def settled(call, depth):
        (found,) = (each for each in below[call.span] if each.type == "call.settled")
        payload = {"result": plain(found.payload["result"]), "tool_name": call.payload["tool_name"]}
        yield f"{depth} tool.result tool {call.principal} {json.dumps(payload)}"

    return list(tree(None, 0))


def unsettled(lab, session):
    """Return the spans of lost payments whose result nobody has given."""
    lost = [event.parent for event in lab.all("tool.error", session) if event.payload["outcome"] == "unknown"]
    settled = {event.parent for event in lab.all("call.settled", session)}
    calls = {event.span: event.payload["tool_name"] for event in lab.all("tool.call", session)}
    return [span for span in lost if calls[span] == "pay" and span not in settled]


def finish(lab, session):
    """Resume the run until it ends; a person says of each lost payment that it was made."""
    got = resume(lab, session)
    for _ in range(5):
        if isinstance(got, Ok):
            return got
        assert got.error.code == "NEEDS_HUMAN", got.error
        (event,) = (each for each in lab.all("tool.call", session) if each.span == unsettled(lab, session)[0])
        got = take_over(lab, session, {"did": event.payload["args"]["item"]}, call=event.span)
    raise AssertionError(got)


def effects_of(place):
    """Return how often each effect has happened."""
    return Counter(tuple(line.split(" ")[:2]) for line in place.read_text().splitlines()) if place.exists() else {}


def die(lab, case, lines):
    """Run the flow in a process that dies, and resume it in processes that die; return the session and the kills."""
    dice, known = random.Random(case), set(sessions(lab))
    kills = killed(lambda: run(lab), 1 + case // 2 % lines, torn=case % 2 == 1)
    (session,) = set(sessions(lab)) - known
    while 0 < kills < KILLS and can_go_on(lab, session):
        again = killed(lambda: resume(lab, session), dice.randint(1, 15), torn=dice.random() < 0.5, session=session)
        if not again:
            break
        kills += 1
    return session, kills


def can_go_on(lab, session):
    types = lab.types(session)
    return "user.message" in types and not {"skill.complete", "session.end"} & set(types)


@pytest.mark.campaign(keep=8)
@pytest.mark.parametrize("case", range(160))
def test_run_that_is_killed_at_any_line_ends_as_if_nothing_had_happened(trips, case, record_property):
    lab, place = trips
    whole = run(lab)
    expected, wanted = story(lab, whole), effects_of(place)
    assert len(lab.events(whole)) > 40
    place.unlink()
    session, kills = die(lab, case, len(lab.events(whole)))
    record_property("kills", kills)
    assert kills
    if not can_go_on(lab, session):
        lab.damaged = True  # half a line; nothing closes the session here
        assert not effects_of(place) or effects_of(place) == wanted
        return
    got = finish(lab, session)
    assert (got.value.text, got.value.state) == ("done", "COMPLETED")
    assert story(lab, session) == expected
    report = lab.verify(session)
    assert report.sound, report
    assert report.decisions.calls == report.decisions.same + sum(report.decisions.unknown.values()), report.decisions
    check_effects(lab, session, effects_of(place), wanted)


def check_effects(lab, session, found, wanted):
    """Check that bookings happened once, that payments happened at most once, and that only lost ones may lack."""
    settled = {event.parent for event in lab.all("call.settled", session)}
    lost = {event.payload["args"]["item"] for event in lab.all("tool.call", session) if event.span in settled}
    assert found.keys() <= wanted.keys()
    for name, item in wanted:
        times = found.get((name, item), 0)
        if name == "look":
            assert times >= 1
        elif name == "pay" and item in lost:
            assert times <= 1, (item, found)
        else:
            assert times == 1, (name, item, found)
