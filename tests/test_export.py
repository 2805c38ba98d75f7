"""export: what seed 002's own programs would read holds under their rules, restated here on their own."""

import json
from hashlib import sha256

import ledgers
import pytest
from ledgers import Book
from test_folds import events_of
from test_verify import SCHEMAS, checks

from deedbook.format.errors import LedgerError
from deedbook.format.folds import fold
from deedbook_audit.upcasting.reader import read
from deedbook_audit.verify import verify_file
from deedbook_inspect.event_tree import TreeFold
from deedbook_inspect.export import export_seed_002


def exported(book):
    return list(export_seed_002(events_of(book), session_id=book.session_id, trace_id=book.trace_id))


def spell(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def strict_replay(lines):
    """Return every fault that a strict replay of one session of envelope 1.0 has to stop at."""
    rows = sorted(map(json.loads, lines), key=lambda row: (row["ts"], row["event_type"]))
    faults = [
        f"hash of {row['event_type']}"
        for row in rows
        if sha256(spell(row["payload"]).encode()).hexdigest() != row["payload_hash"]
    ]
    nodes = {row["payload"]["_span_id"]: row for row in rows}
    parents = {span: row["payload"].get("_parent_span_id") for span, row in nodes.items()}
    roots = [span for span, parent in parents.items() if not parent]
    faults += ["a span twice"] * (len(rows) - len(nodes))
    faults += [f"orphan {span}" for span, parent in parents.items() if parent and parent not in nodes]
    faults += [] if [nodes[root]["event_type"] for root in roots] == ["session.start"] else ["roots"]
    ends = [parents[span] for span, row in nodes.items() if row["event_type"] == "session.end"]
    faults += [] if ends == roots else ["session.end"]
    return faults + circles(parents) + tool_faults(nodes, parents)


def circles(parents):
    """Return the spans from which one never comes to a root."""
    lost = []
    for span in parents:
        seen, at = set(), span
        while at in parents and at not in seen:
            seen.add(at)
            at = parents[at]
        lost += [f"circle at {span}"] if at in seen else []
    return lost


def tool_faults(nodes, parents):
    """Every call has one outcome, every outcome a call, and the replies declare as many calls as there are."""
    calls = [span for span, row in nodes.items() if row["event_type"] == "tool.call"]
    outcomes = [parents[span] for span, row in nodes.items() if row["event_type"] in ("tool.result", "tool.error")]
    declared = [
        each
        for row in nodes.values()
        if row["event_type"] == "agent.reply"
        for each in row["payload"].get("tool_calls") or []
    ]
    faults = [] if sorted(outcomes) == sorted(calls) else ["outcomes"]
    faults += [] if len(declared) == len(calls) else ["declared"]
    return faults + ([] if sorted(each["span"] for each in declared) == sorted(calls) else ["spans"])


def run_without_reply():
    book = Book("0f" * 16)
    root = ledgers.start(book)
    message = book.add("user.message", {"text": "x"}, parent=root, actor="user")
    asked = book.add("tool.call", {"args": {}, "tool_name": "echo"}, parent=message)
    book.add("tool.error", ledgers.error(tool_name="echo"), parent=asked)
    book.add("session.end", {"ok": False, "reason": "failed"}, parent=root)
    return book


def denied_call():
    book = Book("de" * 16)
    root = ledgers.start(book, "call")
    book.add("tool.denied", {"kind": "tool", "name": "rm", "code": "GATE_DENIED", "reason": "no"}, parent=root)
    book.add("session.end", {"ok": False, "reason": "denied"}, parent=root)
    return book


def two_replies():
    book = Book("22" * 16)
    root = ledgers.start(book)
    message = book.add("user.message", {"text": "x"}, parent=root, actor="user")
    listed = [{"tool_name": "x", "args": {}, "span": "1" * 16}]
    book.add("agent.reply", {"reply": "wait", "tool_calls": listed}, parent=message)
    asked = book.add("tool.call", {"args": {}, "tool_name": "echo"}, parent=message)
    book.add("tool.result", {"result": 1, "tool_name": "echo"}, parent=asked)
    book.add("agent.reply", {"reply": "done", "tool_calls": []}, parent=message)
    book.add("session.end", {"ok": True, "reason": ""}, parent=root)
    return book


SESSIONS = [ledgers.run, ledgers.call, run_without_reply, denied_call, two_replies]


@pytest.mark.parametrize("make", SESSIONS)
def test_export_holds_under_a_strict_replay(make):
    assert strict_replay(exported(make())) == []


@pytest.mark.parametrize("make", SESSIONS)
def test_export_verifies_as_envelope_1_0(tmp_path, make):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(exported(make())))
    report = verify_file(path, schemas=SCHEMAS)
    assert (checks(report), report.format, report.state) == ([], "1.0", "ended")


@pytest.mark.parametrize("make", SESSIONS)
def test_export_has_the_seven_fields_spelled_sorted_and_compact(make):
    for line in exported(make()):
        row = json.loads(line)
        assert list(row) == [
            "event_type", "payload", "payload_hash", "schema_version", "session_id", "trace_id", "ts",
        ]  # fmt: skip
        assert line == f"{spell(row)}\n".encode()
        assert (row["schema_version"], row["payload"]["_source"]) == ("1.0", "deedbook")


