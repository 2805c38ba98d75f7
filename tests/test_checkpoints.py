"""Checkpoints as a process writes them: when, of what, before which effects, and what a key has to do with it."""

import asyncio
import json
import threading
from pathlib import Path

import logs
import pytest
from commandline import until

from deedbook.call.handlers import Outcome
from deedbook.charter.settings import CheckpointSettings
from deedbook.contract import Failed
from deedbook.format.errors import Err, LedgerError, SignatureError
from deedbook.format.files import Folder
from deedbook.kernel import write
from deedbook.workspace.own_ledger import open_own_ledger
from deedbook.workspace.workspace import read_workspace
from deedbook_inspect.upkeep import close_session
from deedbook_log.checkpoints.operations import LogOperations


def office(lab, act):
    """Do *act* with the workspace's log, as a command would."""
    workspace = read_workspace(lab.path, catalogue=lab.catalogue())
    settings = CheckpointSettings.read(workspace.checkpoints, workspace.root)
    with open_own_ledger(workspace) as ledger, Folder.at(workspace.state) as state:
        return act(LogOperations(state, ledger, settings))


def rotate(lab, *, lost=False):
    return office(lab, lambda desk: desk.rotate_key(lost=lost))


def ask(lab):
    return office(lab, lambda desk: desk.write_checkpoint())


def own(lab):
    path = lab.state / "workspace" / ".events.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def count(lab, event_type):
    return sum(line["event_type"] == event_type for line in own(lab))


@pytest.fixture
def signed(lab):
    """Give a lab whose log has a key."""
    lab.tool("echo", lambda args, ctx: args)
    lab.kernel().close()
    lab.key = rotate(lab)
    return lab


# --- off and on -------------------------------------------------------------------------------------------------------


def test_without_a_key_nothing_is_written_and_nobody_looks_on(lab):
    lab.allow_irreversible()
    lab.tool("drop", lambda args, ctx: args, effects="irreversible")
    session = lab.session()
    assert session.call("drop", {}).value == {}
    session.end(ok=True, reason="done")
    assert not [thread for thread in threading.enumerate() if thread.name == "deedbook-checkpoints"]
    assert not [line for line in own(lab) if line["event_type"] in ("ledger.key", "ledger.leaf", "ledger.checkpoint")]
    assert not (lab.state / "checkpoint").exists()
    with pytest.raises(SignatureError, match="keys rotate"):
        ask(lab)


def test_first_key_covers_everything_that_is_there(lab):
    lab.tool("echo", lambda args, ctx: args)
    ended, running = lab.session(), lab.session()
    ended.call("echo", {})
    ended.end(ok=True, reason="done")
    done = rotate(lab)
    assert (done.previous, done.is_previous_lost) == (None, False)
    (first,) = logs.audit(lab.state)
    assert (first["why"], first["size"]) == ("key", 3)
    assert logs.covered(lab.state).keys() >= {ended.id, running.id}
    assert (lab.state / "checkpoint").read_text() == first["note"]


def test_session_that_began_before_the_first_key_is_covered_when_it_ends(lab):
    lab.tool("echo", lambda args, ctx: args)
    session = lab.session()
    rotate(lab)
    session.call("echo", {})
    session.end(ok=True, reason="done")
    assert logs.audit(lab.state)[-1]["why"] == "session_end"
    assert logs.covered(lab.state)[session.id] == len(lab.events(session))


@pytest.mark.parametrize("trace", ["the private key", "the file", "the ledger's last lines"])
def test_any_trace_of_the_log_is_enough_to_know_that_there_is_one(signed, trace):
    signed.allow_irreversible()
    signed.tool("drop", lambda args, ctx: args, effects="irreversible")
    key = signed.key.place.read_bytes()
    if trace != "the private key":
        signed.key.place.unlink()
    if trace != "the file":
        (signed.state / "checkpoint").unlink()
    if trace != "the ledger's last lines":
        kernel = signed.kernel()
        for _ in range(70):
            write(kernel.ledger, "ledger.charter", {"digest": "0" * 64, "previous": None, "looser": [], "tighter": []})
    result = signed.session().call("drop", {})
    assert isinstance(result, Err) == (trace != "the private key")
    signed.key.place.write_bytes(key)
    signed.key.place.chmod(0o600)


# --- when -------------------------------------------------------------------------------------------------------------


def test_end_of_a_session_is_covered_with_the_head_that_the_workspace_recorded(signed):
    session = signed.session()
    session.call("echo", {"n": 1})
    session.end(ok=True, reason="done")
    last = logs.audit(signed.state)[-1]
    assert last["why"] == "session_end"
    assert logs.covered(signed.state)[session.id] == len(signed.events(session))
    heads = [line["seq"] for line in own(signed) if line["event_type"] == "ledger.session"]
    leaf = [line["payload"]["size"] for line in own(signed) if line["event_type"] == "ledger.leaf"][-2]
    assert leaf > heads[-1]


