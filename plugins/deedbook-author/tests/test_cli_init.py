"""``deedbook init``: a workspace whole or not at all, which works at once, and whose files editors can check."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import jsonschema_rs
import pytest
from commandline import Place
from ruamel.yaml import YAML

from deedbook.workspace.documents import parse_yaml
from deedbook_author.starter import STARTER


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def listed(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_minimal_workspace_is_one_file_and_works(place):
    place.here("init", status=0)
    yaml = [path for path in listed(place.path) if path.endswith(".yaml")]
    assert yaml == [".system/deedbook.yaml"]
    ran = place.here("call", "echo", "--args", '{"text": "hello"}', status=0)
    assert json.loads(ran.out) == {"text": "hello"}
    args = {"path": "notes.md", "text": "x", "expected_hash": "", "who": "me", "why": "try"}
    assert place.here("call", "file-write", "--args", json.dumps(args)).status == 3
    place.here("call", "file-write", "--args", json.dumps(args | {"path": "reports/notes.md"}), status=0)


def test_full_starter_is_copied_whole_and_runs(place):
    place.here("init", "--full", status=0)
    own = set(listed(STARTER))
    assert own == {path for path in listed(place.path / ".system") if not path.startswith("schemas/")}
    assert place.here("run", "Say hello to Ada", status=0).out == "Hello, Ada!\n"


def test_the_next_command_is_said_and_works_as_it_stands(place):
    ran = place.here("init", "here", "--full", status=0)
    (line,) = [line for line in ran.err.splitlines() if line.startswith("try:")]
    path = f"{Path(place.path / 'x').parent}:{os.environ['PATH']}"
    command = Path(os.sys.executable).parent
    ended = subprocess.run(["sh", "-c", line.removeprefix("try:")], cwd=place.path, capture_output=True, check=True,
                           env=os.environ | {"PATH": f"{command}:{path}"})  # fmt: skip
    assert ended.stdout == b"Hello, Ada!\n"


@pytest.mark.parametrize("how", ["minimal", "full"])
def test_every_yaml_file_names_a_schema_that_is_there_and_that_it_fits(place, how):
    place.here("init", *(["--full"] if how == "full" else []), status=0)
    files = list(place.path.rglob("*.yaml"))
    assert files
    for path in files:
        first, second = path.read_text().splitlines()[:2]
        reached = first.removeprefix("# yaml-language-server: $schema=")
        assert second == f"# $schema: {reached}"
        schema = json.loads((path.parent / reached).read_text())
        parse_yaml(path.read_bytes(), path.name)
        assert jsonschema_rs.is_valid(schema, YAML(typ="safe").load(path.read_text())), path


def test_state_is_kept_out_of_git_once(place):
    place.write(".gitignore", "build/")
    place.here("init", status=0)
    assert (place.path / ".gitignore").read_text() == "build/\n.deedbook/\n"
    shutil.rmtree(place.path / ".system")
    place.here("init", status=0)
    assert (place.path / ".gitignore").read_text() == "build/\n.deedbook/\n"


def test_workspace_that_is_there_is_never_changed(place):
    place.system("deedbook.yaml", "schema_version: v1\n")
    before = listed(place.path)
    ran = place.here("init", "--full", status=2)
    assert "[USAGE]" in ran.err
    assert "--schemas" in ran.err
    assert listed(place.path) == before
    (place.path / "other").mkdir()
    (place.path / "other" / ".system").symlink_to(place.path / "nowhere")
    place.here("init", "other", status=2)


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_gitignore_that_leads_elsewhere_is_refused_and_nothing_is_begun(place, tmp_path, kind):
    outside = tmp_path.with_name(f"{tmp_path.name}-outside")
    outside.write_text("precious")
    ignored = place.path / ".gitignore"
    {"link": lambda: ignored.symlink_to(outside), "fifo": lambda: os.mkfifo(ignored), "folder": ignored.mkdir}[kind]()
    ran = place.here("init", status=1)
    assert "[PATH_REFUSED]" in ran.err
    assert [path.name for path in place.path.iterdir()] == [".gitignore"]
    assert outside.read_text() == "precious"


@pytest.mark.parametrize("linked", ["schemas", "schemas/hook_v1.json"])
def test_schemas_are_never_written_through_a_link(place, tmp_path, linked):
    place.system("deedbook.yaml", "schema_version: v1\n")
    outside = tmp_path / "outside"
    if linked == "schemas":
        outside.mkdir()
    else:
        outside.write_text("precious")
        (place.path / ".system/schemas").mkdir()
    (place.path / ".system" / linked).symlink_to(outside)
    assert "[PATH_REFUSED]" in place.here("init", "--schemas", status=1).err
    assert not list(outside.iterdir()) if outside.is_dir() else outside.read_text() == "precious"


def test_folder_that_cannot_be_made_is_one_line(place):
    place.write("file", "x")
    assert place.here("init", "file").status == 2
    ran = place.here("init", "file/below")
    assert ran.status == 1
    assert len(ran.err.splitlines()) == 1
    assert listed(place.path) == ["file"]


def test_schemas_are_renewed_where_a_workspace_is(place):
    assert place.here("init", "--schemas").status == 2
    place.system("deedbook.yaml", "schema_version: v1\n")
    place.system("schemas/hook_v1.json", "{}")
    place.here("init", "--schemas", status=0)
    assert json.loads((place.path / ".system/schemas/hook_v1.json").read_text())["$id"] == "hook_v1"
    assert (place.path / ".system/deedbook.yaml").read_text() == "schema_version: v1\n"
    place.here("init", "--schemas", "--full", status=2)


EXAMPLES = {
    "say it again: repeat hello": "echo",
    "count lines of README.md": "file-count",
    "read README.md": "file-read",
    "search for TODO": "file-search",
    "save this in reports/a.md": "file-write",
}


def test_starter_routes_everyday_prompts_and_lint_is_silent(place):
    place.here("init", "--full", status=0)
    assert "0 errors, 0 notes" in place.here("registry", "lint", status=0).err
    for prompt, ability in EXAMPLES.items():
        first, *_ = place.here("route", prompt, "--json", status=0).json["abilities"]
        assert (first["id"], first["by"]) == (ability, "trigger"), prompt
