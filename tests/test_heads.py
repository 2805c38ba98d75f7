"""What the workspace ledger recorded of sessions: no cut passes for an end, and what never began is told apart."""

import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from commandline import Place
from ledgers import forge

from deedbook.format.errors import LedgerError
from deedbook.format.files import Folder
from deedbook.format.heads import Head, find_gaps, find_unrecorded, list_heads
from deedbook.kernel import open_kernel, write
from deedbook.ledger.ledger import Ledger
from deedbook.workspace.workspace import read_workspace
from deedbook_inspect.upkeep import close_session, discard_session

NEVER = "0e" * 16


@pytest.fixture
def copy(told: Place, tmp_path: Path) -> Place:
    """Give a copy of the workspace with two sessions, to be damaged."""
    shutil.copytree(told.path, tmp_path / "copy")
    return Place(tmp_path / "copy")


@pytest.fixture
def run(copy: Place) -> str:
    """Give the id of the run."""
    return next(each["id"] for each in copy.here("sessions", "--json").json["sessions"] if each["events"] > 10)


def cut(copy: Place, run: str, kept: int) -> list[bytes]:
    """Keep the first lines of a session only; return all that there were."""
    lines = copy.ledger(run).read_bytes().splitlines(keepends=True)
    copy.ledger(run).write_bytes(b"".join(lines[:kept]))
    return lines


def contents(place: Place) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (place.path / ".deedbook").rglob("*") if path.is_file()}


def left_behind(place: Place, *names: str) -> Path:
    """Make what a session leaves that was killed while it began."""
    folder = place.path / ".deedbook" / "sessions" / NEVER
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).mkdir() if name == "sealed" else (folder / name).touch()
    return folder


def state(place: Place) -> dict[str, str]:
    listed = place.here("sessions", "--json", status=0).fits("output_sessions_v1")["sessions"]
    return {each["id"]: each["state"] for each in listed}


# --- closing what was cut ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 1, 2, -1])
def test_cut_session_is_not_closed_and_nothing_is_written(copy: Place, run: str, kept: int):
    lines = cut(copy, run, kept)
    before = contents(copy)
    ran = copy.here("sessions", "close", run, status=4)
    assert "[LEDGER_UNSOUND]" in ran.err
    assert f"events: expected at least {len(lines)}, found {kept % len(lines)}" in ran.err
    assert contents(copy) == before
    copy.here("verify", status=4)


def test_cut_inside_a_line_is_not_set_aside_by_closing(copy: Place, run: str):
    path = copy.ledger(run)
    path.write_bytes(path.read_bytes()[:-30])
    before = contents(copy)
    assert "[LEDGER_UNSOUND]" in copy.here("sessions", "close", run, status=4).err
    assert contents(copy) == before


def test_session_that_was_cut_and_written_on_is_not_closed(copy: Place, run: str):
    lines = copy.ledger(run).read_bytes().splitlines(keepends=True)
    forged = forge([line.replace(b"Hello, Ada!", b"Hello, Eve!") for line in [*lines[:-1], lines[-2]]])
    copy.ledger(run).write_bytes(b"".join(forged))
    before = contents(copy)
    with pytest.raises(LedgerError, match=f"envelope_hash of line {len(lines)}") as caught:
        close_session(read_workspace(copy.path), run)
    assert caught.value.error.code == "LEDGER_UNSOUND"
    assert contents(copy) == before


def test_session_without_its_file_is_not_taken_for_one_that_never_began(copy: Place, run: str):
    copy.ledger(run).unlink()
    before = contents(copy)
    assert "a ledger of" in copy.here("sessions", "close", run, status=4).err
    assert copy.ledger(run).parent.is_dir()
    assert contents(copy) == before


def test_session_is_not_closed_when_the_workspace_ledger_cannot_be_read(copy: Place, run: str):
    cut(copy, run, 1)
    own = copy.path / ".deedbook" / "workspace" / ".events.jsonl"
    first, *rest = own.read_bytes().splitlines(keepends=True)
    own.write_bytes(first + b"{}\n" + b"".join(rest))
    before = contents(copy)
    assert "[LEDGER_UNSOUND]" in copy.here("sessions", "close", run, status=4).err
    assert contents(copy) == before


def test_session_that_died_before_its_head_was_recorded_is_closed(copy: Place, run: str):
    cut(copy, run, 1)
    (copy.path / ".deedbook" / "workspace" / ".events.jsonl").unlink()
    assert "no call was open" in copy.here("sessions", "close", run, status=0).err
    assert state(copy)[run] == "ended"
    assert copy.here("verify", run, status=0).out.endswith("sound\n")


# --- verifying against every head -------------------------------------------------------------------------------------


