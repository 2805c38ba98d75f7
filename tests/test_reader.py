"""Reading ledgers plainly, and the listing of sessions."""

import subprocess
import sys
from pathlib import Path

import pytest
from writing import NAME, SESSION, TRACE, again, checked, note

from deedbook.format.errors import FileRefused, LedgerError
from deedbook.format.events import Entry, label
from deedbook.format.files import Folder
from deedbook.format.reader import SessionSummary, list_sessions, read
from deedbook.ledger.ledger import Ledger


def session(state: Path, name: str, *, texts: int = 2, ended: bool = False, at: float = 1_700_000_000.0) -> Ledger:
    with Folder.at(state, create=True) as folder:
        ledger = Ledger.create(folder.sub(f"sessions/{name}", create=True), name, TRACE, clock=lambda: at)
    ledger.append([Entry(label("session.start", "runtime", None), ledger.span(), None, b'{"purpose":"run"}')])
    ledger.append([note(ledger, str(i)) for i in range(texts)])
    if ended:
        ledger.append([note(ledger, event_type="session.end")])
    return ledger


def listed(state: Path) -> list[SessionSummary]:
    with Folder.at(state) as folder:
        return list_sessions(folder)


def test_read_gives_events_from_a_file_a_path_or_a_folder(tmp_path):
    session(tmp_path, SESSION).close()
    place = tmp_path / "sessions" / SESSION
    events = list(read(place / NAME))
    with Folder.at(place) as folder:
        assert events == list(read(place)) == list(read(str(place))) == list(read(folder))
    lines = checked(place)
    assert [(e.seq, e.type, e.actor, e.principal, e.span, e.parent, e.ts, e.payload) for e in events] == [
        (
            *(line[key] for key in ("seq", "event_type", "actor", "principal", "span_id", "parent_span_id", "ts")),
            line["payload"],
        )
        for line in lines
    ]


def test_read_stops_at_the_last_newline_and_changes_nothing(tmp_path):
    session(tmp_path, SESSION).close()
    place = tmp_path / "sessions" / SESSION / NAME
    whole = place.read_bytes()
    for torn in (b"{", b"\0" * 100_000, whole[:50]):
        place.write_bytes(whole + torn)
        assert len(list(read(place))) == 3
        assert place.read_bytes() == whole + torn


def test_read_splits_lines_on_the_newline_alone(tmp_path):
    ledger = session(tmp_path, SESSION, texts=0)
    ledger.append([note(ledger, "a\u2028b\x85c\x0cd\x1ee\rf\ng")])
    ledger.close()
    assert [event.payload.get("text") for event in read(tmp_path / "sessions" / SESSION)] == [
        None,
        "a\u2028b\x85c\x0cd\x1ee\rf\ng",
    ]


@pytest.mark.parametrize("line", [b"garbage\n", b"\n", b'{"a":1}\n', b'{"schema_version":"1.0"}\n', b"\0\n"])
def test_read_refuses_a_whole_line_that_is_no_event_with_its_place(tmp_path, line):
    session(tmp_path, SESSION).close()
    place = tmp_path / "sessions" / SESSION / NAME
    place.write_bytes(place.read_bytes() + line)
    events = read(place)
    assert [next(events).seq for _ in range(3)] == [0, 1, 2]
    with pytest.raises(LedgerError) as caught:
        next(events)
    assert caught.value.error.code == "LEDGER_UNSOUND"
    assert caught.value.error.place == f"{place}:4"


def test_read_passes_over_a_torn_tail_of_any_length_but_not_over_an_endless_line(tmp_path, monkeypatch):
    session(tmp_path, SESSION).close()
    place = tmp_path / "sessions" / SESSION / NAME
    monkeypatch.setattr("deedbook.format.reader.LONGEST", 10_000)
    whole = place.read_bytes()
    place.write_bytes(whole + b"\0" * 50_000)
    assert len(list(read(place))) == 3
    place.write_bytes(whole + b"\0" * 50_000 + b"\n")
    with pytest.raises(LedgerError, match="a line of more than"):
        list(read(place))


