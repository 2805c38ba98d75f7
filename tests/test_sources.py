"""Finding a workspace, and reading its files without following links."""

import os
import re
from hashlib import sha256

import pytest

from deedbook.format.errors import SourceError
from deedbook.format.files import Folder
from deedbook.workspace.documents import load_yaml, parse_front_matter
from deedbook.workspace.sources import find_workspace, list_entries, list_files, read


@pytest.fixture
def folder(tmp_path):
    with Folder.at(tmp_path) as root:
        yield root


def put(root, path, text="a: 1\n"):
    where = root / path
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_bytes(text if isinstance(text, bytes) else text.encode())
    return where


def fault_of(act, *args):
    with pytest.raises(SourceError) as caught:
        act(*args)
    (error,) = caught.value.errors
    return error


# --- finding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["", "src", "src/deep/er", ".system/hooks"])
def test_a_workspace_is_found_from_every_folder_in_it(tmp_path, start):
    (tmp_path / ".system" / "hooks").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "er").mkdir(parents=True)
    assert find_workspace(tmp_path / start) == tmp_path


def test_the_nearest_workspace_is_found(tmp_path):
    inner = tmp_path / "examples" / "one"
    (tmp_path / ".system").mkdir()
    (inner / ".system").mkdir(parents=True)
    assert find_workspace(inner) == inner
    assert find_workspace(inner.parent) == tmp_path


def test_a_file_called_system_makes_no_workspace(tmp_path):
    put(tmp_path, "inner/.system", "")
    (tmp_path / ".system").mkdir()
    assert find_workspace(tmp_path / "inner") == tmp_path


def test_a_relative_start_is_where_the_process_is(tmp_path, monkeypatch):
    (tmp_path / ".system").mkdir()
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    assert find_workspace(tmp_path.__class__()) == tmp_path


def test_two_dots_lead_up_and_not_back_down(tmp_path):
    (tmp_path / "inner" / ".system").mkdir(parents=True)
    (tmp_path / ".system").mkdir()
    assert find_workspace(tmp_path / "inner" / "..") == tmp_path


def test_without_a_workspace_the_message_says_where_was_looked_and_what_to_do(tmp_path):
    error = fault_of(find_workspace, tmp_path)
    assert error.code == "WORKSPACE_NOT_FOUND"
    assert str(tmp_path) in error.message
    assert "deedbook init" in error.message


# --- reading ----------------------------------------------------------------------------------------------------------


def test_yaml_is_read_with_path_and_digest(tmp_path, folder):
    put(tmp_path, "hooks/a.yaml", "a: 1\n")
    document = load_yaml(folder, "hooks/a.yaml")
    assert document.value == {"a": 1}
    assert document.place("/a") == "hooks/a.yaml:1:4"
    assert document.digest == sha256(b"a: 1\n").hexdigest()


def test_front_matter_is_read(tmp_path, folder):
    put(tmp_path, "agents/lead.md", "---\ntier: large\n---\nLead.\n")
    document, body = parse_front_matter(folder.read("agents/lead.md", limit=1000), "agents/lead.md")
    assert (document.value, body) == ({"tier": "large"}, "Lead.\n")


@pytest.mark.parametrize("kind", ["link", "folder link", "hard link", "fifo", "device link", "folder", "outside"])
def test_what_is_no_regular_file_of_the_workspace_is_refused(tmp_path, folder, kind):
    target = put(tmp_path, "real/a.yaml")
    path = "a.yaml"
    match kind:
        case "link":
            (tmp_path / path).symlink_to(target)
        case "folder link":
            (tmp_path / "linked").symlink_to(tmp_path / "real")
            path = "linked/a.yaml"
        case "hard link":
            os.link(target, tmp_path / path)
        case "fifo":
            os.mkfifo(tmp_path / path)
        case "device link":
            (tmp_path / path).symlink_to("/dev/zero")
        case "folder":
            path = "real"
        case "outside":
            path = "../a.yaml"
    error = fault_of(read, folder, path)
    assert error.code == "PATH_REFUSED"
    assert error.place == path


