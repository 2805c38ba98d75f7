"""Older forms of events: each is brought to the present one by a chain of pure functions, and read like any other."""

import json

import attrs
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Event
from deedbook.format.errors import LedgerError
from deedbook.format.folds import SnapshotFold, fold
from deedbook_audit.upcasting.envelope_1_0 import moment
from deedbook_audit.upcasting.naming import split_source
from deedbook_audit.upcasting.reader import read
from deedbook_audit.upcasting.recognition import form_of, known_form
from deedbook_audit.upcasting.table import UPCASTERS, Upcasters, version
from deedbook_inspect.event_tree import TreeFold


def event_000(kind, payload, identity="1", actor="system", **changes):
    """Return a line as seed 000's store writes it: Python's own spelling, the keys in the order of its class."""
    row = {"id": identity, "session_id": "sess_01", "ts": 1700000000.25, "type": kind, "actor": actor}
    row |= {"payload": payload, "schema_version": "v1", "parent_id": None}
    return json.dumps(row | changes, ensure_ascii=False).encode() + b"\n"


def told(raw, form="seed-000", seq=0):
    return UPCASTERS.event(raw, form, seq, "x:1")


def test_event_of_seed_000_goes_through_the_envelope_after_it():
    session, call = told(event_000("tool.invoke", {"name": "echo", "args": {"a": 1}}, actor="worker", parent_id="0"))
    assert session == "sess_01"
    assert call == Event(0, "tool.call", "agent", "agent:worker", "1", "0", "2023-11-14T22:13:20.250Z",
                         {"tool_name": "echo", "args": {"a": 1}})  # fmt: skip


@pytest.mark.parametrize(("kind", "payload", "expected"), [
    ("tool.result", {"name": "echo", "result": 1}, ("tool.result", {"tool_name": "echo", "result": 1})),
    ("llm.response", {"usage": {"input_tokens": 3}}, ("llm.response", {
        "ability": "model/planner", "response": {"usage": {"input_tokens": 3}}})),
    ("session.close", {"ok": True}, ("session.end", {"ok": True})),
    ("hook.fired", {"hook": "Stop", "decision": "deny"}, ("hook.fired", {"event": "Stop", "decision": "deny"})),
    ("skill.invoke", {"name": "greet"}, ("skill.invoke", {"skill": "greet"})),
    ("tool.invoke", {"name": "a", "tool_name": "b"}, ("tool.call", {"name": "a", "tool_name": "b"})),
    ("odd.thing", [1, 2], ("odd.thing", {"value": [1, 2]})),
])  # fmt: skip
def test_payload_of_seed_000_is_said_as_it_is_now(kind, payload, expected):
    _, event = told(event_000(kind, payload, actor="planner"))
    assert (event.type, event.payload) == expected


@given(st.sampled_from([0, 1.5, 1e9, -1.0, "2025-01-01T00:00:00+02:00", "2025-01-01"]))
def test_times_of_seed_000_become_times_of_the_envelope(ts):
    assert moment(ts).endswith("Z")
    assert len(moment(ts)) == 24


@pytest.mark.parametrize("ts", [float("nan"), float("inf"), "noon", None, True, 1e300, []])
def test_what_is_no_time_is_none(ts):
    assert moment(ts) is None


def test_bare_line_of_envelope_1_0_hangs_under_nothing_and_has_a_name():
    row = {"event_type": "note", "session_id": "s", "ts": "t", "payload": {}, "trace_id": "t", "payload_hash": ""}
    _, event = told(json.dumps({**row, "schema_version": "1.0"}).encode(), "1.0", 4)
    assert (event.span, event.parent, event.actor) == ("line-5", None, "runtime")


@for_each("raw", [b"{}", b"[]", b"1", b"{", b'{"id":1}', b'{"payload":{},"event_type":"x"}', b"\xff"])
@for_each("form", ["1.0", "seed-000"])
def test_what_is_no_line_of_its_form_is_an_unsound_ledger(raw, form):
    with pytest.raises(LedgerError, match="not a line of") as caught:
        told(raw, form)
    assert caught.value.error.code == "LEDGER_UNSOUND"