def test_read_says_what_is_absent_and_follows_no_link(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(read(tmp_path / "nothing"))
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(FileRefused):
        list(read(tmp_path / "link"))


def test_read_beside_a_writer_never_sees_half_a_line(tmp_path):
    script = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from writing import begin, note
ledger = begin(Path(sys.argv[1]))
print("ready", flush=True)
for _ in sys.stdin:
    for _ in range(20):
        ledger.append([note(ledger, "x" * 30_000), note(ledger, "y")])
"""
    place = tmp_path / "ledger"
    command = [sys.executable, "-c", script, place, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"ready\n"
        seen = [0]
        while len(set(seen)) < 12 and writer.poll() is None:
            writer.stdin.write(b"\n")  # it writes some more beside the next reading
            writer.stdin.flush()
            events = list(read(place))
            assert [event.seq for event in events] == list(range(len(events)))
            assert len(events) >= seen[-1]
            seen.append(len(events))
        writer.kill()
    assert len(set(seen)) == 12


# --- the listing ------------------------------------------------------------------------------------------------------


def test_sessions_are_listed_the_oldest_first_with_what_they_are(tmp_path):
    session(tmp_path, "late", ended=True, at=1_700_000_300.0).close()
    running = session(tmp_path, "early", at=1_700_000_100.0)
    session(tmp_path, "gone", texts=5, at=1_700_000_200.0).close()
    early, gone, late = listed(tmp_path)
    assert early == SessionSummary(
        "early", "open", "2023-11-14T22:15:00.000Z", "2023-11-14T22:15:00.000Z", 3, running.head
    )
    assert (gone.id, gone.state, gone.events) == ("gone", "interrupted", 6)
    assert (late.id, late.state, late.events) == ("late", "ended", 4)
    running.close()
    assert listed(tmp_path)[0].state == "interrupted"


def test_sessions_that_were_amended_after_their_end_have_ended(tmp_path):
    ledger = session(tmp_path, "a", ended=True)
    ledger.append([note(ledger, event_type="event.amended"), note(ledger, event_type="ledger.session")])
    ledger.close()
    assert listed(tmp_path)[0].state == "ended"


def test_sessions_with_a_torn_tail_are_interrupted_and_stay_torn(tmp_path):
    session(tmp_path, "a").close()
    place = tmp_path / "sessions" / "a" / NAME
    place.write_bytes(place.read_bytes() + b'{"sch')
    assert [(one.state, one.events) for one in listed(tmp_path)] == [("interrupted", 3)]
    assert place.read_bytes().endswith(b'{"sch')


@pytest.mark.parametrize("left", [[], [NAME], ["sealed/"], [NAME, "sealed/"]])
def test_sessions_without_an_event_are_empty(tmp_path, left):
    folder = tmp_path / "sessions" / "a"
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).mkdir() if name.endswith("/") else (folder / name).touch()
    assert listed(tmp_path) == [SessionSummary("a", "empty")]


def test_session_that_begins_at_this_moment_is_open_and_not_empty(tmp_path):
    with Folder.at(tmp_path) as state, state.sub("sessions/a", create=True) as folder:
        ledger = Ledger.create(folder, "a", "7a" * 16)
        assert listed(tmp_path) == [SessionSummary("a", "open")]
        ledger.close()
    assert listed(tmp_path) == [SessionSummary("a", "empty")]


def test_sessions_that_cannot_be_read_are_damaged_and_hide_no_other(tmp_path):
    session(tmp_path, "good", ended=True).close()
    session(tmp_path, "bad").close()
    place = tmp_path / "sessions" / "bad" / NAME
    place.write_bytes(place.read_bytes().replace(b'"schema_version":"1.1"', b'"schema_version":"9.9"'))
    (tmp_path / "sessions" / "linked").mkdir()
    (tmp_path / "sessions" / "linked" / NAME).symlink_to(place)
    (tmp_path / "sessions" / "emptied" / "sealed").mkdir(parents=True)
    (tmp_path / "sessions" / "emptied" / "sealed" / "value").touch()
    (tmp_path / "sessions" / "not a session").mkdir()
    assert {one.id: one.state for one in listed(tmp_path)} == {
        "good": "ended",
        "bad": "damaged",
        "linked": "damaged",
        "emptied": "damaged",
    }


def test_sessions_of_a_state_without_any_are_none(tmp_path):
    assert listed(tmp_path) == []


def test_listing_does_not_keep_a_writer_out(tmp_path):
    session(tmp_path, "a").close()
    for _ in range(50):
        listed(tmp_path)
        again(tmp_path / "sessions" / "a").close()
