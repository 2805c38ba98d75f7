"""A session's ledger: appending, the chain, opening again, sealing, subscribers."""

import os
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from writing import NAME, SESSION, TRACE, Clock, again, begin, checked, code, note, types

from deedbook.format import canonical
from deedbook.format.canonical import decode, encode
from deedbook.format.errors import IntakeError, LedgerError
from deedbook.format.events import BARE, Entry, label
from deedbook.format.files import Folder
from deedbook.format.reader import read
from deedbook.format.sealed import Rules, Sealer, open_value, open_values
from deedbook.ledger.ledger import Ledger

# --- appending --------------------------------------------------------------------------------------------------------


def test_append_writes_lines_that_an_independent_check_accepts(tmp_path):
    with_payload = {"text": "é\u2028\n", "n": [1, None, 1.5], "o": {}}
    ledger = begin(tmp_path)
    for i in range(50):
        ledger.append([note(ledger, f"{i}"), note(ledger)])
    ledger.append([Entry(label("user.message", "user", None), ledger.span(), ledger.root, encode(with_payload))])
    ledger.close()
    lines = checked(tmp_path)
    assert len(lines) == 102
    assert lines[-1]["payload"] == with_payload
    assert {(line["session_id"], line["trace_id"]) for line in lines} == {(SESSION, TRACE)}


def test_append_returns_the_seq_of_the_last_entry(tmp_path):
    ledger = Ledger.create(Folder.at(tmp_path), SESSION, TRACE)
    assert ledger.append([]) == -1
    assert ledger.append([Entry(label("session.start", "runtime", None), ledger.span(), None, b"{}")]) == 0
    assert ledger.append([note(ledger), note(ledger), note(ledger)]) == 3
    assert ledger.append([]) == 3
    assert ledger.append([note(ledger)]) == 4
    ledger.close()
    assert len(checked(tmp_path)) == 5


def test_append_of_several_entries_is_one_write(tmp_path, monkeypatch):
    ledger = begin(tmp_path, durability="os")
    written = []
    write = os.write
    monkeypatch.setattr(
        "deedbook.ledger.journal.os.write", lambda fd, data: written.append(write(fd, data)) or written[-1]
    )
    ledger.append([note(ledger), note(ledger), note(ledger)])
    monkeypatch.undo()
    ledger.close()
    assert len(written) == 1
    assert len(checked(tmp_path)) == 4


def test_append_gives_all_entries_one_time(tmp_path):
    ledger = begin(tmp_path, clock=Clock())
    ledger.append([note(ledger), note(ledger)], ts="2026-11-21T10:00:00.123Z")
    ledger.append([note(ledger)])
    ledger.close()
    assert [line["ts"] for line in checked(tmp_path)] == [
        "2023-11-14T22:13:20.000Z",
        "2026-11-21T10:00:00.123Z",
        "2026-11-21T10:00:00.123Z",
        "2023-11-14T22:13:20.000Z",
    ]


def test_payload_bytes_reach_the_file_as_they_are(tmp_path):
    ledger = begin(tmp_path)
    payload = encode({"text": "\x00\x1f\x7f\u2028\ufeff𝄞", "n": 1e21})
    ledger.append([Entry(label("user.message", "user", None), ledger.span(), ledger.root, payload)])
    ledger.close()
    assert b',"payload":' + payload + b"}\n" in (tmp_path / NAME).read_bytes()
    assert checked(tmp_path)[1]["payload"] == decode(payload)


def test_ledger_knows_where_it_stands(tmp_path):
    ledger = begin(tmp_path)
    ledger.append([note(ledger)])
    lines = checked(tmp_path)
    assert (ledger.session_id, ledger.trace_id, ledger.root) == (SESSION, TRACE, lines[0]["span_id"])
    assert (ledger.size, ledger.head) == (2, lines[-1]["envelope_hash"])
    ledger.close()


@pytest.mark.parametrize(
    ("parent", "seq"), [(None, 1), ("00000000000000ab", 0)], ids=["a second root", "a first event with a parent"]
)
def test_append_refuses_what_is_no_tree(tmp_path, parent, seq):
    ledger = begin(tmp_path) if seq else Ledger.create(Folder.at(tmp_path), SESSION, TRACE)
    with pytest.raises(LedgerError, match="no other, has no parent"):
        ledger.append([Entry(label("user.message", "user", None), ledger.span(), parent, b"{}")])
    assert ledger.size == seq
    ledger.close()


def test_append_refuses_what_may_not_follow_the_end(tmp_path):
    ledger = begin(tmp_path)
    ledger.append([note(ledger, event_type="session.end")])
    with pytest.raises(LedgerError) as caught:
        ledger.append([note(ledger)])
    assert code(caught) == "SESSION_ENDED"
    ledger.append([note(ledger, event_type="event.amended"), note(ledger, event_type="payload.erased")])
    ledger.close()
    with pytest.raises(LedgerError) as caught:
        (reopened := again(tmp_path)).append([note(reopened)])
    assert code(caught) == "SESSION_ENDED"
    reopened.append([note(reopened, event_type="ledger.recovered")])
    reopened.close()
    assert types(checked(tmp_path)) == [
        "session.start",
        "session.end",
        "event.amended",
        "payload.erased",
        "ledger.recovered",
    ]


