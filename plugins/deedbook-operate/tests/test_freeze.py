"""A freeze: no intent after it in any process, whatever dies, and everything is denied if its record is not sound."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest
from dying import deaths
from persons import approving

from deedbook.call.handlers import Outcome
from deedbook.contract import ask
from deedbook.format.errors import BindingError, DeedbookError, Err, LedgerError, Ok
from deedbook.format.reader import read
from deedbook.kernel import open_kernel
from deedbook_guard import CallDenied, guard
from deedbook_operate.freezes import Freeze, FreezeInvalid, FreezeState
from deedbook_operate.freezing import open_freezer

WAIT = 20
"""How many seconds a test waits for an event; then it fails."""


@pytest.fixture
def frozen(lab):
    """Give a lab with the tools a and b."""
    lab.settings(agents={"bot": {"expose": {}}})
    lab.tool("a", lambda args, ctx: {}, effects="write")
    lab.tool("b", lambda args, ctx: {})
    return lab


def freeze(lab, *, agent="", ability="", who=None, partial=False, reason="a spill"):
    with open_freezer(str(lab.path)) as freezer:
        return freezer.freeze(agent, ability, reason, who, partial=partial)


def thaw(lab, name="", who=None):
    with open_freezer(str(lab.path)) as freezer:
        return freezer.thaw(name, who)


def status(lab):
    with open_freezer(str(lab.path)) as freezer:
        return freezer.status()


def recorded(lab, kind):
    return [each for each in read(lab.state / "workspace") if each.type == f"x.freeze.{kind}"]


def document(lab):
    return lab.state / "freeze" / "state"


def code(result):
    return result.error.code if isinstance(result, Err) else "ok"


# --- what is denied ---------------------------------------------------------------------------------------------------


def test_freeze_denies_calls_of_open_sessions_and_says_who_when_why_and_what_to_do(frozen):
    with frozen.session() as session:
        assert isinstance(session.call("a", {}), Ok)
        report = freeze(frozen)
        error = session.call("a", {}).error
        assert error.code == "FROZEN"
        assert report.freeze.at in error.message
        assert "all calls are frozen by local" in error.message
        assert f"a spill. Nothing runs until a person lifts it: deedbook thaw {report.freeze.id}" in error.message
        thaw(frozen)
        assert isinstance(session.call("a", {}), Ok)
    denied = frozen.payload("tool.denied")
    assert (denied["code"], denied["name"]) == ("FROZEN", "a")
    ((done,), (undone,)) = recorded(frozen, "frozen"), recorded(frozen, "thawed")
    assert done.payload["freezes"] == [report.freeze.as_json()] == undone.payload["lifted"]
    assert (done.payload["number"], undone.payload["number"]) == (1, 2)


def test_freeze_of_an_ability_leaves_the_others(frozen):
    with frozen.session() as session:
        freeze(frozen, ability="a*")
        assert [code(session.call(name, {})) for name in "ab"] == ["FROZEN", "ok"]


def test_freeze_of_an_agent_leaves_people_and_covers_whoever_acts_for_it(frozen):
    kernel = frozen.kernel()
    freeze(frozen, agent="bot")
    with kernel.session(principal=kernel.principal("agent:bot")) as session:
        assert code(session.call("a", {})) == "FROZEN"
    with kernel.session() as session:
        assert code(session.call("a", {})) == "ok"
    made = Freeze("1", "bot", "", "x", "me", "now")
    assert made.covers(["agent:worker", "agent:bot"], "a")
    assert made.covers(["bot", None], "a")
    assert not made.covers(["agent:robot", "local"], "a")


def test_nested_calls_are_denied_while_their_caller_runs(frozen):
    def outer(args, ctx):
        return {"inner": freeze(frozen, ability="b").running, "then": str(code_of(ctx))}

    def code_of(ctx):
        try:
            ctx.call("b", {})
        except Exception as problem:
            return problem.code

    frozen.tool("outer", outer, uses=["b"])
    with frozen.session() as session:
        assert session.call("outer", {}) == Ok({"inner": [], "then": "FROZEN"})


def test_call_that_began_before_is_listed_and_goes_on(frozen):
    with frozen.session() as session:
        ticket = session.before("a", {}).value
        (running,) = freeze(frozen).running
        assert (running["name"], running["span"], running["session"]) == ("a", ticket.span, session.id)
        assert isinstance(session.after(ticket, Outcome("result", {})), Ok)
        assert code(session.before("a", {})) == "FROZEN"
    assert recorded(frozen, "frozen")[0].payload["running"] == [running]


def test_program_with_a_guard_is_frozen_and_its_allowed_call_is_listed(tmp_path):
    said = {"shop": {"kind": "program", "tools": {"refund": {"effects": "write"}}}}
    (tmp_path / ".system").mkdir()
    settings = {"schema_version": "v1", "default": {"write": "allow"}, "features": {"freeze": {}}, "agents": said}
    (tmp_path / ".system" / "deedbook.yaml").write_text(json.dumps(settings))
    reports, ran = [], []

    def refund(args):
        ran.append(args)
        with open_freezer(str(tmp_path)) as freezer:
            reports.append(freezer.freeze("shop", "", "a spill", None, partial=False))
        return "done"

    governed = guard("shop", workspace=tmp_path)
    with governed.conversation("a7"):
        assert governed.call("refund", {}, refund) == "done"
        with pytest.raises(CallDenied, match="agent shop is frozen by local") as caught:
            governed.call("refund", {}, refund)
    governed.close()
    assert (caught.value.error.code, len(ran)) == ("FROZEN", 1)
    assert [each["name"] for each in reports[0].running] == ["shop/refund"]


def test_damaged_record_in_the_ledger_denies_until_it_can_be_read(frozen):
    with frozen.session() as session:
        freeze(frozen, ability="b")
        assert code(session.call("a", {})) == "ok"
        place = frozen.state / "workspace" / ".events.jsonl"
        size = place.stat().st_size
        with place.open("ab") as ledger:
            ledger.write(b'{"event_type":"x.freeze.thawed"}\n')
        assert [code(session.call("a", {})) for _ in range(2)] == ["FROZEN"] * 2
        os.truncate(place, size)
        assert [code(session.call(name, {})) for name in "ab"] == ["ok", "FROZEN"]


def test_freezes_of_two_targets_are_lifted_one_by_one(frozen):
    with frozen.session() as session:
        first, second = freeze(frozen, ability="a").freeze, freeze(frozen, ability="b").freeze
        with pytest.raises(BindingError, match="0 freezes begin with 'zz'"):
            thaw(frozen, "zz")
        assert thaw(frozen, first.id[:12]) == [first]
        assert [code(session.call(name, {})) for name in "ab"] == ["ok", "FROZEN"]
        assert status(frozen).freezes == (second,)
        assert thaw(frozen) == [second]
        assert thaw(frozen) == ()


def test_person_who_is_not_declared_cannot_freeze(frozen):
    with pytest.raises(DeedbookError, match="no principal 'bob' is declared"):
        freeze(frozen, who="bob")
    assert status(frozen).freezes == ()


def test_same_target_is_frozen_once_for_each_reason(frozen):
    frozen.kernel()
    first = freeze(frozen).freeze
    assert freeze(frozen).freeze == first
    second = freeze(frozen, reason="an audit").freeze
    assert status(frozen).freezes == (first, second)
    assert [each["reason"] for each in recorded(frozen, "frozen")[-1].payload["freezes"]] == ["a spill", "an audit"]
    thaw(frozen, first.id)
    with frozen.session() as session:
        assert "an audit" in session.call("a", {}).error.message


# --- approvals --------------------------------------------------------------------------------------------------------


def test_freeze_ends_a_waiting_call_as_denied(frozen):
    approving(frozen)
    frozen.policy("careful", lambda call: ask("is it right?"), match={"abilities": ["a"]})
    with frozen.session(wait=WAIT) as session, ThreadPoolExecutor() as pool:
        waiting = pool.submit(session.call, "a", {})
        until(lambda: any(each.type == "approval.requested" for each in read(frozen.state / "workspace")))
        (ended,) = freeze(frozen, ability="a", who="ada").ended
        error = waiting.result(WAIT).error
        assert error.code == "APPROVAL_WITHDRAWN"
        assert "ability a is frozen by ada" in error.message
        assert "a spill" in error.message
        assert code(session.call("a", {})) == "FROZEN"
    types = frozen.types()
    assert types.count("tool.denied") == 2
    assert "tool.call" not in types
    assert recorded(frozen, "frozen")[0].payload["ended"] == [ended]


def test_second_caller_that_waits_for_the_same_request_is_denied_too(frozen):
    approving(frozen)
    frozen.policy("careful", lambda call: ask("is it right?"), match={"abilities": ["a"]})
    with frozen.session(wait=WAIT) as first, frozen.session(wait=WAIT) as second, ThreadPoolExecutor() as pool:
        waiting = [pool.submit(each.call, "a", {}) for each in (first, second)]
        until(lambda: all("approval.requested" in frozen.types(each) for each in (first, second)))
        freeze(frozen, who="ada")
        assert {code(each.result(WAIT)) for each in waiting} <= {"APPROVAL_WITHDRAWN", "FROZEN"}
    assert all("tool.call" not in frozen.types(each) for each in (first, second))


def test_request_of_another_ability_waits_on(frozen):
    approving(frozen)
    frozen.policy("careful", lambda call: ask("is it right?"), match={"abilities": ["a"]})
    with frozen.session() as session:
        assert code(session.call("a", {})) == "NEEDS_HUMAN"
        assert freeze(frozen, ability="b", who="ada").ended == []


def until(holds):
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        threading.Event().wait(0.01)


# --- who may freeze ---------------------------------------------------------------------------------------------------


def test_freeze_is_signed_where_approvers_have_keys(frozen):
    approving(frozen)
    with frozen.session() as session:
        freeze(frozen)
        assert code(session.call("a", {})) == "FROZEN"
        assert "\n\n— ada " in document(frozen).read_text()
        assert recorded(frozen, "frozen")[0].payload["statement"] == document(frozen).read_text()
        assert thaw(frozen)[0].by == "ada"
        assert code(session.call("a", {})) == "ok"


def test_freeze_needs_a_key_that_the_workspace_declares(frozen, monkeypatch, tmp_path):
    approving(frozen)
    frozen.kernel()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(Exception, match="no approver's private key"):
        freeze(frozen)
    with pytest.raises(Exception, match="'eve' is no principal with the role approver"):
        freeze(frozen, who="eve")
    assert not document(frozen).exists()


# --- what is not sound ------------------------------------------------------------------------------------------------


def forge(text, **changes):
    head, _, rest = text.partition("\n")
    line, _, signed = rest.partition("\n")
    return f"{head}\n{json.dumps({**json.loads(line), **changes}, separators=(',', ':'), sort_keys=True)}\n{signed}"


DAMAGES = {
    "empty": lambda text: "",
    "cut": lambda text: text[: len(text) // 2],
    "other text": lambda text: "thawed\n",
    "a member more": lambda text: forge(text, more=1),
    "no freezes": lambda text: forge(text, freezes=[]),
    "a freeze without reason": lambda text: forge(text, freezes=[{"id": "1"}]),
    "freezes of another type": lambda text: forge(text, freezes=7),
    "another workspace": lambda text: forge(text, ledger="ws-0"),
    "an older change": lambda text: forge(text, number=0),
    "unsigned": lambda text: text.partition("\n\n")[0] + "\n",
}


def test_forged_or_damaged_document_denies_everything_until_a_thaw(frozen):
    approving(frozen)
    with frozen.session() as session:
        for damage, change in DAMAGES.items():
            freeze(frozen, ability="b")
            document(frozen).write_text(change(document(frozen).read_text()))
            for _ in range(2):
                error = session.call("a", {}).error
                assert error.code == "FROZEN", damage
                assert "every call is denied, because the record of freezes" in error.message
            found = status(frozen)
            assert (bool(found.unsound), [each.ability for each in found.freezes]) == (True, ["b"]), damage
            assert len(thaw(frozen)) == 1
            assert code(session.call("a", {})) == "ok", damage


def test_unreadable_document_denies_everything(frozen, tmp_path):
    def link(place, text):
        (tmp_path / "kept").write_text(text)
        place.symlink_to(tmp_path / "kept")

    with frozen.session() as session:
        place = document(frozen)
        for make in (
            lambda place, text: None,
            lambda place, text: place.mkdir(),
            link,
            lambda place, text: place.write_text(text + " " * 70_000),
            lambda place, text: place.write_bytes(b"\xff" + text.encode()),
        ):
            freeze(frozen, ability="b")
            text = place.read_text()
            place.unlink()
            make(place, text)
            error = session.call("a", {}).error
            assert (error.code, "is not sound" in error.message) == ("FROZEN", True)
            place.rmdir() if place.is_dir() else place.unlink(missing_ok=True)


def test_thawed_document_that_is_put_back_denies_everything_in_a_new_process(frozen):
    approving(frozen)
    with frozen.session():
        freeze(frozen)
        thaw(frozen)
        old = document(frozen).read_text()
        freeze(frozen)
        document(frozen).write_text(old)
    with frozen.session() as session:
        error = session.call("a", {}).error
    assert (error.code, "it is change 2, and the newest one is change 3" in error.message) == ("FROZEN", True)


def test_lock_that_is_not_free_denies(frozen, monkeypatch):
    monkeypatch.setattr("deedbook_operate.checking.LOCK_SECONDS", 0.05)
    with frozen.session() as session:
        assert code(session.call("a", {})) == "ok"
        with open_freezer(str(frozen.path)) as freezer, freezer.document.lock():
            assert code(session.call("a", {})) == "FROZEN"
        assert code(session.call("a", {})) == "ok"


def test_text_that_looks_like_an_event_is_no_change(frozen):
    frozen.policy("careful", lambda call: ask("is it right?"), match={"abilities": ["a"]})
    with frozen.session() as session:
        assert code(session.call("b", {})) == "ok"
        session.call("a", {"event_type": "x.freeze.frozen", "number": 9})
        session.call("a", {'x","event_type":"x.freeze.frozen': 9})
        assert code(session.call("b", {})) == "ok"
        freeze(frozen, ability="b")
        assert code(session.call("b", {})) == "FROZEN"


def test_document_is_read_as_it_was_written_and_needs_the_declared_key():
    made = FreezeState("ws", 1, (Freeze("1", "", "", "why", "me", "now"),), "me", "now")
    assert FreezeState.parse(made.encode(None).encode(), "ws", {}) == made
    with pytest.raises(FreezeInvalid, match="no approver with a key"):
        FreezeState.parse(made.encode(None).encode(), "ws", {"ada": "ada+00000000+x"})


# --- sessions without the feature -------------------------------------------------------------------------------------


def uninstall(lab):
    """Return the catalogue without the distribution of the feature."""
    catalogue = lab.catalogue()
    left = {key: offer for key, offer in catalogue.offers.items() if offer.distribution != "deedbook-operate"}
    return attrs.evolve(catalogue, offers=left)


def test_freeze_refuses_while_a_session_lacks_the_feature_unless_it_is_partial(lab):
    lab.tool("a", lambda args, ctx: {})
    with open_kernel(lab.path, catalogue=uninstall(lab)) as kernel, kernel.session() as old:
        with pytest.raises(BindingError) as caught:
            freeze(lab)
        assert caught.value.error.code == "FREEZE_REFUSED"
        assert f"session {old.id}" in str(caught.value)
        assert status(lab).freezes == ()
        with lab.session() as new:
            report = freeze(lab, partial=True)
            assert report.not_covered[0] == f"session {old.id}"
            assert [code(each.call("a", {})) for each in (old, new)] == ["ok", "FROZEN"]


def test_workspace_that_was_frozen_does_not_open_without_the_distribution(lab):
    with lab.session():
        pass
    open_kernel(lab.path, catalogue=uninstall(lab)).close()
    freeze(lab)
    for remove in (lambda: None, document(lab).unlink):
        remove()
        for _ in range(2):
            with pytest.raises(BindingError, match="pip install deedbook-operate") as caught:
                open_kernel(lab.path, catalogue=uninstall(lab))
            assert caught.value.error.code == "PLUGIN_MISSING"


def test_charter_names_the_feature_as_soon_as_it_is_installed_and_records_when_it_is_gone(lab):
    lab.tool("a", lambda args, ctx: {})
    open_kernel(lab.path, catalogue=uninstall(lab)).close()
    open_kernel(lab.path, catalogue=lab.catalogue()).close()
    open_kernel(lab.path, catalogue=uninstall(lab)).close()
    _, added, removed = [each.payload for each in read(lab.state / "workspace") if each.type == "ledger.charter"]
    assert any("feature/freeze" in each for each in added["tighter"])
    assert any("feature/freeze" in each for each in removed["looser"])


@pytest.mark.parametrize("target", [{"ability": "ab"}, {"agent": "bott"}])
def test_mistyped_target_is_refused(frozen, target):
    frozen.kernel()
    with pytest.raises(BindingError, match="no a"):
        freeze(frozen, **target)
    assert not document(frozen).exists()


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501])
def test_reason_is_needed(frozen, reason):
    frozen.kernel()
    with pytest.raises(BindingError, match="a reason has 1 to 500 characters"):
        freeze(frozen, reason=reason)


# --- under load, and with deaths --------------------------------------------------------------------------------------


def intents(lab):
    return sum(each.type == "tool.call" for place in lab.state.glob("sessions/*") for each in read(place))


def work(lab, ready, until_denied):
    """Call in a process of its own until *until_denied* calls were frozen."""
    child = os.fork()
    if child:
        return child
    status_ = 1
    try:
        with lab.session() as session:
            os.write(ready, b".")
            end = time.monotonic() + WAIT
            while until_denied and time.monotonic() < end:
                until_denied -= code(session.call("a", {})) == "FROZEN"
        status_ = until_denied
    finally:
        os._exit(status_)


def freeze_under_load(lab, processes):
    lab.kernel()
    reads, writes = os.pipe()
    children = [work(lab, writes, 20) for _ in range(processes)]
    for _ in children:
        os.read(reads, 1)
    until(lambda: intents(lab) > processes)
    report = freeze(lab)
    then = intents(lab)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * processes
    os.close(reads)
    os.close(writes)
    assert intents(lab) == then
    thaw(lab)
    return report


def test_no_intent_follows_a_freeze_under_load(frozen):
    freeze_under_load(frozen, 3)


@pytest.mark.campaign
@pytest.mark.parametrize("turn", range(30))
def test_no_intent_follows_a_freeze_under_more_load(frozen, turn):
    for _ in range(3):
        freeze_under_load(frozen, 2 + turn % 7)


def test_freeze_that_dies_at_any_step_leaves_nothing_or_a_freeze_that_a_second_one_completes(frozen):
    deaths_of(frozen, lambda: freeze(frozen), ("ok", "FROZEN"))
    assert status(frozen).freezes
    with frozen.session() as session:
        assert code(session.call("a", {})) == "FROZEN"
    assert not status(frozen).unrecorded


def test_thaw_that_dies_at_any_step_leaves_everything_frozen_until_a_second_one_completes(frozen):
    with frozen.session():
        freeze(frozen)
    deaths_of(frozen, lambda: thaw(frozen), ("FROZEN", "ok"))
    with frozen.session() as session:
        assert code(session.call("a", {})) == "ok"


def deaths_of(lab, change, order):
    """Do *change* in processes that die at each step; what a call gets goes from the first of *order* to the second."""
    with lab.session() as session:
        seen = []
        assert deaths(change, again=lambda: seen.append(code(session.call("b", {}))), most=120) > 5
        assert set(seen) <= set(order)
        assert seen == sorted(seen, key=order.index)
    change()


def stop_while_recording(lab):
    """Return a process that stopped while it recorded the intent of a call, which is then done."""
    child = os.fork()
    if not child:
        armed = []

        def sync(fd):
            if armed:
                armed.clear()
                os.kill(os.getpid(), signal.SIGSTOP)

        with lab.session(fdatasync=sync) as session:
            armed.append(True)
            status = code(session.call("a", {}))
            os._exit(0 if status == "ok" else 1)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    return child


def test_freeze_names_the_process_that_stopped_while_recording_and_a_second_one_works(frozen, monkeypatch):
    frozen.kernel().close()
    monkeypatch.setattr("deedbook_operate.checking.LOCK_SECONDS", 0.05)
    child = stop_while_recording(frozen)
    try:
        with pytest.raises(LedgerError, match=rf"in force for every later call.* {child} go on \(kill -CONT\)"):
            freeze(frozen)
    finally:
        os.kill(child, signal.SIGCONT)
        ended = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert status(frozen).unrecorded
    freeze(frozen)
    assert not status(frozen).unrecorded


def test_freeze_that_cannot_begin_says_that_nothing_was_changed_and_which_process_writes(frozen, monkeypatch):
    monkeypatch.setattr("deedbook_operate.checking.LOCK_SECONDS", 0.05)
    with open_freezer(str(frozen.path)) as freezer, freezer.document.lock("changes"):
        with pytest.raises(LedgerError, match="no freeze was changed") as caught:
            freeze(frozen)
        assert caught.value.error.code == "LEDGER_LOCKED"


def test_stopped_caller_does_not_keep_the_freeze_from_later_calls(frozen, monkeypatch):
    monkeypatch.setattr("deedbook_operate.checking.LOCK_SECONDS", 0.05)
    with frozen.session() as session, open_freezer(str(frozen.path)) as freezer:
        held = freezer.document.acquire(shared=True)
        with pytest.raises(LedgerError, match="in force for every later call") as caught:
            freeze(frozen)
        assert caught.value.error.code == "FREEZE_REFUSED"
        assert code(session.call("a", {})) == "FROZEN"
        os.close(held)
        assert status(frozen).unrecorded
        freeze(frozen)
        assert not status(frozen).unrecorded
