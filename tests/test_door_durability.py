"""No record, no effect: what is durable before a handler runs, and what happens where the ledger cannot be written."""

import errno
import os
import resource
import signal
import threading
from contextlib import ExitStack, contextmanager, suppress

import pytest
from failing import BROKEN_DISK, failing, only

from deedbook import Err, Failed, Ok, deny
from deedbook.call.handlers import Outcome
from deedbook.format.errors import LedgerError
from deedbook.format.events import split_label
from deedbook.ledger.ledger import WorkspaceLedger


class Disk:
    """Counts what is synced, by this thread and by others; a *fault* makes it fail."""

    def __init__(self):
        self.me, self.mine, self.fault = threading.get_ident(), 0, None

    def __call__(self, fd):
        if threading.get_ident() == self.me:
            self.mine += 1
        if self.fault:
            raise self.fault
        os.fdatasync(fd)


@pytest.fixture
def disk():
    return Disk()


@contextmanager
def full(session):
    """Put the kernel's own full device in the place of the ledger's file, for a while."""
    journal = session.ledger._journal
    kept, device = os.dup(journal.fd), os.open("/dev/full", os.O_WRONLY)
    os.dup2(device, journal.fd)
    try:
        yield
    finally:
        os.dup2(kept, journal.fd)
        os.close(kept)
        os.close(device)


# --- what is synced ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("durability", "effects", "syncs"),
    [
        ("boundary", "none", 0),
        ("boundary", "read", 0),
        ("boundary", "write", 1),
        ("boundary", "irreversible", 1),
        ("os", "write", 0),
        ("always", "none", 2),
        ("always", "write", 2),
    ],
)
def test_call_syncs_as_often_as_the_mode_says(lab, disk, durability, effects, syncs):
    lab.settings(profile="p", profiles={"p": {"durability": durability}})
    lab.allow_irreversible()
    lab.tool("act", lambda args, ctx: None, effects=effects)
    session = lab.session(fdatasync=disk)
    disk.mine = 0
    session.call("act", {})
    assert disk.mine == syncs


@pytest.mark.parametrize("effects", ["write", "irreversible"])
def test_intent_of_a_call_with_effects_is_durable_before_the_handler_runs(lab, disk, effects):
    synced = []
    lab.allow_irreversible()
    lab.tool("act", lambda args, ctx: synced.append((disk.mine, lab.types()[-1])), effects=effects)
    session = lab.session(fdatasync=disk)
    disk.mine = 0
    session.call("act", {})
    assert synced == [(1, "tool.call")]


def test_denied_call_with_effects_syncs_nothing(lab, disk):
    lab.tool("act", lambda args, ctx: None, effects="write")
    lab.hook("no", "PreToolUse", lambda call: deny("no"))
    session = lab.session(fdatasync=disk)
    disk.mine = 0
    session.call("act", {})
    assert disk.mine == 0


def test_call_that_a_person_has_to_decide_is_durable_before_it_is_denied(lab, disk):
    lab.tool("act", lambda args, ctx: None, tags=["approval-gate"])
    session = lab.session(fdatasync=disk)
    disk.mine = 0
    session.call("act", {})
    assert disk.mine == 1


def test_effects_raised_in_yaml_make_the_intent_durable(lab, disk):
    lab.tool("act", lambda args, ctx: None)
    lab.settings(abilities={"act": {"effects": "write"}})
    session = lab.session(fdatasync=disk)
    disk.mine = 0
    session.call("act", {})
    assert disk.mine == 1


@pytest.mark.parametrize("durability", ["boundary", "always"])
def test_beginning_of_a_session_is_durable_before_its_head_is_recorded(lab, disk, durability):
    """Power that fails in between must not leave a head of lines that are gone: that would be a cut."""
    lab.settings(profile="p", profiles={"p": {"durability": durability}})
    synced = []
    append = WorkspaceLedger.append

    def noting(self, entries, **how):
        synced.append((disk.mine > 0, [split_label(entry.label)[0] for entry in entries]))
        return append(self, entries, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkspaceLedger, "append", noting)
        lab.session(fdatasync=disk)
    assert synced[-1] == (True, ["system.boot", "system.run", "ledger.session"])


def test_end_of_a_session_is_durable(lab, disk):
    session = lab.session(fdatasync=disk)
    disk.mine = 0
    session.end(ok=True, reason="done")
    assert disk.mine >= 1


# --- where the record fails -------------------------------------------------------------------------------------------


def test_call_whose_intent_cannot_be_written_runs_nothing_and_later_ones_do_not_either(lab):
    ran = []
    lab.tool("act", lambda args, ctx: ran.append(1))
    session = lab.session()
    with full(session):
        got = session.call("act", {})
    assert got.error.code == "LEDGER_BROKEN"
    assert session.call("act", {}).error.code == "LEDGER_BROKEN"
    assert ran == []
    assert "tool.call" not in lab.types()


