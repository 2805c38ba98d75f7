"""The tree of a ledger, grown from its file: each line read once, from wherever a leaf left it; what was cut shows."""

from contextlib import closing

import logs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from writing import SESSION, begin, note

from deedbook.format.errors import LedgerError
from deedbook.format.files import Folder
from deedbook_log.checkpoints import trees
from deedbook_log.checkpoints.leaves import Leaf
from deedbook_log.checkpoints.trees import SessionTree


@pytest.fixture
def reads(monkeypatch):
    """Count the lines that are read."""
    counted = []
    real = trees.parse_link
    monkeypatch.setattr(trees, "parse_link", lambda raw, place: counted.append(raw) or real(raw, place))
    return counted


def written(state, lines):
    """Write a session of so many lines, and return its file."""
    with closing(begin(state / "sessions" / SESSION, durability="os")) as ledger:
        ledger.append([note(ledger, f"{n}" * (n % 7)) for n in range(lines - 1)])
    return state / "sessions" / SESSION / ".events.jsonl"


@given(lines=st.integers(2, 70), data=st.data())
def test_tree_grown_in_any_steps_or_from_any_leaf_is_that_of_the_whole_file(tmp_path_factory, lines, data):
    place = tmp_path_factory.mktemp("state")
    stored = written(place, lines).read_bytes().splitlines(keepends=True)
    steps = sorted(data.draw(st.sets(st.integers(1, lines - 1), max_size=4)))
    ends = [sum(map(len, stored[:step])) for step in steps]
    with Folder.at(place) as state:
        track = SessionTree(SESSION)
        for step, end in zip(steps, ends, strict=True):
            track.advance(state, end, durable=True)
            leaf = Leaf.of(0, SESSION, track.tree, track.head)
            assert leaf.payload() | {"index": 0} == logs.leaf_of(_book(stored), 0, step)
            again = SessionTree.resume(state, SESSION, leaf.tree, leaf.head)
            assert (again.end, again.covered) == (end, step)
            again.advance(state, durable=True)
            assert again.tree.root == logs.root(logs.tree_of(stored))
        track.advance(state, durable=True)
        assert [peak.hex() for peak in track.tree.peaks] == logs.peaks(logs.tree_of(stored))


def _book(stored):
    book = logs.Book(SESSION)
    book.lines = stored
    return book


def test_only_new_lines_are_read(tmp_path, reads):
    path = written(tmp_path, 500)
    stored = path.read_bytes().splitlines(keepends=True)
    with Folder.at(tmp_path) as state:
        track = SessionTree(SESSION)
        track.advance(state, sum(map(len, stored[:490])), durable=True)
        reads.clear()
        track.advance(state, durable=True)
        assert len(reads) == 10
        leaf = logs.leaf_of(_book(stored), 0, 495)
        reads.clear()
        SessionTree.resume(state, SESSION, Leaf.parse(leaf, "").tree, leaf["head"]).advance(state, durable=True)
        assert len(reads) == 6  # the leaf's own, and the new ones


@pytest.mark.parametrize("durable", [True, False])
def test_session_is_synced_unless_it_is_durable(tmp_path, monkeypatch, durable):
    synced = []
    monkeypatch.setattr(trees, "DATASYNC", synced.append)
    written(tmp_path, 3)
    with Folder.at(tmp_path) as state:
        SessionTree(SESSION).advance(state, durable=durable)
    assert len(synced) == (not durable)


@pytest.mark.parametrize("left", [0, 3, 5])
def test_file_with_fewer_lines_than_its_leaf_is_refused(tmp_path, left):
    path = written(tmp_path, 6)
    stored = path.read_bytes().splitlines(keepends=True)
    leaf = Leaf.parse(logs.leaf_of(_book(stored), 0), "")
    path.write_bytes(b"".join(stored[:left]))
    with Folder.at(tmp_path) as state, pytest.raises(LedgerError, match="covers its first 6 lines"):
        SessionTree.resume(state, SESSION, leaf.tree, leaf.head)


def test_file_whose_line_is_another_than_its_leaf_names_is_refused(tmp_path):
    path = written(tmp_path, 6)
    stored = path.read_bytes().splitlines(keepends=True)
    leaf = Leaf.parse(logs.leaf_of(_book(stored), 0, 4), "")
    with Folder.at(tmp_path) as state:
        with pytest.raises(LedgerError, match="another one now"):
            SessionTree.resume(state, SESSION, leaf.tree, "0" * 64)
        path.unlink()
        with pytest.raises(LedgerError, match="its file is gone"):
            SessionTree.resume(state, SESSION, leaf.tree, leaf.head)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda lines: [*lines[:3], *lines[4:]], "does not follow"),
        (lambda lines: lines[:2], "it was cut"),
        (lambda lines: [*lines[:4], b"{}\n", *lines[4:]], "not a line"),
    ],
)
def test_file_that_is_not_what_was_written_is_not_read_on(tmp_path, change, match):
    path = written(tmp_path, 6)
    stored = path.read_bytes().splitlines(keepends=True)
    with Folder.at(tmp_path) as state:
        track = SessionTree(SESSION)
        track.advance(state, sum(map(len, stored[:3])), durable=True)
        path.write_bytes(b"".join(change(stored)))
        with pytest.raises(LedgerError, match=match):
            track.advance(state, durable=True)


@pytest.mark.parametrize("changed", [{"root": "0" * 64}, {"peaks": []}, {"size": 3}, {"peaks": ["zz"]}, {"size": None}])
def test_leaf_that_is_not_what_was_written_is_refused(tmp_path, changed):
    stored = written(tmp_path, 6).read_bytes().splitlines(keepends=True)
    with pytest.raises(LedgerError, match="not what was written"):
        Leaf.parse({**logs.leaf_of(_book(stored), 0, 4), **changed}, "")