def test_head_that_was_recorded_after_a_cut_does_not_hide_the_earlier_one(copy: Place, run: str):
    lines = cut(copy, run, 1)
    with open_kernel(copy.path) as kernel, kernel.state.sub(f"sessions/{run}") as folder:
        ledger = Ledger.reopen(folder)
        head = {"session_id": run, "events": 1, "head": ledger.head, "state": "interrupted"}
        ledger.close()
        write(kernel.ledger, "ledger.session", head)
    for command in (["verify"], ["verify", run]):
        ran = copy.here(*command, status=4)
        assert f"missing  session {run}: events: expected at least {len(lines)}, found 1" in ran.out


def test_every_head_of_a_session_is_compared_by_its_hash(copy: Place, run: str):
    kept = copy.path / ".deedbook"
    heads = [head for head in list_heads(kept) if head.session == run]
    assert [head.state for head in heads] == ["open", "ended"]
    assert list(find_gaps(kept, heads)) == []
    false = Head(run, 2, "0" * 64, "open")
    assert [gap.check for gap in find_gaps(kept, [false, *heads, false])] == ["envelope_hash of line 2"]
    assert [gap.check for gap in find_gaps(kept, [false, Head(run, 9999, "0" * 64, "ended")])] == [
        "events",
        "envelope_hash of line 2",
    ]


@pytest.mark.parametrize("spelling", ["id", "beginning", "file", "folder", "absolute"])
def test_one_session_is_held_against_its_heads_however_it_is_named(copy: Place, run: str, spelling: str):
    cut(copy, run, 3)
    folder = f".deedbook/sessions/{run}"
    names = {"id": run, "beginning": run[:12], "file": f"{folder}/.events.jsonl", "folder": f"./{folder}"}
    ran = copy.here("verify", names.get(spelling, str(copy.ledger(run))), "--json", status=4)
    answer = ran.fits("output_verify_v1")
    assert [(gap["session"], gap["found"]) for gap in answer["missing"]] == [(run, "3")]
    assert answer["reports"][0]["sound"] is True


@pytest.mark.parametrize("what", ["file", "folder", "file for a folder"])
def test_session_that_is_lost_is_missing_by_its_id_too(copy: Place, run: str, what: str):
    folder = copy.ledger(run).parent
    copy.ledger(run).unlink() if what == "file" else shutil.rmtree(folder)
    if what == "file for a folder":
        folder.touch()
    for command in (["verify", run], ["verify"]):
        assert f"missing  session {run}: file: expected a ledger of" in copy.here(*command, status=4).out


def test_copy_outside_the_state_folder_is_verified_by_itself(copy: Place, run: str):
    cut(copy, run, 3)
    shutil.copyfile(copy.ledger(run), copy.path / "copy.jsonl")
    assert copy.here("verify", "./copy.jsonl", status=0).out.endswith("\nsound\n")


# --- what never began -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [[], [".events.jsonl"], ["sealed"], [".events.jsonl", "sealed"]])
def test_session_that_never_began_is_told_apart_and_can_be_removed(copy: Place, left: list[str]):
    folder = left_behind(copy, *left)
    assert state(copy)[NEVER] == "empty"
    every = copy.here("verify", status=0)
    assert f"empty  session {NEVER}: " in every.out
    assert every.out.endswith("all 3 sound\n")
    assert copy.here("verify", NEVER, "--json", status=0).fits("output_verify_v1")["empty"] == [NEVER]
    assert copy.here("verify", NEVER, status=0).out.startswith("empty  session ")
    assert "never began; its folder is removed" in copy.here("sessions", "close", NEVER, status=0).err
    assert not folder.exists()
    assert "[SESSION_NOT_FOUND]" in copy.here("sessions", "close", NEVER, status=2).err
    assert "empty" not in copy.here("verify", status=0).out


def test_session_whose_first_line_is_torn_is_verified_as_torn_and_can_be_removed(copy: Place, run: str):
    torn = copy.ledger(run).read_bytes()[:80].replace(run.encode(), NEVER.encode())
    (left_behind(copy) / ".events.jsonl").write_bytes(torn)
    assert state(copy)[NEVER] == "interrupted"
    assert "torn before the first event" in copy.here("verify", status=4).out
    assert f"deedbook sessions close {NEVER}" in copy.here("doctor", status=0).out
    assert "80 bytes of its first event are kept in workspace/" in copy.here("sessions", "close", NEVER, status=0).err
    assert copy.here("verify", status=0).out.endswith("all 3 sound\n")


def test_torn_end_of_an_ended_session_is_set_aside_by_closing_it(copy: Place, run: str):
    with copy.ledger(run).open("ab") as file:
        file.write(bytes(10))
    assert "torn after event" in copy.here("verify", run, status=4).out
    assert "10 bytes after its last line are set aside" in copy.here("sessions", "close", run, status=0).err
    copy.here("verify", status=0)
    assert "[SESSION_ENDED]" in copy.here("sessions", "close", run, status=1).err


