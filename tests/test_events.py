"""The line: labels, the chain link, taking a line apart, times and spans; checked against the format's oracle."""

import json
import re
from hashlib import sha256

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from ledgers import Book

from deedbook.format import events, sealed
from deedbook.format.canonical import encode
from deedbook.format.detectors import has_card
from deedbook.format.errors import LedgerError
from deedbook.format.events import (
    Entry,
    Spans,
    first_hash,
    first_workspace_hash,
    label,
    line_prefix,
    seal_line,
    split_label,
)
from deedbook.format.families import CATALOGUE

SESSION, TRACE, SPAN = "s-1_A", "7a" * 16, "00000000000000ab"
STAMP = "2026-11-21T10:00:00.000Z"

hexes = st.text("0123456789abcdef", min_size=16, max_size=16)
principals = st.none() | st.from_regex(events.PRINCIPAL, fullmatch=True).filter(str.isascii)
actors = st.sampled_from(sorted(events.ACTORS))
types = st.sampled_from(sorted(CATALOGUE))
payloads = st.dictionaries(st.text(max_size=5), st.none() | st.integers(-5, 5) | st.text(max_size=9), max_size=4)


def a_line(payload: bytes = b'{"text":"hi"}', **changes: object) -> bytes:
    entry = Entry(label("user.message", "user", "ada"), SPAN, "00000000000000aa", payload)._replace(**changes)
    return seal_line(line_prefix(SESSION, TRACE), 7, STAMP, "c" * 64, entry)[0]


def is_sound(raw: bytes) -> bool:
    try:
        return events.split_line(raw).sound
    except LedgerError:
        return False


def test_label_says_what_happened_and_said_reads_it_back():
    made = label("tool.call", "agent", "ada@example.org")
    assert json.loads(f"{{{made[:-1]}}}") == {
        "event_type": "tool.call",
        "actor": "agent",
        "principal": "ada@example.org",
    }
    assert split_label(made) == ("tool.call", "agent", "ada@example.org")
    assert split_label(label("tool.call", "agent", None)) == ("tool.call", "agent", None)


@for_each(
    ("event_type", "actor", "principal"),
    [
        ("tool", "agent", None),
        ("Tool.call", "agent", None),
        ("tool..call", "agent", None),
        ("tool.call\n", "agent", None),
        ("a." + "b" * 63, "agent", None),
        ("tool.call", "root", None),
        ("tool.call", "agent", ""),
        ("tool.call", "agent", 'a"b'),
        ("tool.call", "agent", "a\\b"),
        ("tool.call", "agent", "ada\n"),
        ("tool.call", "agent", "é"),
        ("tool.call", "agent", "a" * 129),
    ],
)
def test_label_refuses_what_the_format_has_no_place_for(event_type, actor, principal):
    with pytest.raises(LedgerError, match="not in the format"):
        label(event_type, actor, principal)


def test_first_hashes_are_those_of_the_documented_texts():
    assert first_hash("abc") == sha256(b"deedbook-session-1.1\nabc").hexdigest()
    assert first_workspace_hash("ws-abc") == sha256(b"deedbook-workspace-1.1\nws-abc").hexdigest()


def test_seal_line_writes_what_an_independent_writer_writes():
    book = Book()
    root = book.add("session.start", {"purpose": "run"})
    book.add("tool.call", {"args": {"é": [1, None]}, "tool_name": "echo"}, parent=root, actor="agent", principal="ada")
    theirs = [json.loads(line) for line in book.lines]
    prefix, prev = line_prefix(book.session_id, book.trace_id), first_hash(book.session_id)
    for seq, line in enumerate(theirs):
        who = label(line["event_type"], line["actor"], line["principal"])
        entry = Entry(who, line["span_id"], line["parent_span_id"], encode(line["payload"]))
        ours, prev = seal_line(prefix, seq, line["ts"], prev, entry)
        assert ours.rstrip(b"\n") == book.lines[seq].rstrip(b"\n")
        assert prev == line["envelope_hash"]


def test_seal_line_takes_a_payload_hash_that_is_known_already():
    known = sha256(b'{"text":"hi"}').hexdigest()
    assert a_line(payload_hash=known) == a_line()


