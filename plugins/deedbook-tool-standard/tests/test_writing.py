"""Counting and protected write."""

import os
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Failed
from deedbook_tool_standard import counting
from deedbook_tool_standard.counting import FileCount
from deedbook_tool_standard.reach import MAX_TEXT
from deedbook_tool_standard.reading import FileHash, FileRead
from deedbook_tool_standard.writing import FileWrite

CLAIM = {"who": "worker", "why": "report the survey"}


def test_file_count_counts_each_file_and_the_total(root, use):
    (root / "a.md").write_text("one two\nthree\n")
    (root / "b.md").write_text("l\u00e4st line without end")
    counted = use(FileCount, paths=["a.md", "b.md"])
    assert counted["files"] == [
        {"path": "a.md", "lines": 2, "words": 3, "bytes": 14},
        {"path": "b.md", "lines": 1, "words": 4, "bytes": 22},
    ]
    assert counted["total"] == {"files": 2, "lines": 3, "words": 7, "bytes": 36}
    assert counted["table"].splitlines() == [
        "| file | lines | words | bytes |",
        "|:-----|------:|------:|------:|",
        "| a.md | 2 | 3 | 14 |",
        "| b.md | 1 | 4 | 22 |",
        "| **total** | 3 | 7 | 36 |",
    ]


def test_file_count_of_nothing_is_zero(use):
    assert use(FileCount, paths=[])["total"] == {"files": 0, "lines": 0, "words": 0, "bytes": 0}


def test_file_count_keeps_a_hostile_name_inside_its_cell(root, use):
    (root / "a | <b> `c` [d](e)").touch()
    row = use(FileCount, paths=["a | <b> `c` [d](e)"])["table"].splitlines()[2]
    assert row == "| a \\| \\<b\\> \\`c\\` \\[d\\](e) | 0 | 0 | 0 |"


@given(st.text())
def test_count_of_lines_is_what_splitting_says(text):
    lines = text.split("\n")
    expected = len(lines) if lines[-1] else len(lines) - 1
    assert counting.count("a", text.encode()).lines == expected


@pytest.mark.parametrize(("name", "code"), [("none", "NO_SUCH_FILE"), ("bin", "NOT_TEXT"), ("big", "TOO_LARGE")])
def test_file_count_fails_where_it_cannot_count(root, fails, monkeypatch, name, code):
    monkeypatch.setattr(counting, "MAX_COUNTED", 100)
    (root / "bin").write_bytes(b"\xff")
    (root / "big").write_bytes(b"x" * 101)
    assert fails(FileCount, paths=[name]) == code


def test_file_count_stops_when_its_time_is_up(root, use):
    (root / "a").touch()
    with pytest.raises(Failed) as caught:
        use(FileCount, paths=["a", "a"], looks=1)
    assert caught.value.code == "TOOL_TIMEOUT"


def test_file_write_makes_a_new_file_and_the_folders_above(root, use):
    written = use(FileWrite, path="reports/2024/a.md", text="\u00e4\r\n", expected_hash="", **CLAIM)
    raw = (root / "reports/2024/a.md").read_bytes()
    assert raw == "\u00e4\r\n".encode()
    assert written == {"path": "reports/2024/a.md", "hash": sha256(raw).hexdigest(), "bytes": 4}


@pytest.mark.parametrize("tool", [FileRead, FileHash])
def test_file_write_replaces_what_was_read(root, use, tool):
    (root / "a").write_text("old")
    use(FileWrite, path="a", text="new", expected_hash=use(tool, path="a")["hash"], schema_version="v1", **CLAIM)
    assert (root / "a").read_text() == "new"


@pytest.mark.parametrize("expected", ["", "0" * 64, sha256(b"").hexdigest()])
def test_file_write_changes_nothing_on_a_conflict(root, use, expected):
    (root / "a").write_text("theirs")
    with pytest.raises(Failed) as caught:
        use(FileWrite, path="a", text="mine", expected_hash=expected, **CLAIM)
    assert caught.value.code == "WRITE_CONFLICT"
    assert "worker, to report the survey" in str(caught.value)
    assert (root / "a").read_text() == "theirs"
    assert os.listdir(root) == ["a"]


def test_file_write_of_a_file_that_went_away_is_a_conflict(root, fails):
    assert fails(FileWrite, path="a/b", text="mine", expected_hash="0" * 64, **CLAIM) == "WRITE_CONFLICT"
    assert os.listdir(root) == []


def test_file_write_lets_one_of_many_writers_win(root, use):
    (root / "a").write_text("old")
    seen = use(FileHash, path="a")["hash"]

    def write(number):
        try:
            return use(FileWrite, path="a", text=f"new {number}", expected_hash=seen, **CLAIM)["hash"]
        except Failed as problem:
            return problem.code

    with ThreadPoolExecutor(8) as writers:
        results = list(writers.map(write, range(16)))
    assert results.count("WRITE_CONFLICT") == 15
    assert sha256((root / "a").read_bytes()).hexdigest() in results


@pytest.mark.parametrize("path", ["../out", "/out", "link", "way/out", "pipe", "twin", "folder", "a\nb"])
def test_file_write_refuses_what_is_no_plain_file_beneath_the_root(root, fails, path):
    outside = root.parent / "secret"
    outside.write_text("theirs")
    (root / "folder").mkdir()
    (root / "link").symlink_to("../secret")
    (root / "way").symlink_to("..")
    os.link(outside, root / "twin")
    os.mkfifo(root / "pipe")
    for expected in ("", sha256(b"theirs").hexdigest()):
        assert fails(FileWrite, path=path, text="mine", expected_hash=expected, **CLAIM) == "PATH_REFUSED"
    assert outside.read_text() == "theirs"
    assert sorted(os.listdir(root.parent)) == ["root", "secret"]


def test_file_write_refuses_more_than_a_record_holds(root, fails):
    text = "\u00e4" * (MAX_TEXT // 2 + 1)
    assert fails(FileWrite, path="a", text=text, expected_hash="", **CLAIM) == "TOO_LARGE"
    assert os.listdir(root) == []


def test_file_write_does_nothing_when_its_time_is_up(root, use):
    with pytest.raises(Failed) as caught:
        use(FileWrite, path="a", text="x", expected_hash="", looks=0, **CLAIM)
    assert caught.value.code == "TOOL_TIMEOUT"
    assert os.listdir(root) == []
