"""Corrected ledgers under checkpoints, and who has a ledger open while another file takes its place."""

import shutil
from pathlib import Path

import goldens
import pytest
from agreeing import differences, javascript
from commandline import Place, starter

from deedbook.call.queue import ApprovalQueue
from deedbook.format.events import Entry, label
from deedbook.format.files import Folder
from deedbook.format.reader import Follower, read
from deedbook.kernel import open_kernel
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.workspace.site import Site
from deedbook.workspace.workspace import read_workspace
from deedbook_log.corrections.excising import excise
from deedbook_serve.tasks.book import TaskBook

ARGS = '{"text":"the code is 4711-0815"}'
WHY = ("--reason", "x")


@pytest.fixture(scope="module")
def covered(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a workspace whose log covers a call and a task."""
    place = starter(tmp_path_factory.mktemp("covered") / "workspace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(place.path / ".config"))
        for args in (["keys", "rotate"], ["call", "echo", "--args", ARGS], ["tasks", "create", "echo", "--args", ARGS],
                     ["tasks", "run", "last"]):  # fmt: skip
            place.here(*args, status=0)
    return place


@pytest.fixture
def place(covered: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Give a copy of that workspace, to be changed."""
    shutil.copytree(covered.path, tmp_path / "workspace")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "workspace/.config"))
    return Place(tmp_path / "workspace")


def found(place: Place, *types: str) -> list[int]:
    """Return the seqs of the workspace ledger's events of these types."""
    return [event.seq for event in read(place.path / ".deedbook/workspace") if event.type in types]


def called(place: Place) -> str:
    """Return the session of the single call."""
    return next(name for name in place.sessions() if "task.started" not in place.types(name)
                and "tool.call" in place.types(name))  # fmt: skip


def test_checkpoints_hold_over_what_was_amended_erased_and_excised(place):
    session = called(place)
    place.here("ledger", "amend", session, "3", "--set", '/args/text="ho"', *WHY, status=0)
    place.here("ledger", "excise", session, "4", *WHY, "--yes", status=0)
    place.here("ledger", "excise", "workspace", str(found(place, "task.ended")[0]), *WHY, "--yes", status=0)
    ran = place.here("verify", status=0)
    assert "sound and complete up to checkpoint" in ran.out
    place.here("ledger", "checkpoint", status=0)
    assert "sound and complete up to checkpoint" in place.here("verify", status=0).out
    assert javascript("--state", place.path / ".deedbook")[0].startswith("sound")


def test_log_that_is_kept_open_goes_on_in_the_file_that_took_the_place(place):
    with open_kernel(place.path) as kernel:
        first = kernel.session()
        for seq in found(place, "task.created", "task.ended"):
            place.here("ledger", "excise", "workspace", str(seq), *WHY, "--yes", status=0)
        first.call("echo", {"text": "after"})
        first.end(ok=True, reason="done")
        second = kernel.session()
        second.end(ok=True, reason="done")
    assert "sound and complete up to checkpoint" in place.here("verify", status=0).out


def test_writer_goes_on_in_the_new_file_and_one_that_is_no_copy_is_refused(place):
    state, site = place.path / ".deedbook", Site.of(read_workspace(place.path))
    with Folder.at(state) as folder:
        ledger = WorkspaceLedger.open(folder, workspace=".", kernel="0")
    file = state / "workspace/.events.jsonl"
    excise(site, "workspace", found(place, "task.created")[0], reason="x", by="local")
    ledger.append([entry(ledger)], durable=True)
    assert b"00.777Z" in file.read_bytes()
    assert file.read_bytes().startswith(file.read_bytes()[: ledger.end])
    assert place.here("verify", "workspace", status=0)
    before = file.read_bytes()
    file.unlink()
    file.write_bytes(before.replace(b"00.777Z", b"00.778Z"))
    ledger.append([entry(ledger)])  # the last line's header is the same: what changed is for verify to find
    file.unlink()
    file.write_bytes(b"".join(before.splitlines(keepends=True)[:-2]))
    with pytest.raises(Exception, match="verify it"):
        ledger.append([entry(ledger)])
    ledger.close()


def entry(ledger: WorkspaceLedger) -> Entry:
    payload = b'{"from":"2026-01-01T00:00:00.000Z","to":"2025-01-01T00:00:00.777Z"}'
    return Entry(label("system.clock_regressed", "system", None), ledger.span(), ledger.root, payload)


def test_readers_that_follow_go_on_in_the_new_file(place):
    state, site = place.path / ".deedbook", Site.of(read_workspace(place.path))
    name = state / "workspace/.events.jsonl"
    with Folder.at(name.parent) as folder:
        follow = Follower(folder.open(name.name), place=str(name))
    before = len(list(follow()))
    with TaskBook.open(state) as book, ApprovalQueue.of(state) as waiting:
        (task,) = book
        excise(site, "workspace", found(place, "task.ended")[0], reason="x", by="local")
        later = list(follow())
        assert [line.seq for line in later] == [before]
        assert later[0].event_type == "ledger.excised"
        book.refresh()
        waiting.refresh()
        assert [each.type for each in book.read_events(book.find(task.id))] == ["task.created", "task.started"]
    follow.close()


def test_reader_in_javascript_agrees_on_every_golden_ledger():
    present = {goldens.named(folder): folder / goldens.NAME for folder in goldens.ledgers() if "1.1" in str(folder)}
    assert len(present) > 20
    assert differences(present) == []