def test_call_is_possible_again_when_a_full_disk_has_room(lab):
    """The limit on a file's size is the full disk that a test can have: the write fails, the file is as it was."""
    ran = []
    lab.tool("act", lambda args, ctx: ran.append(1))
    session = lab.session()
    size = lab.ledger().stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))
    try:
        got = session.call("act", {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (got.error.code, got.error.retryable, ran) == ("LEDGER_BROKEN", True, [])
    assert lab.ledger().stat().st_size == size
    assert isinstance(session.call("act", {}), Ok)
    assert ran == [1]


def test_call_whose_intent_cannot_be_made_durable_runs_nothing(lab, disk):
    ran = []
    lab.tool("act", lambda args, ctx: ran.append(1), effects="write")
    session = lab.session(fdatasync=disk)
    disk.fault = OSError(errno.EIO, "input/output error")
    assert session.call("act", {}).error.code == "LEDGER_BROKEN"
    disk.fault = None
    assert session.call("act", {}).error.code == "LEDGER_BROKEN"
    assert ran == []


def test_outcome_that_cannot_be_written_is_unknown_to_the_caller(lab):
    undo = []

    def act(args, ctx):
        context = full(session)
        context.__enter__()
        undo.append(context)
        return {"done": True}

    lab.tool("act", act)
    session = lab.session()
    got = session.call("act", {})
    undo[0].__exit__(None, None, None)
    assert got.error.code == "OUTCOME_UNKNOWN"
    assert got.error.retryable is False
    assert lab.types()[-1] == "tool.call"


def ends(lab):
    """Return what became of each call, in the order in which that was recorded."""
    return [(event.payload["tool_name"], event.payload.get("outcome")) for event in lab.events()
            if event.type in ("tool.result", "tool.error")]  # fmt: skip


@pytest.fixture
def disk_fails(monkeypatch):
    """Give what lets every write of a ledger fail until its ``undo`` is called; nothing is written meanwhile."""

    @contextmanager
    def begin():
        with monkeypatch.context() as patch:
            failing(patch, only("write", BROKEN_DISK))
            yield patch

    with ExitStack() as held:
        yield lambda: held.enter_context(begin())


def test_lost_outcome_is_recorded_as_unknown_at_the_end(lab, disk_fails):
    broken = []
    lab.tool("act", lambda args, ctx: broken.append(disk_fails()))
    session = lab.session()
    assert session.call("act", {}).error.code == "OUTCOME_UNKNOWN"
    assert lab.types()[-1] == "tool.call"
    broken[0].undo()
    session.end(ok=True, reason="done")
    assert lab.types()[-2:] == ["tool.error", "session.end"]
    assert ends(lab) == [("act", "unknown")]
    assert lab.verify().sound


def test_lost_outcome_is_recorded_before_that_of_the_call_it_serves(lab, disk_fails):
    broken = []
    lab.tool("inner", lambda args, ctx: broken.append(disk_fails()))

    def outer(args, ctx):
        with suppress(Failed):
            ctx.call("inner", {})
        broken[0].undo()
        return "done"

    lab.tool("outer", outer, uses=["inner"])
    session = lab.session()
    assert session.call("outer", {}) == Ok("done")
    assert ends(lab) == [("inner", "unknown"), ("outer", None)]


def test_session_whose_outcomes_cannot_be_written_gets_no_end_until_recovery(lab, disk_fails):
    broken = []
    lab.tool("act", lambda args, ctx: broken.append(disk_fails()))
    session = lab.session()
    session.call("act", {})
    with pytest.raises(LedgerError, match="so the session is left without its end"):
        session.door.close()
    broken[0].undo()
    session.ledger.close()
    assert lab.types()[-1] == "tool.call"
    assert list(lab.kernel().recover().closed.values()) == [1]
    assert lab.types()[-2:] == ["tool.error", "session.end"]


def test_call_whose_outcome_is_lost_is_closed(lab, disk_fails):
    broken = []
    lab.tool("act", lambda args, ctx: broken.append(disk_fails()))
    session = lab.session()
    ticket = session.before("act", {}).value
    session.door.perform(ticket)
    broken[0].undo()
    assert session.door.open == {}
    assert session.after(ticket, Outcome("result", 1)).error.code == "OUTCOME_UNKNOWN"
    assert ends(lab) == [("act", "unknown")]


def test_denial_that_cannot_be_written_is_still_a_refusal(lab):
    session = lab.session()
    with full(session):
        assert isinstance(session.call("unknown", {}), Err)
        assert isinstance(session.call("unknown", {"n": float("nan")}), Err)


def test_result_that_hooks_could_not_be_heard_about_does_not_reach_the_caller(lab):
    """The outcome is recorded and the post hook's round is not: no record of who looked, no result."""
    undo = []

    def look(call, result):
        context = full(session)
        context.__enter__()
        undo.append(context)
        return result

    lab.tool("act", lambda args, ctx: {"n": 1})
    lab.hook("look", "PostToolUse", look)
    session = lab.session()
    got = session.call("act", {})
    undo[0].__exit__(None, None, None)
    assert got.error.code == "LEDGER_BROKEN"
    assert lab.types()[-1] == "tool.result"
