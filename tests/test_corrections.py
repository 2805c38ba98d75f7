"""Corrections: events said otherwise, sealed values erased, payloads taken out; what was recorded stays provable."""

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cases import for_each
from commandline import SCHEMAS, Place, starter
from dying import deaths

from deedbook.contract import Event
from deedbook.format.files import Folder
from deedbook.format.folds import fold
from deedbook.format.reader import read
from deedbook.kernel import open_kernel
from deedbook.maintenance.finishing import pending_cleanup
from deedbook.maintenance.opening import open_ledger
from deedbook.workspace.site import Site
from deedbook.workspace.workspace import read_workspace
from deedbook_audit.amendments import AmendmentsFold, InvalidPatch, apply_patch
from deedbook_audit.verify import verify_file
from deedbook_log.corrections.erasing import erase
from deedbook_log.corrections.excising import excise

SECRET = "the code is 4711-0815"
ARGS = json.dumps({"text": SECRET})


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a workspace with a session in which a value stands open, and others in which it is sealed."""
    place = starter(tmp_path_factory.mktemp("kept") / "workspace")
    place.configure("seal:  ", "workdocs: true\nseal:  ")
    place.here("call", "echo", "--args", ARGS, status=0)
    more = ["tool.*/args/text", "tool.*/result/text", "task.*/args/text", "task.*/result/text"]
    place.configure("  - {detect: card}", "\n".join(f"  - {each}" for each in more))
    place.configure("  - {detect: secret}", "")
    place.here("call", "echo", "--args", ARGS, status=0)
    place.here("tasks", "create", "echo", "--args", ARGS, status=0)
    place.here("tasks", "run", "last", status=0)
    return place


@pytest.fixture
def place(ready: Place, tmp_path: Path) -> Place:
    """Give a copy of that workspace, to be changed."""
    shutil.copytree(ready.path, tmp_path / "workspace")
    return Place(tmp_path / "workspace")


def sessions(place: Place) -> list[str]:
    """Return the ids of the sessions, the oldest first."""
    return [each["id"] for each in place.here("sessions", "--json", status=0).json["sessions"]]


def open_one(place: Place) -> str:
    return sessions(place)[0]


def sealed_one(place: Place) -> str:
    return sessions(place)[1]


def seq_of(place: Place, session: str, kind: str) -> str:
    return str(next(event.seq for event in read(place.ledger(session)) if event.type == kind))


def holding(place: Place, needle: str = SECRET) -> set[str]:
    """Return the files of the state in which *needle* can be read, without what salts are in front of."""
    files = (each for each in (place.path / ".deedbook").rglob("*") if each.is_file())
    return {str(each.relative_to(place.path / ".deedbook")) for each in files if needle.encode() in each.read_bytes()}


def sound(place: Place, session: str) -> tuple[str, ...]:
    report = verify_file(place.ledger(session), schemas=SCHEMAS)
    assert report.sound or report.torn, list(report.lines())
    return tuple(report.notes)


# --- amendments -------------------------------------------------------------------------------------------------------


def test_amended_event_is_shown_as_it_was_recorded_and_as_it_is_said_now(place):
    session = open_one(place)
    seq, before = seq_of(place, session, "session.end"), place.ledger(session).read_bytes()
    ran = place.here("ledger", "amend", session, seq, "--set", '/reason="no code"', "--reason", "a slip", status=0)
    assert f"event {seq} of {session} is amended by event" in ran.err
    assert place.ledger(session).read_bytes().startswith(before)
    sound(place, session)
    (said,) = place.payloads("event.amended", session)
    line = json.loads(before.splitlines()[int(seq)])
    assert {**said, "patch": list(said["patch"])} == {
        "seq": int(seq), "hash": line["envelope_hash"], "patch": [{"at": "/reason", "value": "no code"}],
        "reason": "a slip", "by": "local",
    }  # fmt: skip
    tree = place.here("tree", session, status=0).out
    assert "ok: COMPLETED  (amended by event " in tree
    assert f"event {seq} is said otherwise: /reason = no code (by local: a slip)" in tree
    story = place.here("replay", session, status=0).out
    assert "session.end: ok: COMPLETED" in story
    assert "/reason = no code" in story
    snapshot = place.here("replay", session, "--json", status=0).fits("output_replay_v1")
    assert snapshot["reason"] == "COMPLETED"
    assert snapshot["amendments"][0]["seq"] == int(seq)
    rows = place.here("tree", session, "--json", status=0).fits("output_tree_v1")["events"]
    assert [row["amended_by"] for row in rows if row["seq"] == int(seq)] == [[rows[-1]["seq"]]]


def test_head_of_an_amended_session_is_recorded_so_that_the_amendment_cannot_vanish(place):
    session = open_one(place)
    place.here("ledger", "amend", session, "1", "--set", '/decision="deny"', "--reason", "x", status=0)
    assert place.here("verify", session, status=0)
    lines = place.ledger(session).read_bytes().splitlines(keepends=True)
    place.ledger(session).write_bytes(b"".join(lines[:-1]))
    assert place.here("verify", session, status=4)


def amendment(seq: int, of: int, *patch: object) -> Event:
    said = {"seq": of, "hash": "0" * 64, "patch": list(patch), "reason": "x", "by": "x"}
    return Event(seq, "event.amended", "user", "x", f"{seq:016x}", "a", "t", said)


def test_amendments_are_made_in_order_and_may_be_amended_themselves():
    first = Event(1, "user.message", "user", None, "a", None, "t", {"text": "a", "more": [1, 2]})
    told = [
        amendment(2, 1, {"at": "/text", "value": "b"}, {"at": "/more/0"}),
        amendment(3, 1, {"at": "/new", "value": {"x": 1}}, {"at": "/new/x", "value": 2}),
        amendment(4, 2, {"at": "/patch/0/value", "value": "c"}),
        amendment(5, 4, {"at": "/patch/0/value", "value": "d"}),
        amendment(6, 9, {"at": "/text", "value": "later"}),
        amendment(7, 1, {"at": "/absent/x", "value": 1}),
    ]
    state = fold(AmendmentsFold(), [first, *told])
    assert state.amended_payload(first) == {"text": "d", "more": [2], "new": {"x": 2}}
    assert first.payload == {"text": "a", "more": [1, 2]}
    assert [each.seq for each in state.of(1)] == [2, 3, 7]
    withdrawn = fold(AmendmentsFold(), [first, told[0], amendment(3, 2, {"at": "/patch", "value": []})])
    assert withdrawn.amended_payload(first) == first.payload


@for_each("change", [
    {"at": ""}, {"at": "x"}, {"at": "/no"}, {"at": "/list/2"}, {"at": "/list/01"}, {"at": "/list/-", "value": 1},
    {"at": "/list/x/y", "value": 1}, {"at": "/a~2", "value": 1}, {"at": "/text/x", "value": 1}, {"value": 1}, 7,
])  # fmt: skip
def test_change_that_does_not_fit_is_refused(change):
    with pytest.raises(InvalidPatch):
        apply_patch({"text": "a", "list": [1, 2]}, [change])


@pytest.mark.parametrize(("args", "why"), [
    (["99", "--set", "/args/text=1"], "there is no event 99"),
    (["3", "--set", "/nothing/x=1"], "there is no 'nothing'; there are args, tool_name"),
    (["3", "--set", "/args=1"], "the result would be no valid tool.call"),
    (["3", "--set", "/args/text"], "has no `=`"),
    (["3", "--set", "/args/text=no json"], "not acceptable JSON"),
    (["3"], "the patch is empty"),
    (["3", "--set", "/args/text=1", "--as", "nobody"], "principal 'nobody' is not declared"),
])  # fmt: skip
def test_amendment_that_cannot_be_is_refused_and_nothing_is_written(place, args, why):
    session = open_one(place)
    before = place.ledger(session).read_bytes()
    ran = place.here("ledger", "amend", session, *args, "--reason", "x", status=2)
    assert why in ran.err
    assert place.ledger(session).read_bytes() == before


def test_what_takes_the_place_of_a_sealed_value_is_sealed(place):
    session = sealed_one(place)
    seq = seq_of(place, session, "tool.call")
    place.here("ledger", "amend", session, seq, "--set", '/args/text="another code"', "--reason", "x", status=0)
    sound(place, session)
    (change,) = place.payloads("event.amended", session)[0]["patch"]
    assert set(change["value"]) == {"$sealed", "size"}
    assert {Path(each).parent.name for each in holding(place, "another code")} == {"sealed"}


@pytest.mark.parametrize("command", [["amend", "0", "--remove", "/x"], ["erase"], ["excise", "0", "--yes"]])
def test_open_session_is_left_to_its_writer(place, command):
    with open_kernel(place.path) as kernel:
        session = kernel.session()
        name, *rest = command
        ran = place.here("ledger", name, session.id, *rest, "--reason", "x", status=1)
        assert "[LEDGER_LOCKED]" in ran.err
        session.end(ok=True, reason="done")
    sound(place, session.id)


def test_interrupted_session_is_amended_and_can_still_be_ended(place):
    with open_kernel(place.path) as kernel:
        session = kernel.session()
        session.call("echo", {"text": "x"})
        session.ledger.close()
    place.here("ledger", "amend", session.id, "0", "--set", '/purpose="call"', "--reason", "x", status=0)
    ran = place.here("ledger", "excise", session.id, "3", "--reason", "x", "--yes", status=2)
    assert f"deedbook sessions close {session.id}" in ran.err
    place.here("sessions", "close", session.id, status=0)
    assert place.types(session.id)[-2:] == ["event.amended", "session.end"]
    assert place.here("verify", status=0)


# --- erasure ----------------------------------------------------------------------------------------------------------


def test_erased_value_is_gone_and_everything_else_stays_provable(place):
    session, before = sealed_one(place), place.ledger(sealed_one(place)).read_bytes()
    ran = place.here("ledger", "erase", session, "--reason", "asked for by Ada", status=0)
    assert len(ran.out.split()) == 2
    assert place.ledger(session).read_bytes().startswith(before)
    assert not list((place.ledger(session).parent / "sealed").iterdir())
    assert "sealed values: 0 present, 2 absent (2 erased, or not copied along)" in sound(place, session)
    said = place.payloads("payload.erased", session)
    assert sorted(digest for each in said for digest in each["digests"]) == sorted(ran.out.split())
    assert {each["by"] for each in said} == {"local"}
    again = place.here("ledger", "erase", session, "--reason", "once more", status=0)
    assert "no sealed value is left" in again.err
    assert len(place.payloads("payload.erased", session)) == len(said)


def test_same_value_elsewhere_is_pointed_to_and_erased_when_asked_for(place):
    session = sealed_one(place)
    one = ["--event", seq_of(place, session, "tool.call"), "--reason", "x"]
    ran = place.here("ledger", "erase", session, *one, status=0)
    assert "the same value is sealed in workspace (event " in ran.err
    assert ran.err.count("deedbook ledger erase workspace --digest") == 2
    place.here("ledger", "erase", session, "--copies", "--reason", "x", status=0)
    first = open_one(place)
    assert holding(place) == {f"sessions/{first}/.events.jsonl", f"workdocs/{first}/outcome.md"}
    assert place.here("verify", status=0)
    assert place.here("tasks", "show", "last", status=0)


def test_one_value_is_erased_by_event_or_digest(place):
    session = sealed_one(place)
    (digest,) = place.here("ledger", "erase", session, "--event", seq_of(place, session, "tool.call"), "--reason", "x",
                           status=0).out.split()  # fmt: skip
    (other,) = [each.name for each in (place.ledger(session).parent / "sealed").iterdir()]
    assert other != digest
    assert place.here("ledger", "erase", session, "--digest", other, "--reason", "x", status=0).out.split() == [other]
    ran = place.here("ledger", "erase", session, "--digest", "0" * 64, "--reason", "x", status=2)
    assert "[ERASE_REFUSED]" in ran.err


def test_erasure_that_was_killed_is_finished_and_until_then_verify_says_so(place):
    session, site = sealed_one(place), Site.of(read_workspace(place.path))
    found = list(said_unfinished(place, session, "erasure not finished"))

    def work() -> None:
        erase(site, session, seq=None, digest=None, reason="x", by="local")

    died = deaths(
        work, again=lambda: found.extend(said_unfinished(place, session, "erasure not finished")), left="half"
    )
    assert died > 10
    assert True in found
    assert not list((place.ledger(session).parent / "sealed").iterdir())
    assert not any("not finished" in note for note in sound(place, session))
    assert len(place.payloads("payload.erased", session)) == 2


def said_unfinished(place: Place, session: str, words: str) -> Iterator[bool]:
    """Yield whether verification of a ledger, which is sound at every moment, says that something is not finished."""
    yield any(note.startswith(words) for note in sound(place, session))


# --- excision ---------------------------------------------------------------------------------------------------------


def test_excised_payload_is_gone_and_header_chain_and_head_stay(place):
    session = open_one(place)
    before = [json.loads(line) for line in place.ledger(session).read_bytes().splitlines()]
    for kind in ("tool.call", "tool.result", "policy.check", "hook.fired"):
        place.here("ledger", "excise", session, seq_of(place, session, kind), "--reason", "a code", "--yes", status=0)
    after = [json.loads(line) for line in place.ledger(session).read_bytes().splitlines()]
    for old, new in zip(before, after, strict=False):
        assert {**old, "payload": 0} == {**new, "payload": 0}
    assert holding(place) == {each for each in holding(place) if "sealed" in each}
    assert "payloads taken out of their lines: 4, of events 1, 2, 3, 4" in sound(place, session)
    assert place.here("verify", status=0)
    assert place.here("tree", session, status=0).out.count("[taken out of the ledger]") == 4
    assert "not sound" not in place.here("replay", session, status=0).out
    place.here("replay", session, "--json", status=0).fits("output_replay_v1")


def test_excision_without_yes_says_what_it_would_do(place):
    session, before = open_one(place), place.ledger(open_one(place)).read_bytes()
    ran = place.here("ledger", "excise", session, "3", "--reason", "x", status=2)
    assert "add --yes" in ran.err
    assert "tool.call" in ran.out
    assert place.ledger(session).read_bytes() == before


@pytest.mark.parametrize("seq", ["0", "5", "99"])
def test_what_the_ledger_stands_on_is_not_excised(place, seq):
    session, before = open_one(place), place.ledger(open_one(place)).read_bytes()
    place.here("ledger", "excise", session, seq, "--reason", "x", "--yes", status=2)
    assert place.ledger(session).read_bytes() == before


def test_excision_that_was_killed_is_finished_and_until_then_the_ledger_is_sound(place):
    session, site = open_one(place), Site.of(read_workspace(place.path))
    found: list[bool] = []

    def work() -> None:
        excise(site, session, 3, reason="x", by="local")

    died = deaths(
        work, again=lambda: found.extend(said_unfinished(place, session, "excision not finished")), left="zeros"
    )
    assert died > 10
    assert True in found
    assert "payloads taken out of their lines: 1, of events 3" in sound(place, session)
    assert len(place.payloads("ledger.excised", session)) == 1


def test_recovery_finishes_what_was_killed(place):
    session, site = open_one(place), Site.of(read_workspace(place.path))
    kill_between(site, session)
    assert any("excision not finished" in note for note in sound(place, session))
    with open_kernel(place.path) as kernel:
        kernel.recover()
    assert not any("not finished" in note for note in sound(place, session))


def kill_between(site: Site, session: str) -> None:
    """Leave an excision that was recorded and not done."""
    with Folder.at(site.state) as state, suppress(ZeroDivisionError), pending_cleanup(state, session):
        with open_ledger(site, session, "local") as ledger:
            line = ledger.line(3)
            told = {"seq": 3, "payload_hash": line.payload_hash, "size": len(line.payload)}
            ledger.append_events({"ledger.excised": [told]}, "x")
        raise ZeroDivisionError


def test_workspace_ledger_is_excised_under_writers_that_have_it_open(place):
    """Others have the old file open, hold offsets in it, and go on in the new one."""
    state = place.path / ".deedbook"
    with open_kernel(place.path) as kernel:
        first = kernel.session()
        found = [event for event in read(state / "workspace") if event.type in ("task.created", "task.ended")]
        for event in found:
            place.run("ledger", "excise", "workspace", str(event.seq), "--reason", "x", "--yes", status=0)
        second = kernel.session()
        assert second.call("echo", {"text": "after"})
        for session in (first, second):
            session.end(ok=True, reason="done")
    assert place.here("verify", status=0)
    report = verify_file(state / "workspace/.events.jsonl", schemas=SCHEMAS)
    assert report.sound or report.torn, list(report.lines())
    assert any(note.startswith(f"payloads taken out of their lines: {len(found)}") for note in report.notes)
    assert not list((state / "workspace/sealed").iterdir())
    place.here("tasks", "list", "--all", status=0)
    place.here("processes", status=0)
