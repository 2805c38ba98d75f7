"""What memory rests on is checked afterwards by a reader that knows the format and not the gate."""

import json

import ledgers
import pytest
from commandline import Place
from persons import approving, perform_once
from remembering import ALLOW, declared, fine, propose, remembering
from test_task_lives import SCHEMAS, changed

from deedbook.format.events import split_line
from deedbook_approvals.answering import answer
from deedbook_audit.memory_sources import compare_memory_sources
from deedbook_audit.verify import verify_file


def findings(book, tmp_path):
    """Return what is wrong with a ledger, once its hashes are made right."""
    workspace = json.loads(book.lines[0])["event_type"] == "ledger.created"
    path = tmp_path / ".events.jsonl"
    path.write_bytes(b"".join(ledgers.forge(book.lines, genesis="workspace" if workspace else "session")))
    report = verify_file(path, schemas=SCHEMAS)
    return [f"{each.check}: {each.found}" for each in (*report.bytes.failures, *report.structure.failures)]


SEALED = {"$sealed": ledgers.HASH, "size": 12}


def test_honest_ledgers_have_nothing_wrong(tmp_path):
    assert findings(ledgers.memories(), tmp_path) == []
    assert findings(ledgers.remembered(), tmp_path) == []


@pytest.mark.parametrize(
    ("event_type", "which", "members", "why"),
    [
        ("memory.proposed", 1, {"proposal": f"m-{'a1' * 16}"}, "made a second time"),
        ("memory.proposed", 0, {"persona": "p-2"}, "another persona"),
        ("memory.proposed", 0, {"entry": {**ledgers.ENTRY, "zone": "decision"}}, "another zone"),
        ("memory.proposed", 0, {"entry": {**ledgers.ENTRY, "key": "sea"}}, "another key"),
        ("memory.checked", 0, {"proposal": f"m-{'a2' * 16}"}, "under no memory.proposed of the same"),
        ("memory.checked", 0, {"ok": False}, "committed whose checks failed"),
        ("memory.checked", 0, {"checks": [{"check": "size", "ok": False}]}, "a check failed"),
        ("memory.committed", 0, {"version": 2}, "goes to version 2; the next is 1"),
        ("memory.committed", 0, {"zone": "world_state"}, "without provenance"),
        ("memory.committed", 0, {"proposal": f"m-{'a2' * 16}"}, "under no memory.checked of the same"),
        ("memory.retracted", 0, {"version": 1}, "goes to version 1; the next is 2"),
        ("memory.retracted", 0, {"key": "sea"}, "goes to version 2; the next is 1"),
        ("memory.migrated", 0, {"entries": 0}, "more is taken over"),
        ("memory.migrated", 0, {"after": ledgers.HASH}, "not what memory.migrated commits to"),
        ("memory.imported", 0, {"entry": {**ledgers.ENTRY, "zone": "legacy", "value": 1}}, "not what memory.migrated"),
        ("memory.imported", 0, {"version": 3}, "goes to version 3; the next is 1"),
    ],
)
def test_what_no_gate_writes_is_found_in_the_workspace_ledger(tmp_path, event_type, which, members, why):
    found = findings(changed(ledgers.memories(), event_type, which, **members), tmp_path)
    assert any(why in each for each in found), found


def test_what_is_sealed_is_not_compared(tmp_path):
    book = changed(ledgers.memories(), "memory.proposed", 0, entry=SEALED)
    for event_type in ("memory.committed", "memory.retracted"):
        book = changed(book, event_type, key=SEALED)
    assert findings(changed(book, "memory.imported", entry=SEALED), tmp_path) == []


def test_a_session_is_bound_once(tmp_path):
    book = ledgers.remembered()
    end = book.lines.pop()
    book.add("persona.bound", {"persona": "p-2", "version": 1, "digest": ledgers.HASH}, parent=f"{1:016x}")
    assert any("a second time" in each for each in findings(book, tmp_path))
    assert end