def test_a_missing_file_is_refused_by_its_path(folder):
    error = fault_of(load_yaml, folder, "hooks/a.yaml")
    assert str(error) == "hooks/a.yaml: cannot be read: No such file or directory"


def test_64_kib_are_read_and_one_byte_more_is_refused(tmp_path, folder):
    put(tmp_path, "a.yaml", b"#" * (64 * 1024 - 5) + b"\na: 1")
    assert load_yaml(folder, "a.yaml").value == {"a": 1}
    put(tmp_path, "a.yaml", b"#" * (64 * 1024 - 5) + b"\na: 1\n")
    assert "65536" in fault_of(load_yaml, folder, "a.yaml").message


def test_an_unreadable_file_is_refused_by_its_path(tmp_path, folder):
    where = put(tmp_path, "a.yaml")
    where.chmod(0)
    if os.access(where, os.R_OK):
        pytest.skip("this user may read everything")
    assert "Permission denied" in fault_of(read, folder, "a.yaml").message


# --- listing ----------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_empty(folder):
    assert list_entries(folder, "hooks") == ([], [])


def test_yaml_files_are_listed_in_order_and_hidden_names_left_out(tmp_path, folder):
    for name in ("b.yaml", "a.yaml", ".hidden.yaml", "README.md", "notes.txt", "a.yaml~"):
        put(tmp_path, f"hooks/{name}")
    (tmp_path / "hooks" / ".#a.yaml").symlink_to("nobody@nowhere")  # an editor's lock
    assert list_files(folder, "hooks", ".yaml") == (["hooks/a.yaml", "hooks/b.yaml"], [])


@pytest.mark.parametrize(("name", "said"), [("a.yml", "a.yaml"), ("a.YAML", "a.yaml"), ("a.json", "a.yaml")])
def test_a_file_that_would_be_passed_over_by_its_spelling_is_a_fault(tmp_path, folder, name, said):
    put(tmp_path, f"hooks/{name}")
    paths, (error,) = list_files(folder, "hooks", ".yaml")
    assert paths == []
    assert str(error) == f'hooks/{name}: is not read; rename it to "{said}"'


def test_a_folder_among_yaml_files_is_a_fault_and_among_markdown_files_none(tmp_path, folder):
    put(tmp_path, "hooks/team/a.yaml")
    put(tmp_path, "agents/persona/.agent")
    assert [str(each) for each in list_files(folder, "hooks", ".yaml")[1]] == [
        "hooks/team: is a folder, which is not read; move its files up"
    ]
    assert list_files(folder, "agents", ".md") == ([], [])


@pytest.mark.parametrize("kind", ["link", "dangling", "hard link", "fifo", "folder link"])
def test_what_stands_there_and_can_never_be_read_is_a_fault(tmp_path, folder, kind):
    target = put(tmp_path, "real/a.yaml")
    put(tmp_path, "hooks/b.yaml")
    where = tmp_path / "hooks" / "a.yaml"
    match kind:
        case "link":
            where.symlink_to(target)
        case "dangling":
            where.symlink_to("nowhere")
        case "hard link":
            os.link(target, where)
        case "fifo":
            os.mkfifo(where)
        case "folder link":
            where.symlink_to(tmp_path / "real")
    paths, (error,) = list_files(folder, "hooks", ".yaml")
    assert paths == ["hooks/b.yaml"]
    assert error.code == "PATH_REFUSED"
    assert re.match(r"hooks/a\.yaml: is a link, a special file or has several names", str(error))


def test_a_name_with_control_characters_is_a_fault_on_one_line(tmp_path, folder):
    put(tmp_path, "hooks/a\n\x1b[2J.yaml")
    paths, (error,) = list_files(folder, "hooks", ".yaml")
    assert paths == []
    assert str(error).isprintable()


def test_a_folder_that_is_a_link_is_a_fault(tmp_path, folder):
    put(tmp_path, "real/a.yaml")
    (tmp_path / "hooks").symlink_to(tmp_path / "real")
    paths, (error,) = list_files(folder, "hooks", ".yaml")
    assert paths == []
    assert (error.code, error.place) == ("PATH_REFUSED", "hooks")
