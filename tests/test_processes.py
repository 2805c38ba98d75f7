"""Who writes: boots, runs and shutdowns in the workspace ledger, as kernels write them and as commands show them."""

import os
import threading

import attrs
import ledgers
import pytest
from commandline import Place

from deedbook.contract import Event
from deedbook.format.errors import BindingError, DeedbookError, SessionRefused
from deedbook.format.events import new_id
from deedbook.format.files import Folder
from deedbook.format.heads import find_gaps, list_heads
from deedbook.format.reader import read
from deedbook.format.schema import Schemas, data_folder
from deedbook.maintenance.liveness import FOLDER, Lifeline, list_living, sweep
from deedbook.maintenance.processes import ProcessesFold, read_processes
from deedbook_audit.verify import verify_file

SCHEMAS = Schemas.load(data_folder("schemas"))
KINDS = ("system.boot", "system.run", "system.shutdown", "ledger.session")


def own(lab):
    """Return what the workspace ledger tells of processes and sessions, in order."""
    return [event for event in read(lab.state / "workspace") if event.type in KINDS]


def types(lab):
    return [event.type for event in own(lab)]


def surveyed(lab):
    with Folder.at(lab.state) as state:
        return read_processes(state)


def lifelines(lab):
    place = lab.state / FOLDER
    return sorted(each.name for each in place.iterdir()) if place.exists() else []


# --- what a kernel writes ---------------------------------------------------------------------------------------------


def test_kernel_that_begins_no_session_writes_nothing_about_itself(lab):
    lab.settings()
    with lab.kernel() as kernel:
        assert not kernel.identity.is_booted
    assert types(lab) == []
    assert lifelines(lab) == []


def test_first_session_of_a_kernel_comes_with_its_boot_and_each_with_its_run(lab):
    lab.settings()
    with lab.kernel() as kernel:
        first, second = kernel.session(), kernel.session()
        assert lifelines(lab) == [kernel.identity.process_id]
        first.end(ok=True, reason="done")
        second.end(ok=True, reason="done")
    boot, run, head, other, head_2, end, end_2, shutdown = own(lab)
    process = kernel.identity.process_id
    assert boot.payload == {
        "process_id": process,
        "kind": "cold",
        "pid": os.getpid(),
        "kernel": "0.1.0",
        "charter": kernel.active_charter.charter.digest,
    }
    for told, session in ((run, first), (other, second)):
        assert told.payload == {
            "process_id": process,
            "run_id": kernel.identity.run_id,
            "session_id": session.id,
            "trace_id": session.ledger.trace_id,
        }
        assert told.parent == boot.span
    assert [each.parent for each in (head, head_2, end, end_2)] == [run.span, other.span, run.span, other.span]
    assert [each.payload["state"] for each in (head, head_2, end, end_2)] == ["open", "open", "ended", "ended"]
    assert (shutdown.payload, shutdown.parent) == ({"process_id": process, "reason": "closed"}, boot.span)
    assert lifelines(lab) == []


def test_boot_run_and_head_are_one_append_with_one_sync(lab, monkeypatch):
    lab.settings()
    kernel, appended = lab.kernel(), []
    whole = kernel.ledger.append
    monkeypatch.setattr(kernel.ledger, "append", lambda entries, **how: appended.append(how) or whole(entries, **how))
    session = kernel.session()
    assert appended == [{"durable": True}]
    session.call("nothing", {})
    assert len(appended) == 1
    session.end(ok=True, reason="done")
    assert len(appended) == 2


def test_second_start_is_warm_until_the_charter_changes(lab):
    lab.settings()
    lab.session().end(ok=True, reason="done")
    lab.session().end(ok=True, reason="done")
    lab.skill("greet")
    lab.session().end(ok=True, reason="done")
    assert [event.payload["kind"] for event in own(lab) if event.type == "system.boot"] == ["cold", "warm", "cold"]


def test_session_belongs_to_the_run_that_it_is_given(lab):
    lab.settings()
    run = new_id()
    with lab.kernel() as kernel:
        for given in (run, None, run):
            kernel.session(run=given).end(ok=True, reason="done")
    told = [event.payload["run_id"] for event in own(lab) if event.type == "system.run"]
    assert told == [run, kernel.identity.run_id, run]