# --- the sessions that memory rests on ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grounded(tmp_path_factory):
    """Give a workspace in which something rests on a message, on a tool's result, and on an approval; read only."""
    from deedbook_testing import Lab

    lab = Lab(tmp_path_factory.mktemp("grounded"))
    (name,) = (key.public.name for key in approving(lab))
    assert name == "ada"
    ask = {"match": {"kind": "memory", "args": {"/provenance/kind": "human_approved"}}, "then": "ask"}
    policy = {"kind": "rules", "match": {"kind": "memory"}, "rules": [ask, *ALLOW["rules"]]}
    remembering(lab, policy=policy, persona="p-1", verified_by=["clock"])
    lab.tool("clock", lambda args, ctx: {"hour": 7})
    with lab.session() as session:
        fine(propose(session, "city", "Oslo", "world_state", provenance=declared(session)))
        fine(session.call("clock", {}))
        lines = [split_line(raw) for raw in lab.ledger(session).read_bytes().splitlines()]
        (clock,) = (line for line in lines if line.event_type == "tool.result")
        grounds = {"session": session.id, "seq": clock.seq, "hash": clock.envelope_hash, "pointer": "/hour"}
        fine(propose(session, "hour", 7, "world_state", provenance={"kind": "tool_verified", **grounds}))
        fine(propose(session, "mood", "good"))
        fine(session.call("memory/retract", {"zone": "observation", "key": "mood", "reason": "no longer so"}))
        propose(session, "limit", 100, "world_state", provenance={"kind": "human_approved"})
    identity = lab.payload("approval.requested", session)["approval"]
    answer(lab.path, identity, approve=True, catalogue=lab.catalogue())
    with lab.kernel() as kernel:
        fine(perform_once(kernel, identity))
    lab.close()
    return lab.path / ".deedbook"


def gaps(state):
    return [str(gap) for gap in compare_memory_sources(state, [place.name for place in (state / "sessions").iterdir()])]


def forged(state, tmp_path, change):
    """Copy *state*, and change the lines of its sessions, with hashes made right again."""
    from shutil import copytree

    copytree(state, tmp_path / "state")
    count = 0
    for place in (tmp_path / "state/sessions").glob("*/.events.jsonl"):
        lines = place.read_bytes().splitlines(keepends=True)
        made = [change(line) for line in lines]
        count += made != lines
        place.write_bytes(b"".join(ledgers.forge(made)))
    assert count
    return tmp_path / "state"


def test_what_honest_sessions_say_is_what_memory_rests_on(grounded):
    assert gaps(grounded) == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"event_type":"user.message"', b'"event_type":"agent.reply"', "event 2 with the hash that it rests on"),
        (b'"result":{"hour":7}', b'"result":{"hour":8}', "with the hash that it rests on"),
        (b'"key":"hour"', b'"key":"year"', "the key of its call, found another"),
        (b'"reason":"no longer so"', b'"reason":"it was bad"', "the reason of its call, found another"),
        (b'"value":"Oslo"', b'"value":"Rome"', "the value of its call, found another"),
        (b'"persona":"p-1"', b'"persona":"p-2"', "persona p-1, found a session of p-2"),
        (b'"event_type":"memory.call"', b'"event_type":"tool.call"', "that it names, found tool.call"),
        (b'"event_type":"memory.call","actor":"user","principal":"local"',
         b'"event_type":"memory.call","actor":"user","principal":"eve"', "a call of local, found one of eve"),
    ],
)  # fmt: skip
def test_session_that_was_written_anew_is_named(grounded, tmp_path, old, new, why):
    found = gaps(forged(grounded, tmp_path, lambda line: line.replace(old, new)))
    assert any(why in each for each in found), found


def test_retraction_of_a_call_that_nobody_made_is_named(grounded, tmp_path):
    """The session has no call that changes the memory there."""
    old = b'"ability":"memory/retract"'
    state = forged(grounded, tmp_path, lambda line: line.replace(b"memory.call", b"tool.call") if old in line else line)
    found = gaps(state)
    assert any("retraction of observation/mood" in each and "found tool.call" in each for each in found), found


def test_verify_says_on_what_memory_does_not_rest(grounded, tmp_path):
    """The command, over a workspace whose session was written anew, wholesale."""
    state = forged(grounded, tmp_path, lambda line: line.replace(b'"value":"Oslo"', b'"value":"Rome"'))
    workspace = tmp_path / "workspace"
    (workspace / ".system").mkdir(parents=True)
    (workspace / ".system/deedbook.yaml").write_text("schema_version: v1\n")
    state.rename(workspace / ".deedbook")
    ran = Place(workspace).here("verify", "--json", status=4)
    said = json.loads(ran.out)
    assert any("value of its call" in each["expected"] for each in said["missing"]), said["missing"]