@given(types, actors, principals, hexes, st.none() | hexes, payloads, st.integers(0, 2**50))
def test_split_line_gives_back_what_was_sealed(event_type, actor, principal, span, parent, payload, seq):
    entry = Entry(label(event_type, actor, principal), span, parent, encode(payload))
    raw, head = seal_line(line_prefix(SESSION, TRACE), seq, STAMP, "c" * 64, entry)
    line = events.split_line(raw)
    assert line.sound
    assert events.split_line(raw[:-1]) == line
    assert (line.envelope_hash, line.payload) == (head, encode(payload))
    event = line.event
    assert (event.seq, event.type, event.actor, event.principal) == (seq, event_type, actor, principal)
    assert (event.span, event.parent, event.ts, event.payload) == (span, parent, STAMP, payload)


@given(st.data())
def test_split_line_never_calls_a_changed_line_sound(data):
    raw = bytearray(a_line(encode({"text": "hello, world", "n": [1, 2]})))
    assert is_sound(bytes(raw))
    at = data.draw(st.integers(0, len(raw) - 2))
    raw[at] ^= data.draw(st.integers(1, 255))
    assert not is_sound(bytes(raw))


@for_each(
    "change",
    [
        lambda line: line.replace(b'"1.1"', b'"1.2"'),
        lambda line: line.replace(b'"seq":7', b'"seq":07'),
        lambda line: line.replace(b'"seq":7', b'"seq": 7'),
        lambda line: line.replace(b',"principal":"ada"', b""),
        lambda line: line.replace(b'"actor":"user","principal":"ada"', b'"principal":"ada","actor":"user"'),
        lambda line: line.replace(b'"actor":"user"', b'"actor":"user","more":1'),
        lambda line: b" " + line,
        lambda line: line[:-1] + b" \n",
        lambda line: line.replace(b'"payload":{', b'"payload":[{'),
    ],
)
def test_split_line_refuses_another_template(change):
    with pytest.raises(LedgerError, match="not a line of format"):
        events.split_line(change(a_line()), place="x")


def test_line_event_reads_older_names_as_the_present_ones():
    entry = Entry(label("tool.invoke", "agent", None), SPAN, None, b"{}")
    raw, _ = seal_line(line_prefix(SESSION, TRACE), 0, STAMP, "c" * 64, entry)
    assert events.split_line(raw).event.type == "tool.call"


@pytest.mark.parametrize(
    ("types_from_last", "ended"),
    [
        (["session.end", "tool.result"], True),
        (["ledger.recovered", "payload.erased", "event.amended", "session.end"], True),
        (["ledger.recovered", "tool.call", "session.end"], False),
        (["tool.call"], False),
        ([], False),
    ],
)
def test_is_ended_looks_past_what_may_follow_the_end(types_from_last, ended):
    assert events.is_ended(iter(types_from_last)) is ended


@given(st.integers(0, 253402300799998))
def test_timestamp_is_in_the_template_and_ordered_as_time_is(milliseconds):
    stamp = events.timestamp(milliseconds / 1000 + 0.0004)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp)
    assert stamp <= events.timestamp((milliseconds + 1) / 1000 + 0.0004)


def test_timestamp_is_utc_with_milliseconds():
    assert events.timestamp(0) == "1970-01-01T00:00:00.000Z"
    assert events.timestamp(1795255445.6789) == "2026-11-21T10:04:05.678Z"


def test_spans_are_unique_and_never_all_digits():
    spans = Spans()
    made = [spans() for _ in range(5000)]
    assert len(set(made)) == 5000
    assert all(re.fullmatch("[0-9a-f]{16}", span) and not span.isdigit() for span in made)


def test_spans_are_never_a_card_number_even_if_chance_says_so(monkeypatch):
    bytes_of_digits, bytes_of_letters = b"\x12" * 8, b"\xab" * 8
    rolls = iter([bytes_of_digits * 256, (bytes_of_digits + bytes_of_letters) * 128])
    monkeypatch.setattr(events.os, "urandom", lambda _: next(rolls))
    assert Spans()() == "ab" * 8


def test_new_ids_fit_the_format_and_differ():
    made = {events.new_id() for _ in range(100)}
    assert len(made) == 100
    assert all(events.SESSION_ID.fullmatch(name) and len(name) == 32 for name in made)


def test_new_ids_are_no_card_number_whatever_stands_before_them():
    """A detector seals a card number, and a sealed id leads nowhere."""
    assert not [name for _ in range(10_000) if has_card(f"m-{(name := events.new_id())}")]


def test_catalogue_names_are_event_types_and_name_their_schemas():
    for name, schema in CATALOGUE.items():
        assert events.EVENT_TYPE.fullmatch(name)
        assert schema == f"event_{name.replace('.', '_')}_v1"


def test_payload_limit_is_the_sealers():
    assert events.MAX_PAYLOAD == sealed.MAX_INLINE
