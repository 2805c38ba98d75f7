"""Echo, reading, hashing and listing."""

import os
from hashlib import sha256

import pytest

from deedbook_tool_standard import listing
from deedbook_tool_standard.echo import Echo
from deedbook_tool_standard.listing import FileList
from deedbook_tool_standard.reach import MAX_TEXT
from deedbook_tool_standard.reading import FileHash, FileRead


def test_echo_gives_the_text_back(use):
    assert use(Echo, text="Hello, Ada\n\N{SNOWMAN}") == {"text": "Hello, Ada\n\N{SNOWMAN}"}


def test_file_read_gives_exactly_what_is_there(root, use):
    raw = "\ufefffirst\r\nl\u00e4st\x00".encode()
    (root / "a.txt").write_bytes(raw)
    read = use(FileRead, path="a.txt")
    assert read == {"path": "a.txt", "text": raw.decode(), "hash": sha256(raw).hexdigest(), "bytes": len(raw)}


def test_file_read_gives_an_empty_file_a_hash(root, use):
    (root / "empty").touch()
    assert use(FileRead, path="empty")["hash"] == sha256(b"").hexdigest()


@pytest.mark.parametrize(("size", "code"), [(10, None), (11, "TOO_LARGE")])
def test_file_read_is_bounded_by_max_bytes_and_never_cut(root, use, fails, size, code):
    (root / "a").write_bytes(b"x" * size)
    if code:
        assert fails(FileRead, path="a", max_bytes=10) == code
    else:
        assert use(FileRead, path="a", max_bytes=10)["bytes"] == size


def test_file_read_is_bounded_without_max_bytes(root, fails):
    (root / "big").write_bytes(b"x" * (MAX_TEXT + 1))
    assert fails(FileRead, path="big") == "TOO_LARGE"


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"ok\x80", "\u00e4".encode("latin-1"), b"\xed\xa0\x80"])
def test_file_read_refuses_what_is_not_utf8(root, fails, raw):
    (root / "a").write_bytes(raw)
    assert fails(FileRead, path="a") == "NOT_TEXT"


@pytest.mark.parametrize("kind", [FileRead, FileHash])
@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "a/../../secret", "link", "way/secret", "pipe", "twin", "folder"]
)
def test_no_tool_reads_outside_or_what_is_no_plain_file(root, fails, kind, path):
    (root.parent / "secret").write_text("s")
    (root / "folder").mkdir()
    (root / "link").symlink_to("../secret")
    (root / "way").symlink_to("..")
    os.link(root.parent / "secret", root / "twin")
    os.mkfifo(root / "pipe")
    assert fails(kind, path=path) == "PATH_REFUSED"


def test_file_read_says_what_is_absent(fails):
    assert fails(FileRead, path="a/b") == "NO_SUCH_FILE"


def test_file_hash_is_what_file_read_says(root, use):
    (root / "a").write_text("text")
    assert use(FileHash, path="a") == {"path": "a", "hash": use(FileRead, path="a")["hash"]}


def test_file_hash_of_a_large_binary_file_is_taken(root, use):
    raw = b"\xff" * (MAX_TEXT + 1)
    (root / "big").write_bytes(raw)
    assert use(FileHash, path="big")["hash"] == sha256(raw).hexdigest()


@pytest.mark.parametrize("path", ["none", "no/folder/either"])
def test_file_hash_of_an_absent_file_is_empty(use, path):
    assert use(FileHash, path=path) == {"path": path, "hash": ""}


def test_file_list_shows_one_folder_sorted_without_links(root, use):
    (root / "docs/deep").mkdir(parents=True)
    (root / "docs/b.md").write_text("bb")
    (root / "docs/a.md").write_text("a")
    (root / "docs/link").symlink_to("a.md")
    assert use(FileList, path="docs")["entries"] == [
        {"path": "docs/a.md", "folder": False, "size": 1},
        {"path": "docs/b.md", "folder": False, "size": 2},
        {"path": "docs/deep", "folder": True, "size": 0},
    ]


def test_file_list_begins_at_the_root(root, use):
    (root / "a").touch()
    assert use(FileList) == {"entries": [{"path": "a", "folder": False, "size": 0}], "truncated": False}


def test_file_list_says_when_there_is_more(root, use, monkeypatch):
    monkeypatch.setattr(listing, "MAX_ENTRIES", 2)
    for name in "abc":
        (root / name).touch()
    listed = use(FileList)
    assert [entry["path"] for entry in listed["entries"]] == ["a", "b"]
    assert listed["truncated"] is True


@pytest.mark.parametrize(("path", "code"), [("none", "NO_SUCH_FILE"), ("a", "PATH_REFUSED"), ("..", "PATH_REFUSED")])
def test_file_list_refuses_what_is_no_folder_beneath_the_root(root, fails, path, code):
    (root / "a").touch()
    assert fails(FileList, path=path) == code