@for_each(("first", "form"), [
    (b'{"schema_version":"1.1","session_id":"a"', "1.1"),
    (b'{"event_type":"x","payload_hash":""}', "1.0"),
    (b'{"event_type" torn', "1.1"),
    (b'{"event_type":torn', "1.0"),
    (b'{"payload_hash":"","event_type":""}', "1.0"),
    (b'{"id": "1", "session_id": "s", "type": "x", "payload": {}}', "seed-000"),
    (b'{"id": torn', "seed-000"),
    (b'{"type":"x","id":"1","session_id":"s","payload":1}', "seed-000"),
    (b'{"ts": 1.5, "event_type": "x", "session_id": null, "payload": {}}', "seed-002-unhashed"),
    (b'{"event_type":"x","ts":"2025-12-22T01:44:28.600000Z","payload":{}}', "seed-002-unhashed"),
    (b'{"ts": 1766000000.1, "event_ty', "seed-002-unhashed"),
    (b"", "1.1"), (b"garbage", "1.1"), (b"[]", "1.1"), (b"\xff", "1.1"), (b"[" * 10_000, "1.1"),
])  # fmt: skip
def test_form_of_a_file_is_told_by_its_first_line(first, form):
    assert form_of(first) == form


@pytest.mark.parametrize("first", [
    b"", b"\n", b"# Notes\n", b"{\n", b"[]\n", b"\x89PNG\r\n", b'{"specversion":"1.0","id":"s:1","type":"x"}\n',
    b'{"id":"1","type":"PushEvent","actor":{},"repo":{},"payload":{},"public":true,"created_at":"x"}\n',
    b'{"event_type":"tool.call","run_id":"run_1","timestamp":"x","layer":"tool","payload":{}}\n',
    b'{"actor":{},"event_type":"x","payload":{},"payload_hash":"","schema_version":"1.1","session_id":"s"}\n',
    b'{"schema_version":"v1","name":"x"}\n', b'{"ts":1,"event_type":"x","payload":{},"level":"info"}\n',
])  # fmt: skip
def test_line_of_another_format_has_no_form(first):
    assert known_form(first) is None


# --- payloads of later versions ---------------------------------------------------------------------------------------


def in_v2(event):
    said = {**event.payload, "schema_version": "v2", "words": event.payload["text"].split()}
    return attrs.evolve(event, payload={key: item for key, item in said.items() if key != "text"})


def in_v3(event):
    return attrs.evolve(event, payload={**event.payload, "schema_version": "v3", "count": len(event.payload["words"])})


LATER = Upcasters(UPCASTERS.forms, {**UPCASTERS.payloads, "user.message": {"v1": in_v2, "v2": in_v3}})


def message(**payload):
    return Event(1, "user.message", "user", None, "a", None, "t", payload)


def test_payload_is_brought_from_version_to_version_up_to_the_present():
    assert LATER.present(message(text="a b")).payload == {"schema_version": "v3", "words": ["a", "b"], "count": 2}
    assert LATER.present(message(schema_version="v2", words=["a"])).payload["count"] == 1
    assert LATER.present(message(schema_version="v3", words=[], count=0)) == message(
        schema_version="v3", words=[], count=0
    )


def test_version_is_v1_unless_the_payload_says_another():
    assert [version(message(schema_version=said)) for said in ("v2", "v10", "v0", "2", 2, None)] == [
        "v2", "v10", "v1", "v1", "v1", "v1",
    ]  # fmt: skip


def test_older_names_are_steps_of_the_same_chain():
    old = attrs.evolve(message(ok=True), type="session.close")
    assert UPCASTERS.present(old).type == "session.end"
    assert UPCASTERS.present(message(text="x")) == message(text="x")


# --- files ------------------------------------------------------------------------------------------------------------


def run_000():
    return [
        event_000("session.start", {"prompt": "say hello"}, "1", "user"),
        event_000("agent.transition", {"to": "worker"}, "2", "worker"),
        event_000("tool.invoke", {"name": "echo", "args": {"text": "hello"}}, "3", "worker"),
        event_000("tool.result", {"name": "echo", "result": {"text": "hello"}}, "4", "tool", parent_id="3"),
        event_000("llm.response", {"text": "", "usage": {"input_tokens": 3, "output_tokens": 4}}, "5", "worker"),
        event_000("worker.report", {"output": "hello"}, "6", "worker"),
        event_000("session.close", {"ok": True}, "7", "system"),
    ]