def test_export_holds_every_event_with_its_causes():
    book = ledgers.run()
    rows = [json.loads(line) for line in exported(book)]
    told = events_of(book)
    assert [row["event_type"] for row in rows] == [each.type for each in told]
    assert [row["payload"]["_span_id"] for row in rows] == [each.span for each in told]
    assert [row["payload"].get("_parent_span_id") for row in rows] == [each.parent for each in told]
    assert [row["payload"]["_actor"] for row in rows] == [each.actor for each in told]
    assert {(row["session_id"], row["trace_id"]) for row in rows} == {(book.session_id, book.trace_id)}


def test_export_keeps_payloads_but_for_the_calls_that_a_reply_lists():
    for row, told in zip(map(json.loads, exported(ledgers.run())), events_of(ledgers.run()), strict=True):
        kept = {key: value for key, value in row["payload"].items() if not key.startswith("_")}
        assert kept == told.payload or row["event_type"] == "agent.reply"


def test_export_lists_nested_calls_and_not_denied_ones_in_the_last_reply():
    rows = [json.loads(line) for line in exported(ledgers.run())]
    (reply,) = [row["payload"] for row in rows if row["event_type"] == "agent.reply"]
    assert [each["tool_name"] for each in reply["tool_calls"]] == ["echo", "count"]
    first, last = [json.loads(line)["payload"] for line in exported(two_replies()) if b'"agent.reply"' in line]
    assert (first["tool_calls"], [each["tool_name"] for each in last["tool_calls"]]) == ([], ["echo"])


@pytest.mark.parametrize(("make", "text"), [
    (ledgers.call, '{"text":"hi"}'),
    (run_without_reply, "TOOL_ERROR: it broke"),
    (denied_call, "GATE_DENIED: no"),
])  # fmt: skip
def test_export_makes_a_reply_where_there_is_none(make, text):
    book = make()
    rows = [json.loads(line) for line in exported(book)]
    assert [row["event_type"] for row in rows[-2:]] == ["agent.reply", "session.end"]
    reply = rows[-2]["payload"]
    assert reply["reply"] == text
    assert reply["_span_id"] == sha256(f"deedbook-export-reply\n{book.session_id}".encode()).hexdigest()[:16]
    assert reply["_parent_span_id"] == rows[0]["payload"]["_span_id"]


def test_export_makes_no_reply_for_a_run_that_called_nothing():
    book = Book()
    root = ledgers.start(book)
    book.add("session.end", {"ok": False, "reason": "prompt denied"}, parent=root)
    assert [json.loads(line)["event_type"] for line in exported(book)] == ["session.start", "session.end"]
    assert strict_replay(exported(book)) == []


def test_export_is_the_same_every_time():
    assert exported(ledgers.run()) == exported(ledgers.run())


def test_export_spells_text_and_numbers_as_python_does():
    book = Book()
    root = ledgers.start(book)
    raw = '{"data":{"\ue000":1e21,"a":1e-7,"b":0.1,"\U0001f600":"\u2028\\u001b"},"event_type":"x"}'.encode()
    book.add("context.noted", raw, parent=root)
    book.add("session.end", {"ok": True, "reason": ""}, parent=root)
    lines = exported(book)
    assert strict_replay(lines) == []
    assert b'"a":1e-07' in lines[1]
    assert b"".join(lines).count(b"\n") == len(lines)


@pytest.mark.parametrize("upto", range(1, 4))
def test_export_refuses_a_session_that_has_not_ended(upto):
    book = ledgers.call()
    del book.lines[upto:]
    with pytest.raises(LedgerError, match=r"no session\.end; only finished sessions are exported"):
        exported(book)


def test_export_refuses_a_call_without_outcome():
    book = Book()
    root = ledgers.start(book)
    book.add("tool.call", {"args": {}, "tool_name": "x"}, parent=root)
    book.add("session.end", {"ok": True, "reason": ""}, parent=root)
    with pytest.raises(LedgerError, match="seq 1 has no outcome"):
        exported(book)


def test_export_reads_back_as_the_events_it_was_made_of(tmp_path):
    book = ledgers.run()
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(exported(book)))
    back = list(read(path))
    tree = fold(TreeFold(), back)
    assert ([root.type for root in tree.roots], tree.orphans) == (["session.start"], [])
    assert [(each.type, each.span, each.parent) for each in back] == [
        (each.type, each.span, each.parent) for each in events_of(book)
    ]


def test_strict_replay_of_these_tests_finds_what_is_wrong():
    lines = exported(ledgers.run())
    assert strict_replay(lines[1:]) != []
    assert strict_replay(lines[:-2]) == ["session.end"]
    assert strict_replay([line.replace(b'"text":"Gr', b'"text":"gr') for line in lines]) == ["hash of user.message"]
    assert "outcomes" in strict_replay([line for line in lines if b'"tool.error"' not in line])
    assert "declared" in strict_replay([line for line in lines if b'"agent.reply"' not in line])
