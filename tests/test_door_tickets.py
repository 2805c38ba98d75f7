"""The two halves of the door: a ticket is opened, the effect may be somebody else's, and it is closed once."""

import asyncio
import threading

import pytest
from commandline import SECONDS, until

from deedbook import Err, Ok, deny
from deedbook.call import open_calls
from deedbook.call.handlers import Outcome
from deedbook.format.errors import LedgerError
from deedbook.format.files import Folder
from deedbook.ledger import journal
from deedbook.ledger.ledger import Ledger


@pytest.fixture
def session(lab):
    """Begin a session with a tool that nobody may invoke, since its effect is made elsewhere."""

    def never(args, ctx):
        raise AssertionError("the effect is somebody else's")

    lab.tool("edit", never, gives={"type": "object", "required": ["lines"]}, effects="write")
    return lab.session()


def begin(session, **args):
    return session.door.before(session.caller, "edit", args, session.ledger.root)


def test_before_records_the_intent_and_after_the_outcome_of_an_effect_made_elsewhere(lab, session):
    ticket = begin(session, path="a.txt").value
    assert lab.one("tool.call").span == ticket.span
    assert ticket.args == {"path": "a.txt"}
    assert session.door.after(ticket, Outcome("result", {"lines": 3})) == Ok({"lines": 3})
    result = lab.one("tool.result")
    assert (result.parent, result.payload["result"]) == (ticket.span, {"lines": 3})
    assert ticket.outcome == result.span


def test_ticket_knows_a_key_that_no_other_call_has(session):
    keys = {begin(session).value.idempotency_key for _ in range(20)}
    assert len(keys) == 20
    assert all(key.startswith(f"{session.id}:") for key in keys)


def test_before_refuses_as_a_call_does_and_gives_no_ticket(lab, session):
    opened = session.door.before(session.caller, "unknown", {}, session.ledger.root)
    assert isinstance(opened, Err)
    assert session.door.open == {}
    assert lab.payload("tool.denied")["code"] == "TOOL_NOT_FOUND"


def test_after_of_an_effect_made_elsewhere_checks_the_result(lab, session):
    ended = session.door.after(begin(session).value, Outcome("result", {}))
    assert ended.error.code == "SCHEMA_VIOLATION"
    assert lab.payload("tool.result")["result"] == {}


def test_ticket_is_closed_once(lab, session):
    ticket = begin(session).value
    session.door.after(ticket, Outcome("result", {"lines": 1}))
    assert isinstance(session.door.after(ticket, Outcome("result", {"lines": 2})), Err)
    assert isinstance(session.door.perform(ticket), Err)
    assert lab.payload("tool.result")["result"] == {"lines": 1}


def test_ticket_that_is_never_closed_becomes_unknown_at_the_end(lab, session):
    ticket = begin(session).value
    session.end(ok=True, reason="done")
    lost = lab.one("tool.error")
    assert lost.parent == ticket.span
    assert (lost.payload["outcome"], lost.payload["code"], lost.payload["retryable"]) == (
        "unknown",
        "OUTCOME_UNKNOWN",
        False,
    )
    assert lab.types()[-2:] == ["tool.error", "session.end"]


def test_ticket_cannot_be_closed_after_the_end(lab, session):
    ticket = begin(session).value
    session.end(ok=True, reason="done")
    assert isinstance(session.door.after(ticket, Outcome("result", {"lines": 1})), Err)
    assert "tool.result" not in lab.types()


def test_no_ticket_is_opened_after_the_end(lab, session):
    session.end(ok=True, reason="done")
    assert isinstance(begin(session), Err)
    assert lab.types()[-1] == "session.end"


def test_outcome_failed_elsewhere_is_recorded_even_without_a_reason(lab, session):
    ended = session.door.after(begin(session).value, Outcome("failed"))
    assert ended.error.code == lab.payload("tool.error")["code"] == "TOOL_ERROR"


def test_observers_can_withhold_the_result_of_an_effect_made_elsewhere(lab):
    lab.tool("edit", lambda args, ctx: None)
    lab.hook("broken", "PostToolUse", lambda call, result: 1 / 0)
    session = lab.session()
    ended = session.door.after(begin(session).value, Outcome("result", {"secret": 1}))
    assert ended.error.code == "GATE_DENIED"


def test_no_effect_begins_with_a_ticket_that_was_closed_meanwhile(lab):
    ran = []
    lab.tool("edit", lambda args, ctx: ran.append(1))
    session = lab.session()
    ticket = begin(session).value
    session.end(ok=True, reason="done")
    assert isinstance(session.door.perform(ticket), Err)
    assert isinstance(asyncio.run(session.door.aperform(ticket)), Err)
    assert ran == []


def test_end_waits_for_an_intent_that_is_being_made_durable_and_closes_it(lab):
    reached, go_on = threading.Event(), threading.Event()

    def slow_disk(fd):
        if threading.current_thread().name == "caller":
            reached.set()
            go_on.wait(SECONDS)

    lab.tool("edit", lambda args, ctx: None, effects="write")
    session = lab.session(fdatasync=slow_disk)
    caller = threading.Thread(target=lambda: session.call("edit", {}), name="caller")
    caller.start()
    assert reached.wait(SECONDS)
    ending = threading.Thread(target=lambda: session.end(ok=True, reason="done"))
    ending.start()
    until(lambda: session.door.calls.closed)
    assert "session.end" not in lab.types()
    go_on.set()
    caller.join(SECONDS)
    ending.join(SECONDS)
    assert lab.types() in (
        ["session.start", "tool.call", "tool.error", "session.end"],
        ["session.start", "tool.call", "tool.result", "session.end"],
    )