def test_append_refuses_a_batch_that_goes_on_after_the_end_and_writes_none_of_it(tmp_path):
    ledger = begin(tmp_path)
    with pytest.raises(LedgerError) as caught:
        ledger.append([note(ledger, event_type="session.end"), note(ledger)])
    assert code(caught) == "SESSION_ENDED"
    ledger.append([note(ledger)])
    ledger.close()
    assert types(checked(tmp_path)) == ["session.start", "user.message"]


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(st.lists(st.text(max_size=4), max_size=3), max_size=6), st.data())
def test_chain_is_one_however_often_the_ledger_is_closed_between(tmp_path_factory, batches, data):
    place = tmp_path_factory.mktemp("ledger")
    ledger = begin(place, durability="os")
    for batch in batches:
        if data.draw(st.booleans()):
            ledger.close()
            ledger = again(place, durability="os")
        ledger.append([note(ledger, text) for text in batch])
    ledger.close()
    assert [line["payload"].get("text") for line in checked(place)] == [
        None,
        *(text for batch in batches for text in batch),
    ]


# --- creating and opening again ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session_id", "trace_id"),
    [
        ("../x", TRACE),
        ("", TRACE),
        ("a\n", TRACE),
        ("a/b", TRACE),
        ("\u202ea", TRACE),
        ("a" * 129, TRACE),
        (SESSION, "x"),
    ],
)
def test_create_refuses_ids_that_are_not_in_the_format(tmp_path, session_id, trace_id):
    with pytest.raises(LedgerError, match="not in the format"):
        Ledger.create(Folder.at(tmp_path), session_id, trace_id)
    assert not (tmp_path / NAME).exists()


def test_create_refuses_a_folder_that_has_a_ledger(tmp_path):
    begin(tmp_path).close()
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(LedgerError, match="there is a ledger already"):
        begin(tmp_path)
    assert (tmp_path / NAME).read_bytes() == before


def test_create_makes_a_file_for_its_owner_only(tmp_path):
    begin(tmp_path).close()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_reopen_goes_on_where_the_ledger_stands(tmp_path):
    first = begin(tmp_path)
    first.append([note(first)])
    first.close()
    second = again(tmp_path)
    assert (second.session_id, second.trace_id, second.root) == (SESSION, TRACE, first.root)
    assert (second.size, second.head) == (first.size, first.head)
    second.append([note(second)], durable=True)
    second.close()
    assert types(checked(tmp_path)) == ["session.start", "user.message", "user.message"]


def test_reopen_reads_a_first_line_of_any_length(tmp_path):
    ledger = Ledger.create(Folder.at(tmp_path), SESSION, TRACE)
    root = Entry(label("session.start", "runtime", None), ledger.span(), None, encode({"text": "x" * 900_000}))
    ledger.append([root])
    ledger.close()
    ledger = again(tmp_path)
    assert ledger.root == root.span
    ledger.append([note(ledger)])
    ledger.close()
    assert len(checked(tmp_path)) == 2


def test_reopen_takes_a_time_that_never_was_for_no_time(tmp_path):
    ledger = begin(tmp_path)
    ledger.append([note(ledger)], ts="2026-02-31T10:00:00.000Z")
    ledger.close()
    ledger = again(tmp_path)
    ledger.append([note(ledger)])
    ledger.close()
    assert types(checked(tmp_path)) == ["session.start", "user.message", "user.message"]


@pytest.mark.parametrize("content", [None, b"", b'{"schema_version":"1.1","sess'])
def test_reopen_says_that_there_is_no_session_where_nothing_was_recorded(tmp_path, content):
    if content is not None:
        (tmp_path / NAME).write_bytes(content)
    with pytest.raises(LedgerError) as caught:
        again(tmp_path)
    assert code(caught) == "SESSION_NOT_FOUND"
    assert content is None or (tmp_path / NAME).read_bytes() == content


@pytest.mark.parametrize("size", [100, 5000])
def test_reopen_reads_as_little_of_a_long_ledger_as_of_a_short_one(tmp_path, monkeypatch, size):
    ledger = begin(tmp_path, durability="os")
    for _ in range(size // 50):
        ledger.append([note(ledger, "x" * 200) for _ in range(50)])
    ledger.close()
    counted = []
    pread = os.pread
    monkeypatch.setattr("deedbook.ledger.journal.os.pread", lambda *at: counted.append(len(raw := pread(*at))) or raw)
    again(tmp_path).close()
    assert 0 < sum(counted) < 200_000


def test_close_gives_the_lock_back_and_ends_writing(tmp_path):
    ledger = begin(tmp_path)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError) as caught:
        ledger.append([note(ledger)])
    assert code(caught) == "LEDGER_BROKEN"
    again(tmp_path).close()