def test_so_many_events_are_covered_while_the_session_goes_on(signed):
    signed.settings(checkpoints={"every_events": 10})
    session = signed.session()
    for n in range(5):
        session.call("echo", {"n": n})
    until(lambda: logs.covered(signed.state).get(session.id, 0) >= 10, 10)
    assert logs.audit(signed.state)[-1]["why"] == "events"


def test_what_was_recorded_is_covered_after_so_many_seconds_all_sessions_at_once(signed):
    signed.settings(checkpoints={"every_seconds": 1})
    kernel = signed.kernel()
    sessions = [kernel.session() for _ in range(2)]
    try:
        until(lambda: logs.covered(signed.state).keys() >= {each.id for each in sessions}, 10)
        (last,) = [each for each in logs.audit(signed.state) if each["why"] == "seconds"]
        assert last["size"] == logs.audit(signed.state)[0]["size"] + 3
    finally:
        for each in sessions:
            each.end(ok=True, reason="done")


# --- before an effect -------------------------------------------------------------------------------------------------


@pytest.fixture
def seen(signed):
    """Give what an irreversible handler and its coroutine form found covered of their session when they began."""
    found = []

    def look(args, ctx):
        covered = logs.covered(signed.state).get(ctx.session, 0)
        line = signed.ledger(ctx.session).read_bytes().splitlines()[covered - 1]
        found.append(json.loads(line)["event_type"])
        return args

    async def looking(args, ctx):
        return look(args, ctx)

    signed.allow_irreversible()
    signed.tool("drop", look, effects="irreversible")
    signed.tool("adrop", looking, effects="irreversible")
    signed.tool("outer", lambda args, ctx: ctx.call("drop", args), uses=["drop"])
    return found


def test_irreversible_handler_begins_when_a_checkpoint_covers_its_intent(signed, seen):
    session = signed.session()
    assert session.call("drop", {"n": 1}).value == {"n": 1}
    assert session.call("outer", {"n": 2}).value == {"n": 2}
    assert asyncio.run(session.acall("adrop", {"n": 3})).value == {"n": 3}
    assert seen == ["tool.call"] * 3
    assert [each["why"] for each in logs.audit(signed.state)] == ["key", *["irreversible"] * 3]


def test_agents_own_irreversible_effect_is_covered_before_the_agent_hears(signed, seen):
    session = signed.session()
    ticket = session.before("drop", {}).value
    assert logs.covered(signed.state)[session.id] == len(signed.events(session))
    session.after(ticket, Outcome("result", {}))