def test_file_of_seed_000_has_its_own_replay_snapshot(tmp_path):
    (tmp_path / ".events.jsonl").write_bytes(b"".join(run_000()))
    came = fold(SnapshotFold(), read(tmp_path))
    assert (came.closed, came.output, came.ok, came.prompt) == (True, "hello", True, "say hello")
    assert came.cost == {"input": 3, "output": 4}
    assert came.tools_invoked == [{"tool_name": "echo", "args": {"text": "hello"}}]
    assert came.agents == {"agent": "worker"}
    assert (came.calls, came.unknown) == ({"echo": 1}, 0)
    tree = fold(TreeFold(), read(tmp_path))
    assert (len(tree.nodes), len(tree.roots), tree.orphans) == (7, 6, [])


def row_1_0(session, span, parent=None, kind="session.start"):
    payload = {"_span_id": span, **({"_parent_span_id": parent} if parent else {})}
    row = {"event_type": kind, "payload": payload, "payload_hash": "", "schema_version": "1.0", "session_id": session}
    return json.dumps({**row, "trace_id": "t", "ts": "2025-12-18T02:28:10.544Z"}).encode() + b"\n"


@pytest.fixture
def mixed(tmp_path):
    place = tmp_path / "events.jsonl"
    lines = [row_1_0("p", "a"), row_1_0("q", "x"), row_1_0("p", "b", "a", "session.end")]
    place.write_bytes(b"".join(lines))
    return place


def test_one_of_several_sessions_of_a_file_is_named_behind_a_hash_sign(mixed):
    assert [(each.seq, each.span) for each in read(f"{mixed}#p")] == [(0, "a"), (1, "b")]
    assert [each.span for each in read(f"{mixed}#q")] == ["x"]
    with pytest.raises(LedgerError, match="no session 'r'"):
        list(read(f"{mixed}#r"))


def test_several_sessions_of_which_none_is_named_are_listed(mixed):
    with pytest.raises(LedgerError, match=r"it holds 2 sessions; name one: events\.jsonl#p, events\.jsonl#q") as caught:
        next(read(mixed))
    assert caught.value.error.code == "SESSION_NOT_NAMED"


def test_session_whose_name_is_too_long_for_a_file_is_named_all_the_same(tmp_path):
    place, name = tmp_path / "events.jsonl", "p" * 5000
    place.write_bytes(row_1_0(name, "a") + row_1_0("q", "x"))
    assert [each.span for each in read(f"{place}#{name}")] == ["a"]
    assert [each.span for each in read(f"{place}#q")] == ["x"]


def test_file_whose_name_has_the_sign_is_itself(tmp_path):
    place = tmp_path / "a#b"
    place.write_bytes(row_1_0("p", "a"))
    assert split_source(place) == (place, None)
    assert split_source(f"{place}#p") == (place, "p")
    assert split_source("nothing#p")[1] is None


def test_read_understands_envelope_1_0(tmp_path):
    envelope = {
        "payload_hash": "x",
        "schema_version": "1.0",
        "session_id": "p",
        "trace_id": "t",
        "ts": "2025-12-18T02:28:10.544Z",
    }
    lines = [
        {"event_type": "session.start", "payload": {"_actor": "runtime", "_span_id": "a", "m": 1}, **envelope},
        {"event_type": "tool.invoke", "payload": {"_parent_span_id": "a", "_span_id": "b", "args": {}}, **envelope},
    ]
    (tmp_path / "old.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    start, call = read(tmp_path / "old.jsonl")
    assert (start.seq, start.type, start.actor, start.span, start.parent) == (0, "session.start", "runtime", "a", None)
    assert start.payload == {"m": 1}
    assert (call.seq, call.type, call.span, call.parent, call.payload) == (1, "tool.call", "b", "a", {"args": {}})