# --- sealing ----------------------------------------------------------------------------------------------------------


def test_sealed_values_lie_beside_the_ledger_and_open_again(tmp_path):
    sealer = Sealer(Rules.parse(["user.message/text"]), {"gh": "s3cr3t-value"})
    ledger = begin(tmp_path, sealer=sealer)
    ledger.append([note(ledger, "with s3cr3t-value inside"), note(ledger, "second")], durable=True)
    ledger.close()
    _, first, second = checked(tmp_path)
    assert b"second" not in (tmp_path / NAME).read_bytes()
    with Folder.at(tmp_path) as folder:
        assert open_value(folder, first["payload"]["text"]) == "with [secret:gh] inside"
        assert open_values(folder, second["payload"]) == {"text": "second"}
    assert {entry.name for entry in (tmp_path / "sealed").iterdir()} == {
        line["payload"]["text"]["$sealed"] for line in (first, second)
    }


def test_sealed_payloads_are_hashed_as_they_are_stored(tmp_path):
    ledger = begin(tmp_path, sealer=Sealer(Rules.parse(["user.message/text"])))
    known = canonical.digest(encode({"text": "hi"}))
    ledger.append([note(ledger)._replace(payload_hash=known)])
    ledger.close()
    assert checked(tmp_path)[1]["payload_hash"] != known


def test_payload_over_a_mebibyte_is_sealed_without_any_rule(tmp_path):
    ledger = begin(tmp_path)
    ledger.append([note(ledger, "x" * 2_000_000)])
    ledger.close()
    (_, line) = checked(tmp_path)
    assert (tmp_path / NAME).stat().st_size < 2000
    with Folder.at(tmp_path) as folder:
        assert open_value(folder, line["payload"]["text"]) == "x" * 2_000_000


def test_payload_of_a_hundred_megabytes_is_refused_at_intake():
    with pytest.raises(IntakeError) as caught:
        canonical.admit({"text": "x" * 100_000_000})
    assert code(caught) == "INTAKE_REFUSED"


def test_payload_that_cannot_be_sealed_small_enough_is_refused_and_nothing_kept(tmp_path):
    ledger = begin(tmp_path, sealer=Sealer(Rules.parse(["user.message/text"])))
    with pytest.raises(IntakeError):
        ledger.append([note(ledger), note(ledger, "x" * canonical.MAX_BYTES)])
    ledger.append([note(ledger)])
    ledger.close()
    assert len(checked(tmp_path)) == 2
    assert len(list((tmp_path / "sealed").iterdir())) == 1


# --- subscribers ------------------------------------------------------------------------------------------------------


def test_subscribers_hear_what_a_reader_reads(tmp_path):
    heard = []
    ledger = begin(tmp_path, sealer=Sealer(Rules.parse(["*/text"])), clock=Clock())
    ledger.subscribe(heard.append)
    ledger.append([note(ledger, "a"), note(ledger, "b")], ts="2026-11-21T10:00:00.000Z")
    ledger.append([note(ledger, event_type="session.end")])
    ledger.close()
    assert heard == list(read(tmp_path))[1:]
    assert [event.seq for event in heard] == [1, 2, 3]


def test_subscribers_that_fail_break_the_ledger(tmp_path):
    def fail(_event):
        raise ZeroDivisionError("no")

    ledger = begin(tmp_path)
    ledger.subscribe(fail)
    for _ in range(2):
        with pytest.raises(LedgerError, match="live state differs from the ledger") as caught:
            ledger.append([note(ledger)])
        assert code(caught) == "LEDGER_BROKEN"
    ledger.close()
    assert len(checked(tmp_path)) == 2


def test_payloads_are_not_parsed_when_nobody_listens(tmp_path, monkeypatch):
    ledger = begin(tmp_path)
    monkeypatch.setattr("deedbook.ledger.chain.decode", None)
    ledger.append([note(ledger)])
    ledger.subscribe(lambda event: None)
    with pytest.raises(LedgerError):
        ledger.append([note(ledger)])
    ledger.close()


@pytest.mark.parametrize("event_type", sorted(BARE))
def test_what_a_log_consists_of_is_recorded_as_it_is_whatever_is_to_be_sealed_or_scrubbed(tmp_path, event_type):
    rules = Rules.parse(["*/head", "ledger.*/size", {"detect": "card"}, {"pattern": "[0-9a-f]+"}])
    payload = encode({"head": "4111111111111111" * 4, "name": "4111 1111 1111 1111", "size": 4111111111111111})
    with closing(begin(tmp_path, sealer=Sealer(rules, {"short": "11"}))) as ledger:
        ledger.append([Entry(label(event_type, "runtime", None), ledger.span(), ledger.root, payload)])
    assert encode(checked(tmp_path)[1]["payload"]) == payload
    assert not (tmp_path / "sealed").exists()