@pytest.mark.parametrize("left", [b"", b'{"schema_version":"1.1"', bytes(500)])
def test_workspace_ledger_whose_first_line_was_not_written_is_begun_again(place: Place, left: bytes):
    file = place.path / ".deedbook/workspace/.events.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(left)
    assert "BROKEN" not in place.here("verify", status=4 if left else 0).out
    assert place.here("processes", status=0).out == "no processes yet\n"
    place.here("doctor", status=0)
    place.here("call", "echo", "--args", '{"text":"hi"}', status=0)
    place.here("verify", status=0)


def test_only_session_that_never_began_leaves_nothing_to_verify(place: Place):
    left_behind(place, ".events.jsonl")
    assert re.fullmatch(r"empty  session .*\n", place.here("verify", status=0).out)


@pytest.mark.parametrize("more", ["sealed/value", ".torn-0-0123456789abcdef", "note.txt"])
@pytest.mark.parametrize("left", [[], [".events.jsonl"]])
def test_empty_ledger_with_something_beside_it_is_neither_removed_nor_sound(copy: Place, left: list[str], more: str):
    left_behind(copy, *left, more)
    assert state(copy)[NEVER] == "damaged"
    copy.here("verify", status=4)
    before = contents(copy)
    assert "[LEDGER_UNSOUND]" in copy.here("sessions", "close", NEVER, status=4).err
    assert contents(copy) == before


def test_session_that_somebody_begins_at_this_moment_is_not_removed(copy: Place):
    folder = left_behind(copy)
    with Folder.at(folder) as held:
        ledger = Ledger.create(held, NEVER, "7a" * 16)
        assert state(copy)[NEVER] == "open"
        assert "[LEDGER_LOCKED]" in copy.here("sessions", "close", NEVER, status=1).err
        ledger.close()
    assert discard_session(read_workspace(copy.path), NEVER)


def test_session_that_has_begun_is_not_discarded(copy: Place, run: str):
    before = contents(copy)
    assert not discard_session(read_workspace(copy.path), run)
    assert contents(copy) == before


def test_session_whose_folder_was_removed_before_it_was_locked_does_not_begin(copy: Place, monkeypatch):
    create = Ledger.create

    def late(folder, *args, **kwargs):
        ledger = create(folder, *args, **kwargs)
        folder.remove(".events.jsonl")
        return ledger

    monkeypatch.setattr(Ledger, "create", late)
    with open_kernel(copy.path) as kernel, pytest.raises(LedgerError, match="Start it again"):
        kernel.session()


@pytest.mark.parametrize("command", ["replay", "tree"])
def test_session_without_a_ledger_is_nothing_to_read(copy: Place, command: str):
    left_behind(copy)
    assert "[SESSION_NOT_FOUND]" in copy.here(command, NEVER, status=2).err


# --- sessions that the workspace ledger does not know -----------------------------------------------------------------


def forget(copy: Place, run: str) -> None:
    """Take every head of a session, and all that was recorded after the first, out of the workspace ledger."""
    place = copy.path / ".deedbook" / "workspace" / ".events.jsonl"
    lines = place.read_bytes().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if run.encode() in line)
    place.write_bytes(b"".join(lines[:first]))


def test_session_that_the_workspace_ledger_does_not_know_is_a_fault(copy: Place, run: str):
    forget(copy, run)
    missing = copy.here("verify", "--json", status=4).fits("output_verify_v1")["missing"]
    assert (run, "head") in {(each["session"], each["check"]) for each in missing}
    assert run in copy.here("verify", run, status=4).out


def test_session_that_died_before_its_first_head_is_no_fault(copy: Place, run: str):
    forget(copy, run)
    for each in (copy.path / ".deedbook" / "sessions").iterdir():
        cut(copy, each.name, 1)
    assert copy.here("verify", "--json", status=0).json["missing"] == []


def test_session_that_is_being_begun_is_no_fault(copy: Place):
    with (
        Folder.at(copy.path / ".deedbook") as state,
        state.sub(f"sessions/{NEVER}", create=True) as folder,
        closing(Ledger.create(folder, NEVER, NEVER)),
    ):
        assert copy.here("verify", "--json", status=0).json["missing"] == []


def test_sessions_of_the_lab_are_all_known(lab):
    lab.tool("pay", lambda args, ctx: args)
    with lab.kernel() as kernel:
        for _ in range(3):
            with kernel.session() as session:
                session.call("pay", {})
                assert find_unrecorded(lab.state, session.id) is None
    assert [find_unrecorded(lab.state, place.name) for place in (lab.state / "sessions").iterdir()] == [None] * 3
