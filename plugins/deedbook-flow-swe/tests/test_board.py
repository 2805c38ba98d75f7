"""The board of tasks: a board that is read again says what a new one says, and reads only what was recorded since."""

import os
from shutil import copytree, rmtree

import pytest
from shop import FIRST, SECOND, Shop, build, check, outline

from deedbook.format.events import excised_form, split_line
from deedbook_flow_swe.running import board as module
from deedbook_flow_swe.running.board import TaskBoard

FINDING = ("BLOCKER", "token-in-address", "shop.py:1")


class CopiedTask:
    """The ledger of a task that was sent back once, in a state folder of its own, where a test writes it again."""

    def __init__(self, shop, folder):
        shop.lab.settings(seal=["user.message/text"])
        builds = [build(FIRST), build(SECOND)] * 2
        shop.script(outliner=outline(), builder=builds, checker=[check(FINDING), check()])
        assert shop.run().value.state == "COMPLETED"
        source = shop.lab.ledger().parent
        self.state, self.board = folder, TaskBoard(folder)
        self.place = copytree(source, folder / "sessions" / source.name) / ".events.jsonl"
        self.lines = self.place.read_bytes().splitlines(keepends=True)

    def write(self, *lines):
        """Write the ledger in place."""
        self.place.write_bytes(b"".join(lines))

    def replace(self, *lines):
        """Put another file in the place of the ledger, as an excision does."""
        new = self.place.with_name("new")
        new.write_bytes(b"".join(lines))
        new.replace(self.place)

    def row(self):
        """Return the only row of the board that was read before, which is that of a new board; ``None`` without one."""
        rows = self.board.list_rows()
        assert rows == TaskBoard(self.state).list_rows()
        return rows[0] if rows else None

    def excise(self, event_type):
        """Return the lines with the payloads of this type excised."""
        made = []
        for raw in self.lines:
            line = split_line(raw)
            gone = excised_form(line.payload_hash)
            made.append(raw.replace(line.payload, gone) if line.event_type == event_type else raw)
        return made


@pytest.fixture
def copied(lab, tmp_path):
    return CopiedTask(Shop(lab), tmp_path / "state")


def test_board_follows_a_ledger_line_by_line_and_half_a_line_is_none(copied):
    copied.write()
    assert copied.row() is None
    states = []
    for line in copied.lines:
        with copied.place.open("ab") as file:
            file.write(line[:100])
            file.flush()
            copied.row()
            file.write(line[100:])
        row = copied.row()
        states.append(row and row.state)
    assert list(dict.fromkeys(states)) == [None, "BEGUN", "OUTLINE", "BUILD", "CHECK", "ROLLED_BACK", "DONE"]


def test_task_whose_session_was_ended_before_it_has_failed(copied):
    end = next(line for line in copied.lines if b'"session.end"' in line[:400])
    half = copied.lines[: len(copied.lines) // 2]
    copied.write(*half, end)
    assert (copied.row().session_state, copied.row().state) == ("ended", "FAILED")


def test_board_reads_only_what_was_recorded_since(copied, monkeypatch):
    read = []

    def count(file, name):
        for line in lines(file, name):
            read.append(line)
            yield line

    lines = module.read_lines
    monkeypatch.setattr(module, "read_lines", count)
    copied.write(*copied.lines[:-2])
    copied.board.list_rows()
    assert read == copied.lines[:-2]
    read.clear()
    copied.board.list_rows()
    assert read == []
    with copied.place.open("ab") as file:
        file.writelines(copied.lines[-2:])
    copied.board.list_rows()
    assert read == copied.lines[-2:]


def test_ledger_that_was_cut_replaced_edited_or_removed_is_read_anew(copied):
    ended = copied.row()
    assert ended.state == "DONE"
    half = len(copied.lines) // 2
    copied.write(*copied.lines[:half])
    assert copied.row().state != "DONE"
    copied.replace(*copied.lines)
    assert copied.row() == ended
    copied.replace(*copied.lines[: half - 5])
    copied.write(*copied.lines[:half])
    copied.row()
    twice = copied.lines
    copied.write(*twice[: half - 20], *twice)
    copied.row()
    copied.write(b"no line\n", *copied.lines)
    assert copied.row() is None
    copied.write(*copied.lines)
    assert copied.row() == ended
    rmtree(copied.place.parent)
    assert copied.row() is None


def test_excised_and_erased_events_of_a_task_are_left_out(copied):
    ended = copied.row()
    sealed = copied.place.parent / "sealed"
    for each in os.listdir(sealed):
        (sealed / each).unlink()
    assert copied.row() == ended, "the first event of the run names the task too"
    copied.replace(*copied.excise("user.message"))
    assert copied.row() == ended
    copied.replace(*copied.excise("swe.phase_blocked"))
    assert copied.row().history == [line for line in ended.history if "blocked by rule" not in line]
