"""Payloads that were taken out of their lines: accepted where a later line says so, and nowhere else."""

import json
import re

import ledgers
import pytest
from ledgers import Book, forge
from test_task_lives import changed
from test_verify import SCHEMAS

from deedbook_audit.memory_sources import compare_memory_sources
from deedbook_audit.verification.agreement import compare_tasks
from deedbook_audit.verify import verify_file


def verified(book, tmp_path, level="full"):
    return verify_file(book.write(tmp_path), schemas=SCHEMAS, level=level)


def failed(report):
    return [(each.line, each.check) for each in (*report.bytes.failures, *report.structure.failures)]


@pytest.mark.parametrize("level", ["chain", "hashes", "full"])
def test_excised_payload_that_a_later_line_names_is_accepted(tmp_path, level):
    report = verified(ledgers.corrected(), tmp_path, level)
    assert (failed(report), report.events) == ([], 7)
    if level == "full":
        assert "payloads taken out of their lines: 1, of events 2" in report.notes


@pytest.mark.parametrize("level", ["hashes", "full"])
def test_excised_payload_that_no_line_names_is_a_failure(tmp_path, level):
    book = ledgers.call()
    ledgers.excise(book, 2, "", named=False)
    report = verified(book, tmp_path, level)
    assert failed(report) == [(3, "excised")]
    assert "a later ledger.excised of event 2" in report.bytes.failures[0].expected


def broken(change):
    """Return the corrected book with *change* made to its bytes."""
    book = ledgers.corrected()
    change(book)
    return book


BREAKS = {
    "another hash in its place": lambda book: swap(book, 2, b'{"$excised":"' + b"0" * 64 + b'"}'),
    "one member more": lambda book: swap(book, 2, excised(book, 2)[:-1] + b',"x":1}'),
    "a space": lambda book: swap(book, 2, excised(book, 2).replace(b":", b": ")),
    "another event": lambda book: swap(book, 1, excised(book, 1)),
    "the first line": lambda book: swap(book, 0, excised(book, 0)),
    "the line that names it": lambda book: swap(book, 6, excised(book, 6)),
    "its header changed": lambda book: replaced(book, 2, b'"actor":"tool"', b'"actor":"user"'),
}


def excised(book, seq):
    return b'{"$excised":"' + json.loads(book.lines[seq])["payload_hash"].encode() + b'"}'


def swap(book, seq, payload):
    header, mark, _ = book.lines[seq].partition(b',"payload":')
    book.lines[seq] = header + mark + payload + b"}\n"


def replaced(book, seq, old, new):
    assert old in book.lines[seq]
    book.lines[seq] = book.lines[seq].replace(old, new)


@pytest.mark.parametrize("level", ["hashes", "full"])
@pytest.mark.parametrize("name", BREAKS)
def test_anything_else_in_the_place_of_a_payload_is_a_failure(tmp_path, name, level):
    assert failed(verified(broken(BREAKS[name]), tmp_path, level))


def named(book, **changed):
    """Excise event 1 of *book* under a line that names it a little differently."""
    root = json.loads(book.lines[0])["span_id"]
    told = {"seq": 1, "payload_hash": json.loads(book.lines[1])["payload_hash"], "size": 1, "reason": "x", "by": "x"}
    book.add("ledger.excised", {**told, **changed}, parent=root)
    swap(book, 1, excised(book, 1))


@pytest.mark.parametrize("changed", [{"seq": 2}, {"seq": 0}, {"payload_hash": "0" * 64}, {"seq": -1}, {"seq": "1"}])
def test_line_that_names_another_event_or_hash_excises_nothing(tmp_path, changed):
    book = ledgers.call()
    named(book, **changed)
    assert (2, "excised") in failed(verified(book, tmp_path))


def test_excision_cannot_be_named_before_it_was_written(tmp_path):
    book = Book()
    root = ledgers.start(book, "call")
    later = Book()
    ledgers.start(later, "call")
    later.add("user.message", {"text": "secret"}, parent=root, span_id="00000000000000aa")
    told = {"seq": 2, "payload_hash": json.loads(later.lines[1])["payload_hash"], "size": 17, "reason": "", "by": "x"}
    book.add("ledger.excised", told, parent=root)
    book.add("user.message", {"text": "secret"}, parent=root)
    swap(book, 2, excised(book, 2))
    assert failed(verified(book, tmp_path)) == [(3, "excised")]


@pytest.mark.parametrize("kind", ["session.end", "system.clock_regressed", "ledger.recovered"])
def test_families_that_ledgers_stand_on_are_never_excised(tmp_path, kind):
    book = ledgers.run()
    seq = next(n for n, line in enumerate(book.lines) if f'"event_type":"{kind}"'.encode() in line)
    ledgers.excise(book, seq, json.loads(book.lines[0])["span_id"])
    assert (seq + 1, "payload_hash") in failed(verified(book, tmp_path))