@pytest.mark.parametrize("run", ["", "x", "0" * 31, "A" * 32, "../" * 10 + "ab", 7])
def test_run_that_is_no_id_begins_nothing(lab, run):
    lab.settings()
    with lab.kernel() as kernel:
        with pytest.raises(BindingError, match="32 lower-case hex digits"):
            kernel.session(run=run)
        assert types(lab) == []


def test_session_that_a_hook_refuses_is_told_with_its_run_all_the_same(lab):
    lab.hook("no", "SessionStart", lambda **_: {"decision": "deny", "reason": "closed today"})
    with lab.kernel() as kernel, pytest.raises(SessionRefused):
        kernel.session()
    assert types(lab) == ["system.boot", "system.run", "ledger.session", "system.shutdown"]
    assert own(lab)[2].payload["state"] == "ended"


@pytest.mark.parametrize(
    ("problem", "reason"),
    [(None, "closed"), (KeyboardInterrupt, "interrupted"), (ZeroDivisionError, "ZeroDivisionError")],
)
def test_shutdown_says_why(lab, problem, reason):
    lab.settings()

    def work():
        with lab.kernel() as kernel:
            kernel.session().end(ok=True, reason="done")
            if problem:
                raise problem

    if problem:
        with pytest.raises(problem):
            work()
    else:
        work()
    assert own(lab)[-1].payload["reason"] == reason


def test_kernel_is_shut_down_once_however_often_it_is_closed(lab):
    lab.settings()
    kernel = lab.kernel()
    kernel.session().end(ok=True, reason="done")
    kernel.close()
    kernel.close()
    assert types(lab).count("system.shutdown") == 1


def test_sessions_that_begin_at_the_same_time_have_one_boot_above_them_all(lab):
    lab.settings()
    kernel, sessions, gate = lab.kernel(), [], threading.Barrier(8)

    def begin():
        gate.wait()
        sessions.append(kernel.session())

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert types(lab)[0] == "system.boot"
    assert types(lab).count("system.boot") == 1
    (process,) = surveyed(lab).processes.values()
    assert sorted(process.runs[kernel.identity.run_id]) == sorted(session.id for session in sessions)
    for session in sessions:
        session.end(ok=True, reason="done")


def test_two_kernels_of_one_python_are_two_processes_of_one_system(lab):
    lab.settings()
    first, second = lab.kernel(), lab.kernel()
    for kernel in (first, second):
        kernel.session().end(ok=True, reason="done")
    found = surveyed(lab)
    assert found.system == first.identity.system_id == second.identity.system_id == first.ledger.session_id
    assert list(found.processes) == [first.identity.process_id, second.identity.process_id]
    assert {process.pid for process in found.processes.values()} == {os.getpid()}
    first.close()
    assert [process.state for process in surveyed(lab).processes.values()] == ["shut down", "running"]


def test_fork_of_a_kernel_writes_nothing_when_it_closes(lab):
    lab.settings()
    kernel = lab.kernel()
    session = kernel.session()
    child = os.fork()
    if not child:
        kernel.identity.shut_down()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    session.end(ok=True, reason="done")
    assert "system.shutdown" not in types(lab)
    assert list(living_of(lab)) == [kernel.identity.process_id]


def living_of(lab):
    with Folder.at(lab.state) as state:
        return list_living(state)


def test_process_that_cannot_hold_its_lifeline_begins_no_session(lab):
    lab.settings()
    kernel = lab.kernel()
    (lab.state / FOLDER).write_text("no folder")
    with pytest.raises(DeedbookError):
        kernel.session()
    assert types(lab) == []
    (lab.state / FOLDER).unlink()
    kernel.session().end(ok=True, reason="done")
    assert types(lab) == ["system.boot", "system.run", "ledger.session", "ledger.session"]
    kernel.close()
    with lab.kernel() as next_one:
        assert len(next_one.recover().closed) == 1


# --- lifelines --------------------------------------------------------------------------------------------------------


