"""The workspace's ledger: begun once, written by many, one chain; what others leave is checked or set aside."""

import os
import re
import subprocess
import sys
import threading
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from writing import NAME, checked, code, note, shared, types

from deedbook.format.errors import FileRefused, LedgerError, SourceError
from deedbook.format.files import Folder
from deedbook.format.reader import read
from deedbook.format.sealed import Rules, Sealer, open_value
from deedbook.ledger import ledger as module

FIRST = "deedbook-workspace-1.1\n"


def lines(state: Path) -> list[dict]:
    return checked(state / "workspace", FIRST)


WRITER = """
import sys
from pathlib import Path
from writing import note, shared
place, name, events = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.read()
ledger = shared(place)
for i in range(events):
    ledger.append([note(ledger, f"{name}.{i}.a"), note(ledger, f"{name}.{i}.b")], durable=i % 10 == 0)
ledger.close()
"""


def writers(state: Path, count: int, events: int) -> list[subprocess.Popen]:
    """Start so many processes that write *events* pairs each, all at the same moment."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    started = [
        subprocess.Popen([sys.executable, "-c", WRITER, state, str(name), str(events)], **pipes)
        for name in range(count)
    ]
    for process in started:
        assert process.stdout.readline() == b"ready\n"
        process.stdout.close()
    for process in started:
        process.stdin.close()
    return started


def test_open_begins_the_ledger_with_its_root(tmp_path):
    with closing(shared(tmp_path)) as ledger:
        (root,) = lines(tmp_path)
        assert root["event_type"] == "ledger.created"
        assert root["payload"] == {"format": "1.1", "kernel": "0.1.0", "workspace": "home"}
        assert (ledger.session_id, ledger.root, ledger.size) == (root["session_id"], root["span_id"], 1)
    assert root["session_id"].startswith("ws-")
    assert len(root["session_id"]) == 35
    assert root["trace_id"] != root["session_id"][3:]


def test_open_again_goes_on_with_the_same_ledger(tmp_path):
    with closing(shared(tmp_path)) as first:
        first.append([note(first)])
    with closing(shared(tmp_path, kernel="0.2.0")) as second:
        assert (second.session_id, second.root, second.size) == (first.session_id, first.root, 2)
        second.append([note(second)])
    assert types(lines(tmp_path)) == ["ledger.created", "user.message", "user.message"]


def test_open_for_another_workspace_is_refused(tmp_path):
    shared(tmp_path, workspace="/home/ada/one").close()
    with pytest.raises(SourceError, match="/home/ada/one") as caught:
        shared(tmp_path, workspace="/home/ada/two")
    assert code(caught) == "STATE_IN_USE"
    shared(tmp_path, workspace="/home/ada/one").close()
    assert len(lines(tmp_path)) == 1


def test_open_knows_its_workspace_where_the_root_is_sealed(tmp_path):
    sealer = Sealer(Rules.parse(["ledger.*/workspace"]))
    shared(tmp_path, sealer=sealer).close()
    shared(tmp_path, sealer=sealer).close()
    with pytest.raises(SourceError):
        shared(tmp_path, workspace="away")
    with Folder.at(tmp_path / "workspace") as folder:
        assert open_value(folder, lines(tmp_path)[0]["payload"]["workspace"]) == "home"


def test_many_processes_begin_one_ledger_and_write_one_chain_and_lose_nothing(tmp_path):
    assert [process.wait(60) for process in writers(tmp_path, count=8, events=50)] == [0] * 8
    found = lines(tmp_path)
    assert types(found).count("ledger.created") == 1
    texts = [line["payload"]["text"] for line in found[1:]]
    assert len(texts) == 8 * 50 * 2
    for name in range(8):
        own = [text for text in texts if text.startswith(f"{name}.")]
        assert own == [f"{name}.{i}.{part}" for i in range(50) for part in "ab"]


def test_writers_in_one_process_take_over_what_the_other_has_added(tmp_path):
    with closing(shared(tmp_path)) as one, closing(shared(tmp_path)) as other:
        for i in range(5):
            assert one.append([note(one, f"one {i}")]) == 2 * i + 1
            assert other.append([note(other, f"other {i}")]) == 2 * i + 2
        assert (one.size, other.size) == (10, 11)
    assert len(lines(tmp_path)) == 11


def test_threads_share_one_writer(tmp_path):
    with closing(shared(tmp_path)) as ledger:

        def work(name: int) -> None:
            for i in range(25):
                ledger.append([note(ledger, f"{name}.{i}")], durable=i % 5 == 0)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({line["payload"]["text"] for line in lines(tmp_path)[1:]}) == 100


def test_subscribers_hear_what_others_add_in_the_order_of_the_ledger(tmp_path):
    heard = []
    with closing(shared(tmp_path)) as one, closing(shared(tmp_path)) as other:
        one.subscribe(heard.append)
        other.append([note(other, "theirs"), note(other, "theirs, too")])
        one.append([note(one, "ours")])
    assert heard == list(read(tmp_path / "workspace"))[1:]


def test_durable_appends_sync_once_and_others_not_in_the_caller(tmp_path):
    callers = []
    ledger = shared(tmp_path, fdatasync=lambda _fd: callers.append(threading.get_ident()))
    callers.clear()
    ledger.append([note(ledger)])
    assert threading.get_ident() not in callers
    ledger.append([note(ledger)], durable=True)
    assert callers.count(threading.get_ident()) == 1
    ledger.close()


def test_beginning_is_durable_with_the_folders_it_lies_in(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        "deedbook.format.files.os.fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")) or fsync(fd)
    )
    shared(tmp_path / "state", fdatasync=lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}"))).close()
    state = tmp_path / "state"
    assert {str(state / "workspace" / NAME), str(state / "workspace"), str(state), str(tmp_path)} <= set(synced)


# --- what another writer may have left --------------------------------------------------------------------------------


def added(state: Path, raw: bytes) -> None:
    with (state / "workspace" / NAME).open("ab") as file:
        file.write(raw)


@pytest.mark.parametrize("torn", [b'{"schema_version":"1.1","sess', b"\0" * 5000, b"x\n"])
def test_torn_tail_of_a_killed_writer_is_set_aside_by_the_next_append(tmp_path, torn):
    with closing(shared(tmp_path)) as ledger:
        size = (tmp_path / "workspace" / NAME).stat().st_size
        added(tmp_path, torn)
        ledger.append([note(ledger)])
    found = lines(tmp_path)
    assert types(found) == ["ledger.created", "ledger.recovered", "user.message"]
    assert (found[1]["payload"]["offset"], found[1]["payload"]["bytes"]) == (size, len(torn))
    assert (tmp_path / "workspace" / found[1]["payload"]["kept"]).read_bytes() == torn


def test_torn_tail_behind_whole_lines_of_another_writer_is_set_aside(tmp_path):
    with closing(shared(tmp_path)) as one, closing(shared(tmp_path)) as other:
        other.append([note(other, "whole")])
        added(tmp_path, b"{")
        one.append([note(one, "next")])
        other.append([note(other, "last")])
    assert types(lines(tmp_path)) == [
        "ledger.created",
        "user.message",
        "ledger.recovered",
        "user.message",
        "user.message",
    ]


def test_torn_tail_is_set_aside_by_whoever_opens(tmp_path):
    shared(tmp_path).close()
    added(tmp_path, b"{")
    shared(tmp_path).close()
    assert types(lines(tmp_path)) == ["ledger.created", "ledger.recovered"]


def test_beginning_that_was_killed_is_made_again(tmp_path):
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / NAME).write_bytes(b"")
    shared(tmp_path).close()
    assert types(lines(tmp_path)) == ["ledger.created"]


def test_beginning_that_was_torn_is_set_aside_and_made_again(tmp_path):
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / NAME).write_bytes(b'{"schema_version":')
    shared(tmp_path).close()
    assert types(lines(tmp_path)) == ["ledger.created", "ledger.recovered"]


def test_ledger_that_was_cut_is_refused(tmp_path):
    with closing(shared(tmp_path)) as ledger:
        ledger.append([note(ledger)])
        os.truncate(tmp_path / "workspace" / NAME, (tmp_path / "workspace" / NAME).stat().st_size - 40)
        with pytest.raises(LedgerError, match="was cut") as caught:
            ledger.append([note(ledger)])
        assert code(caught) == "LEDGER_UNSOUND"


def chain_elsewhere(raw: bytes) -> bytes:
    """Return a line that is sound in itself, with its hash, and follows another line than the one before it."""
    head, _, rest = re.sub(
        rb'"prev_envelope_hash":"[0-9a-f]{64}"', b'"prev_envelope_hash":"%b"' % (b"5" * 64), raw
    ).partition(b',"envelope_hash":"')
    return head + b',"envelope_hash":"' + sha256(head).hexdigest().encode() + rest[64:]


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.replace(b'"text":"theirs"', b'"text":"thairs"'),
        lambda raw: raw.replace(b'"seq":1', b'"seq":2'),
        lambda raw: raw + raw,
        chain_elsewhere,
        lambda raw: raw + chain_elsewhere(raw.replace(b'"seq":1', b'"seq":2')),
    ],
    ids=["payload", "header", "twice", "another line before it", "another line before the second"],
)
def test_lines_of_another_writer_that_do_not_fit_the_chain_are_refused(tmp_path, change):
    with closing(shared(tmp_path)) as ledger:
        before = (tmp_path / "workspace" / NAME).stat().st_size
        with closing(shared(tmp_path)) as other:
            other.append([note(other, "theirs")])
        raw = (tmp_path / "workspace" / NAME).read_bytes()
        damaged = raw[:before] + change(raw[before:])
        (tmp_path / "workspace" / NAME).write_bytes(damaged)
        for _ in range(2):
            with pytest.raises(LedgerError, match="not what was written") as caught:
                ledger.append([note(ledger)])
            assert code(caught) == "LEDGER_UNSOUND"
    assert (tmp_path / "workspace" / NAME).read_bytes() == damaged


def test_damaged_last_line_is_refused_when_opening(tmp_path):
    shared(tmp_path).close()
    place = tmp_path / "workspace" / NAME
    place.write_bytes(place.read_bytes().replace(b'"home"', b'"hone"'))
    with pytest.raises((LedgerError, SourceError)):
        shared(tmp_path)
    place.write_bytes(place.read_bytes().replace(b'"hone"', b'"home"'))
    shared(tmp_path).close()


def test_killed_writers_leave_one_chain_to_the_others(tmp_path):
    heard = []
    with closing(shared(tmp_path)) as ledger:
        ledger.subscribe(lambda event: heard.append(event.payload.get("text", "").split(".")[0]))
        for name, process in enumerate(writers(tmp_path, 3, 10**9)):
            while heard.count(str(name)) < 60:
                ledger.append([note(ledger, "between")])
            process.kill()
            process.wait()
        ledger.append([note(ledger, "after")], durable=True)
        assert heard[-1] == "after"
    assert len(lines(tmp_path)) == len(heard) + 1


def test_turn_that_never_comes_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TURN_SECONDS", 0.05)
    with closing(shared(tmp_path)) as ledger, Folder.at(tmp_path / "workspace") as folder:
        fd = folder.append(NAME, create=False)
        module.acquire(fd, place="", seconds=1)
        with pytest.raises(LedgerError) as caught:
            ledger.append([note(ledger)])
        assert code(caught) == "LEDGER_LOCKED"
        os.close(fd)
        ledger.append([note(ledger)])
    assert len(lines(tmp_path)) == 2


def test_ledger_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / NAME).symlink_to(tmp_path / "victim")
    with pytest.raises((FileRefused, LedgerError)):
        shared(tmp_path)
    assert (tmp_path / "victim").read_bytes() == b""


def test_clock_that_goes_back_is_recorded_under_the_root(tmp_path):
    now = [1_700_000_000.0]
    with closing(shared(tmp_path, clock=lambda: now[0])) as ledger:
        ledger.append([note(ledger)])
        now[0] -= 60
        ledger.append([note(ledger)])
    found = lines(tmp_path)
    assert types(found) == ["ledger.created", "user.message", "system.clock_regressed", "user.message"]
    assert found[2]["parent_span_id"] == found[0]["span_id"]
