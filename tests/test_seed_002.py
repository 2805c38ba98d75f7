"""Seed 002, envelope, causality and replay: what it promises of a ledger, on ledgers that the command has written."""

import json
import os
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from commandline import SCHEMAS, Place, starter
from ledgers import forge
from test_export import strict_replay

from deedbook.format.canonical import encode
from deedbook.format.folds import fold
from deedbook_audit.upcasting.reader import read
from deedbook_audit.verify import verify_file
from deedbook_inspect.event_tree import TreeFold

ACTORS = {"runtime", "user", "agent", "tool", "policy", "system"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a workspace with sessions that ended well, badly, denied, conflicting, and one that was never answered."""
    made = starter(tmp_path_factory.mktemp("seed") / "workspace")
    made.write("docs/a.md", "alpha\n")
    for args in (
        ["run", "Say hello to Ada"],
        ["run", "Survey docs/*.md"],
        ["run", "What is the weather?"],
        ["run", "Survey nothing/*.md"],
        ["call", "echo", "--args", '{"text":"hi\\u2028 \\ud83d\\ude00 \\"quoted\\""}'],
        ["call", "echo", "--args", "[]"],
        ["call", "rm"],
        ["call", "file-read", "--args", '{"path":"absent"}'],
    ):
        made.here(*args)
    return made


@pytest.fixture(scope="module")
def greeting(place: Place) -> str:
    """Give the id of the session that greeted Ada."""
    (found,) = (name for name in place.sessions() if b"Hello, Ada!" in place.ledger(name).read_bytes())
    return found


@pytest.fixture
def copy(place: Place, greeting: str, tmp_path: Path) -> Path:
    """Give a copy of that session's ledger, to be tampered with."""
    return Path(shutil.copyfile(place.ledger(greeting), tmp_path / "events.jsonl"))


def lines_of(place: Place) -> list[dict]:
    return [json.loads(line) for name in place.sessions() for line in place.ledger(name).read_bytes().splitlines()]


# --- envelope ---------------------------------------------------------------------------------------------------------


def test_every_line_has_the_envelope_of_the_seed(place: Place):
    for line in lines_of(place):
        assert {"schema_version", "event_type", "session_id", "trace_id", "ts", "payload", "payload_hash"} <= set(line)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"])


def test_payload_hash_can_be_computed_by_anybody(place: Place):
    for line in lines_of(place):
        assert line["payload_hash"] == sha256(encode(line["payload"])).hexdigest()


def test_payload_hash_does_not_depend_on_the_order_of_keys(place: Place):
    orders = ('{"text":"hi","a":1}', '{"a":1,"text":"hi"}')
    hashes = []
    for args in orders:
        ran = place.here("call", "echo", "--args", args, status=1)
        hashes += [json.loads(line)["payload_hash"] for line in place.ledger(ran.session).read_bytes().splitlines()
                   if b'"tool.denied"' in line]  # fmt: skip
    assert len(set(hashes)) == 1


def test_session_ids_are_unique_and_one_trace_binds_a_session(place: Place):
    traces = {}
    for name in place.sessions():
        lines = [json.loads(line) for line in place.ledger(name).read_bytes().splitlines()]
        assert {line["session_id"] for line in lines} == {name}
        (traces[name],) = {line["trace_id"] for line in lines}
    assert len(set(traces.values())) == len(traces) == len(place.sessions())


# --- causality --------------------------------------------------------------------------------------------------------


def test_every_session_is_a_tree_with_one_root_and_no_orphans(place: Place):
    for name in place.sessions():
        tree = fold(TreeFold(), read(place.ledger(name)))
        assert (len(tree.roots), len(tree.orphans)) == (1, 0)
        shown = place.here("tree", name, "--json", status=0).json
        assert (len(shown["roots"]), shown["orphans"]) == (1, [])


def test_every_event_says_who_acted_and_what_caused_it(place: Place):
    for name in place.sessions():
        seen: set[str] = set()
        for event in read(place.ledger(name)):
            assert event.actor in ACTORS
            assert (event.parent in seen) is bool(seen)
            assert event.span not in seen
            seen.add(event.span)


def test_session_end_hangs_under_the_root_and_not_under_the_last_action(place: Place):
    for name in place.sessions():
        events = list(read(place.ledger(name)))
        assert (events[0].type, events[-1].type) == ("session.start", "session.end")
        assert events[-1].parent == events[0].span


def test_result_of_a_tool_hangs_under_its_call(place: Place):
    for name in place.sessions():
        spans = {event.span: event for event in read(place.ledger(name))}
        for event in spans.values():
            if event.type in ("tool.result", "tool.error"):
                assert spans[event.parent].type == "tool.call"
                assert spans[event.parent].payload["tool_name"] == event.payload["tool_name"]


def test_calls_of_one_reply_branch_beside_each_other(place: Place):
    for name in place.sessions():
        events = {event.span: event for event in read(place.ledger(name))}
        calls = [event for event in events.values() if event.type == "tool.call"]
        assert all(events[call.parent].type in ("llm.response", "session.start") for call in calls)


# --- replay -----------------------------------------------------------------------------------------------------------


def test_replay_needs_nothing_but_the_file(place: Place, greeting: str, tmp_path: Path):
    alone = Place(tmp_path)
    shutil.copyfile(place.ledger(greeting), tmp_path / "e.jsonl")
    told = [where.here("replay", name, status=0).out for where, name in ((alone, "./e.jsonl"), (place, greeting))]
    assert told[0].splitlines()[1:] == told[1].splitlines()[1:]
    states = [where.here("replay", name, "--json").json for where, name in ((alone, "./e.jsonl"), (place, greeting))]
    assert "decisions not checked" in states[0].pop("verdict")  # the charter is not beside the file
    assert states[1].pop("verdict").startswith("unwitnessed: ")
    assert states[0] == states[1]
    assert [path.name for path in tmp_path.iterdir()] == ["e.jsonl"]


def test_replay_tells_the_same_each_time(place: Place, greeting: str):
    assert place.here("replay", greeting).out == place.here("replay", greeting).out


def test_sneaky_change_of_a_message_is_told_at_once(place: Place, copy: Path):
    raw = copy.read_bytes()
    copy.write_bytes(raw.replace(b'{"text":"Say hello to Ada"}', b'{"text":"HACKED"}', 1))
    ran = place.here("verify", str(copy), status=4)
    number = next(n for n, line in enumerate(copy.read_bytes().splitlines(), 1) if b"HACKED" in line)
    expected = sha256(b'{"text":"HACKED"}').hexdigest()
    assert f"line {number}: payload_hash: expected {expected}, found " in ran.out
    assert "user: HACKED" in place.here("replay", str(copy), status=4).out, "a replay shows what stands there"


def test_sneaky_change_with_its_hash_made_right_is_told_by_the_chain(place: Place, copy: Path):
    old, new = b'{"text":"Say hello to Ada"}', b'{"text":"HACKED"}'
    hashes = [sha256(text).hexdigest().encode() for text in (old, new)]
    lines = copy.read_bytes().splitlines(keepends=True)
    changed = [line.replace(old, new).replace(*hashes) if b'"user.message"' in line else line for line in lines]
    copy.write_bytes(b"".join(changed))
    ran = place.here("verify", str(copy), status=4)
    assert "envelope_hash: expected" in ran.out
    assert "payload_hash" not in ran.out


def test_change_with_all_hashes_of_the_line_made_right_is_told_on_the_next_line(place: Place, copy: Path):
    lines = copy.read_bytes().splitlines(keepends=True)
    index = next(n for n, line in enumerate(lines) if b'"user.message"' in line)
    changed = lines[index].replace(b"Say hello to Ada", b"Say hello to Eve")
    forged = forge([*lines[:index], changed, *lines[index + 1 :]])
    copy.write_bytes(b"".join([*lines[:index], forged[index], *lines[index + 1 :]]))
    assert f"line {index + 2}: prev_envelope_hash: expected " in place.here("verify", str(copy), status=4).out


def test_file_that_was_written_anew_as_a_whole_is_why_verify_says_unwitnessed(place: Place, copy: Path):
    lines = [
        line.replace(b"Say hello to Ada", b"Say hello to Eve") for line in copy.read_bytes().splitlines(keepends=True)
    ]
    copy.write_bytes(b"".join(forge(lines)))
    ran = place.here("verify", str(copy), status=0)
    assert ran.out.startswith("unwitnessed: ")
    own = [json.loads(line) for line in (place.path / ".deedbook/workspace/.events.jsonl").read_bytes().splitlines()]
    heads = {line["payload"]["head"] for line in own if line["event_type"] == "ledger.session"}
    assert verify_file(copy, schemas=SCHEMAS).head not in heads, "the workspace ledger holds the true head"


# --- the seed's own form ----------------------------------------------------------------------------------------------


def test_export_of_every_session_is_accepted_by_a_strict_replay(place: Place, tmp_path: Path):
    for name in place.sessions():
        exported = place.here("export", name, "--as", "seed-002", status=0).out
        assert strict_replay(exported.split("\n")[:-1]) == []
        file = tmp_path / f"{name}.jsonl"
        file.write_text(exported, encoding="utf-8")
        assert place.here("verify", str(file), status=0).out.endswith("sound\n")


def test_export_has_the_seven_fields_and_keeps_causality_in_the_payload(place: Place, greeting: str):
    rows = [json.loads(line) for line in place.here("export", greeting, "--as", "seed-002").out.splitlines()]
    assert len(rows) == len(place.events(greeting))
    for row in rows:
        assert set(row) == {
            "schema_version", "event_type", "session_id", "trace_id", "ts", "payload", "payload_hash",
        }  # fmt: skip
        assert row["schema_version"] == "1.0"
        assert {"_actor", "_span_id", "_source"} <= set(row["payload"])
    (reply,) = (row["payload"] for row in rows if row["event_type"] == "agent.reply")
    assert [call["tool_name"] for call in reply["tool_calls"]] == ["echo"]


def test_tampered_export_is_refused_by_the_strict_replay_and_by_verify(place: Place, greeting: str, tmp_path: Path):
    exported = place.here("export", greeting, "--as", "seed-002").out
    hacked = exported.replace("Say hello to Ada", "HACKED", 1)
    assert strict_replay(hacked.split("\n")[:-1])
    file = tmp_path / "hacked.jsonl"
    file.write_text(hacked, encoding="utf-8")
    assert "payload_hash: expected" in place.here("verify", str(file), status=4).out


def test_old_ledgers_are_read_verified_and_told(place: Place):
    folder = Path(os.environ.get("DEEDBOOK_VECTORS") or Path(__file__).parents[2] / "shared/vectors")
    old = folder / "envelope_v1_0.events.jsonl"
    if not old.exists():
        pytest.skip("the test vectors are not there; DEEDBOOK_VECTORS names their folder")
    assert "format 1.0" in place.here("verify", str(old), status=0).out
    assert "user: " in place.here("replay", str(old), status=0).out
    assert "orphans: 0" in place.here("tree", str(old), status=0).out