@pytest.fixture
def stuck(lab):
    """Begin a session and a call on a thread named ``caller`` whose outcome the disk does not take; see `Stuck`."""
    made = Stuck(lab)
    yield made
    made.go_on.set()
    made.caller.join(SECONDS)


class Stuck:
    """A call whose outcome is being written until *go_on* is set."""

    def __init__(self, lab):
        self.reached, self.go_on = threading.Event(), threading.Event()
        lab.settings(profile="p", profiles={"p": {"durability": "always"}})
        lab.tool("edit", lambda args, ctx: self.armed.set())
        self.armed = threading.Event()
        self.session = lab.session(fdatasync=self.disk)
        self.caller = threading.Thread(target=lambda: self.session.call("edit", {}), name="caller")
        self.caller.start()
        assert self.reached.wait(SECONDS)

    def disk(self, fd):
        if self.armed.is_set() and threading.current_thread().name == "caller":
            self.reached.set()
            self.go_on.wait(SECONDS)


def test_end_waits_for_an_outcome_that_is_being_made_durable(lab, stuck):
    ending = threading.Thread(target=lambda: stuck.session.end(ok=True, reason="done"))
    ending.start()
    until(lambda: stuck.session.door.calls.closed)
    assert lab.types()[-1] == "tool.result"
    stuck.go_on.set()
    ending.join(SECONDS)
    assert lab.types() == ["session.start", "tool.call", "tool.result", "session.end"]


def test_end_gives_up_after_a_limit_and_leaves_the_session_without_its_end(lab, stuck, monkeypatch):
    monkeypatch.setattr(open_calls, "RECORD_SECONDS", 0.05)
    monkeypatch.setattr(journal, "SYNC_SECONDS", 0.05)
    with pytest.raises(LedgerError, match="still being") as caught:
        stuck.session.end(ok=True, reason="done")
    assert caught.value.error.code == "LEDGER_BROKEN"
    with pytest.raises(LedgerError) as locked:
        Ledger.reopen(Folder.at(lab.ledger().parent))
    assert locked.value.error.code == "LEDGER_LOCKED"
    stuck.go_on.set()
    stuck.caller.join(SECONDS)
    assert lab.types() == ["session.start", "tool.call", "tool.result"]


def test_interrupt_while_an_intent_is_made_durable_cancels_the_call_which_never_began(lab):
    """The intent may be in the file although nobody got a ticket; so the door looks there."""
    ran = []

    def disk(fd):
        if armed.pop("now", False):
            raise KeyboardInterrupt

    armed = {}
    lab.tool("edit", lambda args, ctx: ran.append(1), effects="write")
    session = lab.session(fdatasync=disk)
    armed["now"] = True
    with pytest.raises(KeyboardInterrupt), session:
        session.call("edit", {})
    assert ran == []
    assert lab.types()[1:] == ["tool.call", "tool.error", "session.end"]
    assert lab.payload("tool.error")["outcome"] == "cancelled"
    assert lab.payload("session.end") == {"ok": False, "reason": "interrupted"}


def test_interrupt_of_a_nested_intent_closes_the_inner_call_before_the_outer(lab):
    def disk(fd):
        if armed.pop("now", False):
            raise KeyboardInterrupt

    def outer(args, ctx):
        armed["now"] = True
        ctx.call("inner", {})

    armed = {}
    lab.tool("inner", lambda args, ctx: None, effects="write")
    lab.tool("outer", outer, uses=["inner"])
    session = lab.session(fdatasync=disk)
    with pytest.raises(KeyboardInterrupt), session:
        session.call("outer", {})
    assert [event.payload["tool_name"] for event in lab.all("tool.error")] == ["inner", "outer"]


def test_second_interrupt_while_the_first_is_being_recorded_leaves_no_call_open(lab):
    """Then nobody knows any more whether the call began: the end of the session finds it in the ledger."""

    def disk(fd):
        if armed and armed.pop():
            raise KeyboardInterrupt

    armed = []
    lab.settings(profile="p", profiles={"p": {"durability": "always"}})
    lab.tool("edit", lambda args, ctx: None)
    session = lab.session(fdatasync=disk)
    armed += [True, True]
    with pytest.raises(KeyboardInterrupt), session:
        session.call("edit", {})
    assert lab.types()[1:] == ["tool.call", "tool.error", "session.end"]


def test_interrupt_while_an_outcome_is_made_durable_leaves_exactly_that_outcome(lab):
    def disk(fd):
        if armed.pop("now", False):
            raise KeyboardInterrupt

    armed = {}
    lab.settings(profile="p", profiles={"p": {"durability": "always"}})
    lab.tool("edit", lambda args, ctx: armed.update(now=True))
    session = lab.session(fdatasync=disk)
    with pytest.raises(KeyboardInterrupt), session:
        session.call("edit", {})
    assert lab.types()[1:] == ["tool.call", "tool.result", "session.end"]


def test_denied_and_broken_calls_leave_no_ticket_open(lab):
    lab.tool("broken", lambda args, ctx: 1 / 0)
    lab.tool("denied", lambda args, ctx: 1)
    lab.hook("no", "PreToolUse", lambda call: deny("no"), match={"abilities": ["denied"]})
    with lab.session() as session:
        for name in ("broken", "denied", "unknown"):
            assert isinstance(session.call(name, {}), Err)
        assert session.door.open == {}