def test_many_who_wait_at_once_share_checkpoints_and_each_is_covered(signed, seen):
    session = signed.session()
    begin = threading.Barrier(8)

    def go():
        begin.wait()
        session.call("drop", {})

    threads = [threading.Thread(target=go) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(seen) == 8
    assert len(logs.audit(signed.state)) <= 9


@pytest.mark.parametrize("how", ["call", "acall", "before"])
def test_irreversible_call_that_no_checkpoint_can_cover_is_denied_and_its_intent_closed(signed, seen, how):
    signed.tool("save", lambda args, ctx: args, effects="write")
    session = signed.session()
    signed.key.place.unlink()
    result = asyncio.run(session.acall("drop", {})) if how == "acall" else getattr(session, how)("drop", {})
    assert isinstance(result, Err)
    assert result.error.code == "CHECKPOINT_FAILED"
    assert "rotate --lost" in result.error.message
    assert seen == []
    error = signed.one("tool.error", session)
    assert (error.payload["code"], error.payload["outcome"]) == ("CHECKPOINT_FAILED", "failed")
    assert error.parent == signed.one("tool.call", session).span
    assert session.call("save", {"n": 1}).value == {"n": 1}


def test_session_whose_end_cannot_be_covered_has_ended_all_the_same_and_it_is_said(signed):
    session = signed.session()
    signed.key.place.unlink()
    session.end(ok=True, reason="done")
    assert signed.types(session)[-1] == "session.end"
    ((subject, failure),) = signed._kernels[-1].notices.found
    assert subject == "checkpoints"
    assert failure.code == "CHECKPOINT_FAILED"
    assert "is not here" in failure.message


@pytest.mark.parametrize(("before", "whys"), [([], []), (["write"], ["irreversible"]), (["irreversible"], [])])
def test_settings_say_which_effects_wait(signed, before, whys):
    signed.settings(checkpoints={"before": before})
    signed.tool("save", lambda args, ctx: args, effects="write")
    session = signed.session()
    session.call("save", {})
    assert [each["why"] for each in logs.audit(signed.state)][1:] == whys


def test_handler_that_fails_after_its_checkpoint_is_recorded_as_ever(signed):
    def fail(args, ctx):
        raise Failed("TOOL_ERROR", "no")

    signed.allow_irreversible()
    signed.tool("drop", fail, effects="irreversible")
    session = signed.session()
    assert session.call("drop", {}).error.code == "TOOL_ERROR"
    assert len(logs.audit(signed.state)) == 2


# --- the key ----------------------------------------------------------------------------------------------------------


def test_private_key_is_the_users_alone_and_lies_outside_the_workspace(signed):
    where = signed.key.place
    assert (where.stat().st_mode & 0o777, where.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not where.is_relative_to(signed.path)
    assert where.name == f"{own(signed)[0]['session_id']}.{signed.key.key.id}"


def test_another_key_is_signed_by_both_and_the_old_one_is_removed(signed):
    session = signed.session()
    before, done = signed.key, rotate(signed)
    assert (done.previous, done.is_previous_lost) == (before.key, False)
    assert not before.place.exists()
    session.end(ok=True, reason="done")  # its process read the key before
    assert [each["why"] for each in logs.audit(signed.state)] == ["key", "key", "session_end"]
    assert logs.is_signed((signed.state / "checkpoint").read_text(), str(done.key))


def test_lost_key_is_followed_by_one_that_says_so(signed):
    signed.key.place.unlink()
    with pytest.raises(SignatureError, match="rotate --lost"):
        rotate(signed)
    done = rotate(signed, lost=True)
    assert (done.previous, done.is_previous_lost) == (signed.key.key, True)
    assert len(logs.audit(signed.state)) == 2
    assert own(signed)[-3]["payload"]["lost"] is True


def test_key_in_a_file_of_its_own_is_replaced_there(lab, tmp_path):
    place = tmp_path / "safe" / "log.key"
    lab.settings(checkpoints={"key": str(place)})
    lab.kernel().close()
    first = rotate(lab)
    assert first.place == place
    assert place.stat().st_mode & 0o777 == 0o600
    second = rotate(lab)
    assert second.previous == first.key
    assert [each.name for each in place.parent.iterdir()] == ["log.key"]
    lab.session().end(ok=True, reason="done")
    assert [each["why"] for each in logs.audit(lab.state)] == ["key", "key", "session_end"]


@pytest.mark.parametrize("killed", ["before the record", "after the record"])
def test_key_change_that_was_killed_is_settled_by_the_next_one(signed, monkeypatch, killed):
    target, name = {
        "before the record": ("deedbook.ledger.ledger.WorkspaceLedger", "_extend"),
        "after the record": ("deedbook_log.checkpoints.keys.LogKeys", "activate"),
    }[killed]
    with monkeypatch.context() as patch:
        patch.setattr(f"{target}.{name}", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            rotate(signed)
    session = signed.session()
    session.end(ok=True, reason="done")
    rotate(signed)
    assert [each["why"] for each in logs.audit(signed.state)] == ["key", "session_end", "key"]
    assert len(list(signed.key.place.parent.glob(f"{own(signed)[0]['session_id']}.*"))) == 1


# --- sessions of others -----------------------------------------------------------------------------------------------


def test_checkpoint_that_is_asked_for_covers_open_sessions_of_other_kernels(signed):
    session = signed.session()
    session.call("echo", {})
    done = ask(signed)
    assert [made.sessions for made in done.coverage.checkpoints] == [1]
    assert logs.covered(signed.state)[session.id] == len(signed.events(session))
    session.call("echo", {})
    session.end(ok=True, reason="done")
    assert [each["why"] for each in logs.audit(signed.state)] == ["key", "asked", "session_end"]


def test_session_that_is_ended_from_outside_is_covered(signed, tmp_path):
    session = signed.session()
    session.call("echo", {})
    session.ledger.close()  # as its process would, had it died
    session.ended = True
    close_session(read_workspace(signed.path, catalogue=signed.catalogue()), session.id)
    assert logs.covered(signed.state)[session.id] == len(signed.events(session))
    assert logs.audit(signed.state)[-1]["why"] == "session_end"


def test_recovery_covers_what_it_ended_and_what_others_ended_and_could_not_cover(signed, monkeypatch):
    session, other = signed.session(), signed.session()
    session.ledger.close()
    session.ended = True
    with monkeypatch.context() as patch:
        patch.setattr("deedbook_log.checkpoints.keeper.CheckpointKeeper.end", lambda *_: None)
        other.end(ok=True, reason="done")
    assert signed.kernel().recover().closed
    for each in (session, other):
        assert logs.covered(signed.state)[each.id] == len(signed.events(each))


# --- what is not what was signed --------------------------------------------------------------------------------------


def lines(path: Path):
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def cut(signed):
    """Give a session that a checkpoint covers, that nobody writes, and that lost its last line."""
    session = signed.session()
    session.call("echo", {})
    ask(signed)
    session.ledger.close()
    session.ended = signed.damaged = True
    path = signed.ledger(session)
    path.write_bytes(b"".join(lines(path)[:-1]))
    return session.id


def test_session_that_was_cut_below_its_leaf_is_neither_ended_nor_covered(signed, cut):
    before = signed.ledger(cut).read_bytes()
    with pytest.raises(LedgerError, match="not what the workspace ledger recorded"):
        close_session(read_workspace(signed.path, catalogue=signed.catalogue()), cut)
    assert signed.kernel().recover().refused[cut].code == "LEDGER_UNSOUND"
    assert ask(signed).coverage.left_out[cut].code == "LEDGER_UNSOUND"
    assert signed.ledger(cut).read_bytes() == before


def test_session_that_was_taken_away_is_told(signed):
    session = signed.session()
    session.end(ok=True, reason="done")
    signed.damaged = True
    signed.ledger(session).unlink()
    signed.ledger(session).parent.rmdir()
    assert "file is gone" in ask(signed).coverage.left_out[session.id].message


def test_workspace_ledger_below_its_newest_checkpoint_is_written_by_nobody(signed):
    signed.session().end(ok=True, reason="done")
    signed._kernels[-1].close()
    signed.damaged = True
    path = signed.state / "workspace" / ".events.jsonl"
    whole = lines(path)
    last = max(n for n, line in enumerate(whole) if b'"event_type":"ledger.checkpoint"' in line)
    for left in (b"".join(whole[:last]), b"".join(whole[:last]) + whole[last][:100]):
        path.write_bytes(left)
        for act in (signed.session, lambda: ask(signed), lambda: rotate(signed)):
            with pytest.raises(LedgerError, match="Lines were taken away") as caught:
                act()
            assert caught.value.error.code == "LEDGER_UNSOUND"
        assert path.read_bytes() == left  # nor is a torn end set aside
    path.unlink()
    with pytest.raises(LedgerError, match="is gone"):
        signed.session()
    path.write_bytes(b"".join(whole))
    signed.session().end(ok=True, reason="done")
    logs.audit(signed.state)


def test_checkpoint_file_that_is_older_or_gone_is_no_fault_and_one_that_is_none_is(signed):
    place = signed.state / "checkpoint"
    old = place.read_bytes()
    signed.session().end(ok=True, reason="done")
    place.write_bytes(old)
    signed.session().end(ok=True, reason="done")
    place.unlink()
    signed.session().end(ok=True, reason="done")
    assert len(logs.audit(signed.state)) == 4
    place.write_bytes(b"no note")
    signed.damaged = True
    with pytest.raises(LedgerError, match="no signed checkpoint"):
        signed.session()


def test_whatever_of_an_append_a_killed_writer_left_the_log_goes_on_from_there(signed):
    place, path = signed.state / "checkpoint", signed.state / "workspace" / ".events.jsonl"
    session = signed.session()
    session.call("echo", {})
    old, before = place.read_bytes(), path.read_bytes()
    ask(signed)
    after = path.read_bytes()
    *added, _ = (n for n in range(len(before), len(after)) if after[n : n + 1] == b"\n")
    for end in (*(n + 1 for n in added), *(n + 60 for n in added), len(after) - 1):
        place.write_bytes(old)
        path.write_bytes(after[:end])
        ask(signed)
        assert logs.audit(signed.state)[-1]["why"] == "asked"
        assert logs.covered(signed.state)[session.id] == len(signed.events(session))
    path.write_bytes(after)
    place.write_bytes(old)


def test_log_that_is_not_what_was_signed_is_signed_no_further(signed):
    signed.session().end(ok=True, reason="done")
    signed._kernels[-1].close()
    signed.damaged = True
    path = signed.state / "workspace" / ".events.jsonl"
    raw = path.read_bytes()
    leaf = [line for line in own(signed) if line["event_type"] == "ledger.checkpoint"][-1]["payload"]
    path.write_bytes(raw.replace(leaf["peaks"][-1].encode(), b"0" * 64))
    with pytest.raises(LedgerError, match="not what was written"):
        ask(signed)
