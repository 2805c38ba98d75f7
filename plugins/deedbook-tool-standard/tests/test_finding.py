"""Globs, finding and searching."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Failed
from deedbook_tool_standard import finding, searching
from deedbook_tool_standard.finding import FileFind
from deedbook_tool_standard.globs import Glob
from deedbook_tool_standard.searching import FileSearch

TREE = [
    "README.md",
    "docs/a.md",
    "docs/b.txt",
    "docs/deep/c.md",
    "docs/deep/er/d.md",
    "src/docs/e.md",
    ".git/f.md",
    "docs/.g.md",
]


@pytest.fixture
def tree(root):
    for path in TREE:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"the text of {path}\n")
    return root


def matches(pattern, path):
    glob = Glob(pattern)
    places = glob.start()
    for name in path.split("/"):
        places = glob.step(places, name)
    return glob.matches(places)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.md", ["README.md"]),
        ("docs/*.md", ["docs/a.md"]),
        ("docs/**/*.md", ["docs/a.md", "docs/deep/c.md", "docs/deep/er/d.md"]),
        ("**/*.md", ["README.md", "docs/a.md", "docs/deep/c.md", "docs/deep/er/d.md", "src/docs/e.md"]),
        ("**", ["README.md", "docs/a.md", "docs/b.txt", "docs/deep/c.md", "docs/deep/er/d.md", "src/docs/e.md"]),
        ("**/docs/**", ["docs/a.md", "docs/b.txt", "docs/deep/c.md", "docs/deep/er/d.md", "src/docs/e.md"]),
        ("docs/?.[mt][dx]*", ["docs/a.md", "docs/b.txt"]),
        ("docs/deep/c.md", ["docs/deep/c.md"]),
        ("docs/**/**/c.md", ["docs/deep/c.md"]),
        (".git/*", [".git/f.md"]),
        ("docs/.*", ["docs/.g.md"]),
        ("DOCS/*", []),
        ("docs", []),
        ("[", []),
    ],
)
def test_file_find_finds_what_the_pattern_says(tree, use, pattern, expected):
    assert use(FileFind, pattern=pattern) == {"paths": expected, "truncated": False}


def test_file_find_begins_at_the_folder_and_names_from_the_root(tree, use):
    assert use(FileFind, pattern="**/*.md", path="docs/deep")["paths"] == ["docs/deep/c.md", "docs/deep/er/d.md"]


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "docs/../*", "docs//a", "./a", "docs/"])
def test_file_find_refuses_a_pattern_that_can_match_nothing(tree, fails, pattern):
    assert fails(FileFind, pattern=pattern) == "BAD_PATTERN"


@pytest.mark.parametrize(
    ("path", "code"), [("none", "NO_SUCH_FILE"), ("../x", "PATH_REFUSED"), ("README.md", "PATH_REFUSED")]
)
def test_file_find_refuses_a_folder_it_cannot_begin_at(tree, fails, path, code):
    assert fails(FileFind, pattern="*", path=path) == code


def test_file_find_follows_no_link(tree, use):
    (tree / "way").symlink_to("docs")
    (tree / "loop").symlink_to(".")
    (tree / "link.md").symlink_to("README.md")
    assert use(FileFind, pattern="*.md")["paths"] == ["README.md"]
    assert use(FileFind, pattern="way/*")["paths"] == []
    assert "loop/README.md" not in use(FileFind, pattern="**")["paths"]


def test_file_find_says_when_there_is_more(tree, use, monkeypatch):
    monkeypatch.setattr(finding, "MAX_PATHS", 2)
    found = use(FileFind, pattern="**/*.md")
    assert found["truncated"] is True
    assert len(found["paths"]) == 2


def test_file_find_stops_at_too_many_folders(tree, fails, monkeypatch):
    monkeypatch.setattr(finding, "MAX_FOLDERS", 3)
    assert fails(FileFind, pattern="**/*.md") == "TOO_MANY"


def test_file_find_does_not_enter_folders_where_nothing_can_match(tree, use, host, monkeypatch):
    entered = []
    scan = host.scan
    monkeypatch.setattr(host, "scan", lambda path: entered.append(path) or scan(path))
    use(FileFind, pattern="docs/*.md")
    assert set(entered) == {"", "docs"}


def test_file_find_stops_when_its_time_is_up(tree, use):
    with pytest.raises(Failed) as caught:
        use(FileFind, pattern="**", looks=3)
    assert caught.value.code == "TOOL_TIMEOUT"


NAMES = st.text("ab.", min_size=1, max_size=3).filter(lambda name: name not in {".", ".."})
SEGMENTS = st.one_of(NAMES, st.sampled_from(["*", "?", "**", "a*", "*b", ".*"]))


@given(st.lists(SEGMENTS, min_size=1, max_size=5), st.lists(NAMES, min_size=1, max_size=5))
def test_glob_agrees_with_a_regular_expression(segments, names):
    def expression(segment):
        visible = "" if segment.startswith(".") else r"(?!\.)"
        return visible + re.escape(segment).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")

    parts = [r"(?:(?!\.)[^/]+/)*" if segment == "**" else expression(segment) + "/" for segment in segments]
    path = "/".join(names)
    assert matches("/".join(segments), path) == bool(re.fullmatch("".join(parts), path + "/"))


def test_glob_with_many_stars_is_decided_quickly():
    assert not matches("/".join(["**", "*a*a*a*a*a*a*a*b"] * 12), "/".join(["a" * 200] * 100))


def test_file_search_names_path_line_and_text(tree, use):
    (tree / "docs/a.md").write_text("one\r\nsay a+b here\r\nthree\na+b")
    assert use(FileSearch, text="a+b", paths=["docs/a.md", "README.md"]) == {
        "matches": [
            {"path": "docs/a.md", "line": 2, "text": "say a+b here"},
            {"path": "docs/a.md", "line": 4, "text": "a+b"},
        ],
        "skipped": [],
        "truncated": False,
    }


def test_file_search_takes_a_glob_and_says_what_it_skipped(tree, use):
    (tree / "docs/deep/c.md").write_bytes(b"\xff the text of")
    found = use(FileSearch, text="the text of", glob="docs/**/*.md")
    assert [match["path"] for match in found["matches"]] == ["docs/a.md", "docs/deep/er/d.md"]
    assert found["skipped"] == ["docs/deep/c.md"]


def test_file_search_takes_text_literally(tree, use):
    assert use(FileSearch, text=".*", glob="**")["matches"] == []


@pytest.mark.parametrize(("path", "code"), [("none", "NO_SUCH_FILE"), ("bin", "NOT_TEXT"), ("../x", "PATH_REFUSED")])
def test_file_search_fails_for_a_named_file_it_cannot_search(root, fails, path, code):
    (root / "bin").write_bytes(b"\xff")
    assert fails(FileSearch, text="x", paths=[path]) == code


def test_file_search_says_when_there_is_more(root, use, monkeypatch):
    monkeypatch.setattr(searching, "MAX_MATCHES", 2)
    (root / "a").write_text("x\nx\nx\n")
    found = use(FileSearch, text="x", paths=["a"])
    assert [match["line"] for match in found["matches"]] == [1, 2]
    assert found["truncated"] is True


def test_file_search_says_when_the_glob_found_too_many(tree, use, monkeypatch):
    monkeypatch.setattr(finding, "MAX_PATHS", 1)
    assert use(FileSearch, text="nowhere", glob="**")["truncated"] is True


@pytest.mark.parametrize("before", [0, 50, 5_000])
def test_file_search_shows_a_long_line_around_the_match(root, use, before):
    (root / "a").write_text("-" * before + "needle" + "-" * 5_000)
    (match,) = use(FileSearch, text="needle", paths=["a"])["matches"]
    assert "needle" in match["text"]
    assert len(match["text"]) == searching.MAX_LINE


def test_file_search_stops_when_its_time_is_up(tree, use):
    with pytest.raises(Failed) as caught:
        use(FileSearch, text="x", paths=["README.md", "docs/a.md"], looks=1)
    assert caught.value.code == "TOOL_TIMEOUT"


@pytest.mark.parametrize("args", [{}, {"paths": [], "glob": "*"}])
def test_file_search_wants_either_paths_or_a_glob(args):
    import jsonschema_rs

    assert not jsonschema_rs.is_valid(FileSearch.spec.takes, {"text": "x", **args})