def test_lifeline_is_held_until_it_is_released(tmp_path):
    with Folder.at(tmp_path) as state:
        line = Lifeline.hold(state, "ab" * 16)
        assert list_living(state) == {"ab" * 16}
        sweep(state)
        assert list_living(state) == {"ab" * 16}
        line.release()
        line.release()
        assert list_living(state) == frozenset()
        assert list((tmp_path / FOLDER).iterdir()) == []


def test_what_is_no_lifeline_is_left_alone(tmp_path):
    with Folder.at(tmp_path) as state:
        state.make(FOLDER)
        (tmp_path / FOLDER / "notes.txt").write_text("mine")
        (tmp_path / FOLDER / ("cd" * 16)).symlink_to("notes.txt")
        (tmp_path / FOLDER / ("ab" * 16)).write_bytes(b"")
        sweep(state)
        assert list_living(state) == frozenset()
        assert sorted(each.name for each in (tmp_path / FOLDER).iterdir()) == ["cd" * 16, "notes.txt"]


def test_no_process_lives_where_none_ever_began(tmp_path):
    with Folder.at(tmp_path) as state:
        sweep(state)
        assert list_living(state) == frozenset()
        assert read_processes(state).processes == {}


# --- the fold, and what verify holds it to ----------------------------------------------------------------------------


def test_fold_passes_over_what_is_sealed():
    sealed = {"$sealed": ledgers.HASH, "size": 34}
    fold = ProcessesFold()
    state = fold.start()
    for kind, payload in (
        ("system.boot", {"process_id": sealed, "kind": "warm", "pid": 1, "kernel": "k", "charter": ledgers.HASH}),
        ("system.boot", {"process_id": "b0" * 16, "kind": sealed, "pid": sealed, "kernel": sealed, "charter": sealed}),
        ("system.run", {"process_id": "b0" * 16, "run_id": sealed, "session_id": "s", "trace_id": sealed}),
        ("ledger.session", {"session_id": "s", "events": sealed, "head": sealed, "state": sealed}),
        ("system.shutdown", {"process_id": sealed, "reason": sealed}),
    ):
        state = fold.step(state, event(kind, payload))
    (process,) = state.processes.values()
    assert (process.id, process.kind, process.pid, process.state, process.runs) == ("b0" * 16, "", 0, "running", {})
    assert (state.sessions["s"].run, state.sessions["s"].state) == ("", "")


def event(kind, payload):
    return Event(1, kind, "runtime", None, "0" * 16, None, "2026-11-21T22:00:00.000Z", payload)


ONE, TWO, RUN, SESSION, TRACE = "b0" * 16, "b1" * 16, "4" * 32, "5e" * 16, "7" * 32


def boot(book, process=ONE, root=f"{1:016x}"):
    told = {"process_id": process, "kind": "warm", "pid": 1, "kernel": "k", "charter": ledgers.HASH}
    return book.add("system.boot", told, parent=root)


def run(book, above, **changed):
    told = {"process_id": ONE, "run_id": RUN, "session_id": SESSION, "trace_id": TRACE, **changed}
    return book.add("system.run", told, parent=above)


def down(book, above, process=ONE):
    return book.add("system.shutdown", {"process_id": process, "reason": "closed"}, parent=above)


def head(book, above, session=SESSION):
    told = {"session_id": session, "events": 1, "head": ledgers.HASH, "state": "open"}
    return book.add("ledger.session", told, parent=above)


WRONG = {
    "a second boot of process": lambda book: (boot(book), boot(book)),
    "system.run under no system.boot": lambda book: run(book, f"{1:016x}"),
    "system.shutdown under no system.boot": lambda book: down(book, f"{1:016x}"),
    f"process {TWO} under the boot of process {ONE}": lambda book: run(book, boot(book), process_id=TWO),
    f"process {ONE} under the boot of process {TWO}": lambda book: (boot(book), down(book, boot(book, TWO))),
    "which has shut down": lambda book: (above := boot(book), down(book, above), run(book, above)),
    "a second shutdown of process": lambda book: (above := boot(book), down(book, above), down(book, above)),
    f"session {SESSION} in a second run": lambda book: (
        above := boot(book),
        run(book, above),
        run(book, above, run_id="3" * 32, trace_id="6" * 32),
    ),
    f"run {RUN} of a second process": lambda book: (
        run(book, boot(book)),
        run(book, boot(book, TWO), process_id=TWO, session_id="5f" * 16, trace_id="6" * 32),
    ),
    f"trace {TRACE} of a second session": lambda book: (
        above := boot(book),
        run(book, above),
        run(book, above, session_id="5f" * 16),
    ),
    f"under the run of session {SESSION}": lambda book: head(book, run(book, boot(book)), "5f" * 16),
}