def test_excision_without_its_end_is_remarked(tmp_path):
    book = ledgers.corrected()
    whole = ledgers.call()
    told = {"seq": 1, "payload_hash": json.loads(whole.lines[1])["payload_hash"], "size": 1, "reason": "x", "by": "x"}
    whole.add("ledger.excised", told, parent=json.loads(whole.lines[0])["span_id"])
    report = verified(whole, tmp_path)
    assert report.sound
    assert "excision not finished: the payloads of 1 events still stand, 1" in report.notes
    assert not any("not finished" in note for note in verified(book, tmp_path).notes)


def test_erased_value_that_is_still_there_is_remarked(tmp_path):
    book, value = ledgers.call(), b"\1" * 32 + b'"secret"'
    found = ledgers.digest(value)
    (tmp_path / "sealed").mkdir()
    (tmp_path / "sealed" / found).write_bytes(value)
    says = {"reason": "asked", "by": "local", "digests": [found], "seq": 1}
    book.add("payload.erased", says, parent=json.loads(book.lines[0])["span_id"])
    report = verified(book, tmp_path)
    assert report.sound
    assert any(note.startswith("erasure not finished: 1 sealed values") for note in report.notes)
    (tmp_path / "sealed" / found).unlink()
    assert not any("erasure" in note for note in verified(book, tmp_path).notes)


def test_hashes_computed_anew_do_not_hide_that_a_payload_is_gone(tmp_path):
    book = ledgers.call()
    swap(book, 1, excised(book, 1))
    book.lines = forge(book.lines)
    assert (2, "payload") in failed(verified(book, tmp_path))


def found_in_approved(tmp_path, change):
    """Return what is wrong with the session of an approved call, once *change* was made to it and hashes are right."""
    book = ledgers.approved()
    lines = enumerate(change(book.lines))
    book.lines[:] = forge([re.sub(rb'"seq":\d+,', b'"seq":%d,' % seq, line, count=1) for seq, line in lines])
    book.prev = json.loads(book.lines[-1])["envelope_hash"]
    return book


def test_signature_counts_where_its_request_is_excised(tmp_path):
    book = ledgers.approved()
    ledgers.excise(book, 2, json.loads(book.lines[0])["span_id"])
    assert failed(verified(book, tmp_path)) == []
    book = found_in_approved(
        tmp_path, lambda lines: [line.replace(b'"approver":"ada"', b'"approver":"eve"') for line in lines]
    )
    ledgers.excise(book, 2, json.loads(book.lines[0])["span_id"])
    assert set(failed(verified(book, tmp_path))) == {(4, "approval"), (8, "approval")}


def test_excised_call_is_still_the_one_under_its_approval(tmp_path):
    def again(lines):
        more = [lines[4].replace(span(lines[4]), b"f" * 16), lines[5].replace(span(lines[5]), b"e" * 16)]
        return [*lines[:6], more[0], more[1].replace(span(lines[4]), b"f" * 16), *lines[6:]]

    book = found_in_approved(tmp_path, again)
    ledgers.excise(book, 4, json.loads(book.lines[0])["span_id"])
    assert failed(verified(book, tmp_path)) == [(7, "approval")]


def span(line):
    return json.loads(line)["span_id"].encode()


STEPS = ("created", "started")


def left(tmp_path, book, *taken):
    """Return what is found in a workspace ledger where some events, by their places, have no payload any more."""
    book.lines[:] = forge(book.lines, genesis="workspace")
    book.prev = json.loads(book.lines[-1])["envelope_hash"]
    for seq in taken:
        ledgers.excise(book, seq, json.loads(book.lines[0])["span_id"])
    report = verified(book, tmp_path)
    return [f"{each.check}: {each.found}" for each in (*report.bytes.failures, *report.structure.failures)]


@pytest.mark.parametrize("make", [ledgers.memories, ledgers.chores])
def test_honest_ledger_stays_sound_whatever_is_taken_out_of_it(tmp_path, make):
    lines = range(1, len(make().lines))
    for taken in [*((seq,) for seq in lines), *((seq, seq + 1) for seq in lines[:-1]), (*lines,)]:
        assert left(tmp_path, make(), *taken) == [], taken


