"""No record, no effect: what is durable before a handler runs, and what happens where the ledger cannot be written."""

import errno
import os
import resource
import signal
import threading
from contextlib import contextmanager

import pytest

from deedbook import Err, Ok, deny


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
    lab.tool("act", lambda args, ctx: None, effects=effects)
    session = lab.session(fdatasync=disk)
    disk.mine = 0
    session.call("act", {})
    assert disk.mine == syncs


@pytest.mark.parametrize("effects", ["write", "irreversible"])
def test_intent_of_a_call_with_effects_is_durable_before_the_handler_runs(lab, disk, effects):
    synced = []
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