@pytest.mark.parametrize("why", WRONG)
def test_verify_finds_what_breaks_the_hierarchy(tmp_path, why):
    book = ledgers.Book("ws-" + "0d" * 16, genesis="workspace")
    book.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "w"})
    assert verify_file(book.write(tmp_path), schemas=SCHEMAS).sound
    WRONG[why](book)
    report = verify_file(book.write(tmp_path), schemas=SCHEMAS)
    assert not report.sound
    (failure,) = report.structure.failures
    assert (failure.check, failure.line) == ("hierarchy", len(book.lines))
    assert why in failure.found


def test_verify_accepts_an_honest_hierarchy_and_sealed_parts_of_it(tmp_path):
    book = ledgers.workspace()
    sealed = {"$sealed": ledgers.HASH, "size": 34}
    above = boot(book, sealed)
    head(book, run(book, above, process_id=sealed, run_id=sealed, session_id=sealed, trace_id=sealed))
    down(book, above, sealed)
    assert verify_file(book.write(tmp_path), schemas=SCHEMAS).sound


@pytest.mark.parametrize("kind", ["boot", "run", "shutdown"])
def test_processes_are_told_in_the_workspace_ledger_alone(tmp_path, kind):
    book = ledgers.Book()
    root = ledgers.start(book)
    above = boot(book, root=root)
    {"boot": lambda: None, "run": lambda: run(book, above), "shutdown": lambda: down(book, above)}[kind]()
    report = verify_file(book.write(tmp_path), schemas=SCHEMAS)
    assert f"system.{kind} in the ledger of a session" in [each.found for each in report.structure.failures]


def test_file_of_another_trace_than_its_run_says_is_found(told: Place):
    """A session can be written anew under its id; its run says which trace it had."""
    state = told.path / ".deedbook"
    newest = list(list_heads(state))[-1]
    assert newest.trace
    assert list(find_gaps(state, [newest])) == []
    (gap,) = find_gaps(state, [attrs.evolve(newest, trace="0" * 32)])
    assert (gap.check, gap.expected, gap.found) == ("trace_id", "0" * 32, newest.trace)


# --- commands ---------------------------------------------------------------------------------------------------------


def test_processes_shows_each_process_its_runs_and_their_sessions(told: Place):
    document = told.here("processes", "--json", status=0).fits("output_processes_v1")
    listed = told.here("sessions", "--json", status=0).fits("output_sessions_v1")["sessions"]
    assert document["sessions"] == []
    assert [each["state"] for each in document["processes"]] == ["shut down"] * 2
    assert [each["kind"] for each in document["processes"]] == ["cold", "warm"]
    for process, session in zip(document["processes"], listed, strict=True):
        (only,) = process["runs"]
        (of,) = only["sessions"]
        assert of["session_id"] == session["id"]
        assert (session["process"], session["run"]) == (process["process_id"], only["run_id"])
        assert (of["state"], of["events"]) == ("ended", session["events"])
        assert process["started"] <= process["ended"]


def test_processes_are_shown_from_the_system_down(told: Place):
    lines = told.here("processes", status=0).out.splitlines()
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 2, 4, 6, 2, 4, 6]
    assert [line.split()[0] for line in lines] == ["system", *["process", "run", "session"] * 2]
    assert lines[1].endswith("(closed)")


def test_nothing_is_shown_and_nothing_made_where_nothing_began(place: Place):
    assert place.here("processes", status=0).out == "no processes yet\n"
    document = place.here("processes", "--json", status=0).fits("output_processes_v1")
    assert document == {"schema_version": "v1", "system_id": "", "processes": [], "sessions": []}
    assert not (place.path / ".deedbook").exists()