@pytest.mark.parametrize(
    ("make", "event_type", "members", "taken", "why"),
    [
        (ledgers.memories, "memory.retracted", {"version": 1}, 4, "memory: sky/today: goes to version 1"),
        (ledgers.memories, "memory.retracted", {"version": 4}, 3, "memory: goes to version 4; the next is 2"),
        (ledgers.memories, "memory.committed", {"version": 2}, 4, "memory: goes to version 2; the next is 1"),
        (ledgers.memories, "memory.checked", {"ok": False}, 3, "memory: committed whose checks failed"),
        (ledgers.memories, "memory.checked", {"ok": False}, 1, "memory: committed whose checks failed"),
        (ledgers.memories, "memory.committed", {"zone": "world_state"}, 2, "memory: without provenance"),
        (ledgers.memories, "memory.imported", {"version": 3}, 4, "memory: goes to version 3; the next is 1"),
        (ledgers.chores, "task.started", {"run": 7}, 8, "task: counts run 7; it is run 1"),
        (ledgers.chores, "task.started", {"run": 7}, 1, "task: counts run 7; it is run 1"),
        (ledgers.chores, "task.ended", {"state": "succeeded"}, 4, "task: task.updated of a task that is succeeded"),
        (ledgers.chores, "task.decided", {"task": f"t-{'ee' * 16}"}, 1, "task: never made"),
    ],
)
def test_one_payload_that_is_gone_hides_nothing_of_the_others(tmp_path, make, event_type, members, taken, why):
    check, _, said = why.rpartition(": ")
    found = left(tmp_path, changed(make(), event_type, **members), taken)
    assert any(each.startswith(check.split(":")[0]) and said in each for each in found), found


def without_source(book):
    """Return *book* with world state that is committed on the word of a check that names no event."""
    header, mark, payload = book.lines[2].partition(b',"payload":')
    said = json.loads(payload[:-2])
    del said["source"]
    book.lines[2] = header + mark + ledgers.canonical(said) + b"}\n"
    return changed(book, "memory.committed", zone="world_state")


def test_world_state_on_no_event_is_a_failure_though_its_proposal_is_gone(tmp_path):
    assert any("names no event" in each for each in left(tmp_path, without_source(ledgers.memories()), 1))
    place = tmp_path / "workspace"
    place.mkdir()
    tmp_path.joinpath(".events.jsonl").rename(place / ".events.jsonl")
    (gap,) = compare_memory_sources(tmp_path, [])
    assert "an event that world state rests on" in str(gap)


@pytest.mark.parametrize("taken", [2, 3])
def test_check_or_commit_that_is_gone_is_not_held_against_what_it_said(tmp_path, taken):
    found = left(tmp_path, without_source(ledgers.memories()), 1, taken)
    assert not any("provenance" in each for each in found), found


def test_second_end_without_its_payload_is_still_one(tmp_path):
    book = ledgers.memories()
    checked, committed = (json.loads(book.lines[seq]) for seq in (2, 3))
    book.add("memory.committed", committed["payload"], parent=checked["span_id"], principal="local")
    assert left(tmp_path, book, len(book.lines) - 1) == ["memory: a second end of one proposal"]


def test_second_call_under_a_run_that_is_gone_is_still_one(tmp_path):
    book = ledgers.tasked()
    end = book.lines.pop()
    run = next(seq for seq, line in enumerate(book.lines) if b'"task.started"' in line)
    again = book.add("tool.call", {"args": {}, "tool_name": "echo"}, parent=json.loads(book.lines[run])["span_id"])
    book.add("tool.result", {"result": {}, "tool_name": "echo"}, parent=again, **ledgers.TOOL)
    assert end
    book.lines[:] = forge(book.lines)
    book.prev = json.loads(book.lines[-1])["envelope_hash"]
    ledgers.excise(book, run, json.loads(book.lines[0])["span_id"])
    assert [each.found for each in verified(book, tmp_path).structure.failures] == [
        "a second call under one run of a task"
    ]


@pytest.mark.parametrize(("of", "whys"), [(0, []), (1, ["once in the workspace ledger, found 0 times"])])
def test_excised_step_of_one_task_excuses_no_missing_step_of_another(tmp_path, of, whys):
    """The workspace ledger lacks the start of a session's task; what was taken out of it is the start of one of two."""
    session, told = ledgers.tasked(), [json.loads(line) for line in ledgers.tasked().lines]
    made, begun = (next(each["payload"] for each in told if each["event_type"] == f"task.{what}") for what in STEPS)
    name = made["session"]
    book = Book("ws-" + "0f" * 16, genesis="workspace")
    root = book.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "w"})
    tasks = [made, {**made, "task": f"t-{'ee' * 16}", "session": "ab" * 16}]
    spans = [book.add("task.created", each, parent=root, **ledgers.USER) for each in tasks]
    book.add("task.started", {**begun, "task": tasks[of]["task"]}, parent=spans[of], **ledgers.USER)
    ledgers.excise(book, 3, root)
    for place, each in ((f"sessions/{name}", session), ("workspace", book)):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / ".events.jsonl").write_bytes(b"".join(each.lines))
    assert [str(gap).partition("expected ")[2] or str(gap) for gap in compare_tasks(tmp_path, [name])] == whys
