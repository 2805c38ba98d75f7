"""A server of files: its absolute paths are judged from the workspace's root on; it is told them as they were said."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from persons import perform_once

from deedbook import Decision
from deedbook.approvals.keys import KeyRing
from deedbook.format.errors import Err, Ok
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook.kernel import bindings_for_judging
from deedbook.workspace.workspace import read_workspace, survey_workspace
from deedbook_approvals.answering import answer
from deedbook_audit.rederive import rejudge
from deedbook_author import policy_cases as cases
from deedbook_tool_mcp.server_listing import survey_server, write_listing
from deedbook_tool_mcp.servers import declared_servers

SERVER = Path(__file__).with_name("filesystem.py")
SCHEMAS = Schemas.load(data_folder("schemas"))
UNDER = {"match": {"abilities": ["files/*"], "args": {"/path": {"under": ["out"]}}}, "then": "allow"}


@attrs.define
class Files:
    """The server `files` of a lab's workspace, which may touch *allowed* (default: the workspace)."""

    lab: Any
    log: Path

    def declared(self, *allowed: Path, rule: Any = UNDER, **more: Any) -> "Files":
        dirs = [str(each) for each in allowed or (self.lab.path,)]
        self.lab.settings(
            servers={"files": {"command": [sys.executable, str(SERVER), str(self.log), *dirs], **more}},
            policies={"p": {"kind": "rules", "rules": [rule]}},
        )
        workspace, _ = survey_workspace(self.lab.path)
        listing = survey_server(workspace, declared_servers(workspace)["files"], self.lab.catalogue(), SCHEMAS)
        with Folder.at(self.lab.path) as root:
            write_listing(root, listing)
        return self

    def call(self, name: str, **args: Any) -> Any:
        with self.lab.session() as session:
            return session.call(f"files/{name}", args)

    def told(self) -> list[Any]:
        """Return the arguments that the server was told, call by call."""
        return [json.loads(line)[1] for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def recorded(self) -> Any:
        """Return the arguments of the last call, as its line has them: of the intent, or of the refusal."""
        events = [*self.lab.all("tool.call"), *self.lab.all("tool.denied")]
        return events[-1].payload["args"]


@pytest.fixture
def files(lab: Any, tmp_path_factory: pytest.TempPathFactory) -> Files:
    for name in ("out", "in"):
        (lab.path / name).mkdir()
    (lab.path / "in/a.txt").write_text("inside")
    return Files(lab, tmp_path_factory.mktemp("files") / "log")


def denied(result: Any, code: str = "GATE_DENIED") -> None:
    assert isinstance(result, Err), result
    assert result.error.code == code


def test_the_absolute_path_of_the_servers_own_messages_is_judged_as_the_path_in_the_workspace(files):
    files.declared()
    place = files.lab.path / "out/a.txt"
    said = files.call("write_file", path=str(place), content="x")
    assert isinstance(said, Ok), said
    assert said.value["content"][0]["text"] == f"Successfully wrote to {place.resolve()}"
    assert files.recorded() == {"path": "out/a.txt", "content": "x"}
    assert files.told() == [{"path": str(place), "content": "x"}], "the server is told what the caller said"
    again = files.call("read_file", path=said.value["content"][0]["text"].removeprefix("Successfully wrote to "))
    assert isinstance(again, Ok), "its message leads back to the file"


@pytest.mark.parametrize(
    ("path", "judged"),
    [
        ("{root}/in/a.txt", "in/a.txt"),
        ("{root}/out/../in/a.txt", "in/a.txt"),
        ("{root}", "."),
        ("{root}/linked/a.txt", "in/a.txt"),
        ("{root}/outside/x", "{root}/outside/x"),
        ("/etc/passwd", "/etc/passwd"),
        ("{root}-other/out/x", "{root}-other/out/x"),
        ("out/../../x", "out/../../x"),
        ("linked/a.txt", "in/a.txt"),
        ("file://{root}/out/a.txt", "file://{root}/out/a.txt"),
        ("~/out/a.txt", "~/out/a.txt"),
        ("", ""),
    ],
)
def test_what_is_elsewhere_is_judged_elsewhere_and_denied(files, path, judged):
    root = files.lab.path.resolve()
    (root / "linked").symlink_to(root / "in")
    (root / "outside").symlink_to("/usr")
    files.declared()
    denied(files.call("write_file", path=path.format(root=root), content="x"))
    assert files.recorded()["path"] == judged.format(root=root)
    assert files.told() == []


def test_a_link_within_the_workspace_leads_to_where_it_leads(files):
    root = files.lab.path
    (root / "linked").symlink_to(root / "out")
    files.declared()
    assert isinstance(files.call("write_file", path=str(root / "linked/b.txt"), content="x"), Ok)
    assert files.recorded()["path"] == "out/b.txt"


def test_a_relative_path_begins_in_the_folder_that_the_server_is_started_in(files):
    files.declared(files.lab.path / "out", cwd="out")
    assert isinstance(files.call("write_file", path="a.txt", content="x"), Ok)
    assert (files.recorded()["path"], files.told()) == ("out/a.txt", [{"path": "a.txt", "content": "x"}])
    assert (files.lab.path / "out/a.txt").read_text() == "x"
    denied(files.call("write_file", path="../in/a.txt", content="x"))
    assert files.recorded()["path"] == "in/a.txt"


def test_where_yaml_says_which_arguments_are_paths_the_server_is_told_them_absolutely(files):
    """Else a server that begins elsewhere would do in one folder what was allowed in another."""
    root = files.lab.path.resolve()
    both = {"/source": {"under": ["in"]}, "/destination": {"under": ["out"]}}
    rule = {"match": {"abilities": ["files/move_file"], "args": both}, "then": "allow"}
    files.declared(root / "out", root / "in", rule=rule, tools={"move_file": {"paths": ["/source", "/destination"]}})
    denied(files.call("move_file", source="out/a.txt", destination="out/b.txt"))
    moved = files.call("move_file", source="in/a.txt", destination=str(root / "out/b.txt"))
    assert isinstance(moved, Ok), moved
    assert files.recorded() == {"source": "in/a.txt", "destination": "out/b.txt"}
    assert files.told() == [{"source": str(root / "in/a.txt"), "destination": str(root / "out/b.txt")}]
    assert (root / "out/b.txt").read_text() == "inside"


def test_paths_in_a_rule_see_what_the_call_is_about(files):
    rule = {"match": {"abilities": ["files/*"], "paths": ["out/**"]}, "then": "allow"}
    files.declared(rule=rule)
    assert isinstance(files.call("write_file", path=str(files.lab.path / "out/a.txt"), content="x"), Ok)
    denied(files.call("write_file", path=str(files.lab.path / "in/a.txt"), content="x"))


def test_what_a_rewriter_leaves_is_told_absolutely(files):
    files.lab.hook(
        "move", "PreToolUse", lambda call: Decision("transform", args={**call.args, "path": "out/other.txt"}),
        rewrites=True, match={"abilities": ["files/*"]},
    )  # fmt: skip
    files.declared()
    assert isinstance(files.call("write_file", path=str(files.lab.path / "in/a.txt"), content="x"), Ok)
    assert files.told() == [{"path": str(files.lab.path.resolve() / "out/other.txt"), "content": "x"}]


def test_a_tool_that_takes_absolute_paths_only_is_judged_as_it_was_asked(files):
    files.declared()
    denied(files.call("strict", path=str(files.lab.path / "out/a.txt")))
    assert files.recorded()["path"] == str(files.lab.path / "out/a.txt")
    denied(files.call("strict", path="out/a.txt"), "SCHEMA_VIOLATION")


def test_a_call_that_waited_for_a_person_is_performed_as_it_was_said(files, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    key = KeyRing.of(os.environ).create("ada")
    files.lab.write("ada.pub", f"{key.public}\n")
    files.lab.settings(principals={"ada": {"key": "ada.pub", "roles": ["approver"]}})
    files.declared(files.lab.path / "out", rule={**UNDER, "then": "ask"})
    place = str(files.lab.path / "out/a.txt")
    denied(files.call("write_file", path=place, content="x"), "NEEDS_HUMAN")
    asked = files.lab.payload("approval.requested")
    assert (asked["args"]["path"], asked["given"]["path"]) == ("out/a.txt", place)
    answer(files.lab.path, asked["approval"], approve=True, catalogue=files.lab.catalogue())
    with files.lab.kernel() as kernel:
        assert isinstance(perform_once(kernel, asked["approval"]), Ok)
    assert files.told() == [{"path": place, "content": "x"}]


def test_explain_policy_tests_and_rejudging_agree_with_the_door(files):
    files.declared()
    place = str(files.lab.path / "out/a.txt")
    files.call("write_file", path=place, content="x")
    with bindings_for_judging(read_workspace(files.lab.path), files.lab.catalogue()) as bindings:
        assert [each.change for each in rejudge(files.lab.ledger(), bindings)] == ["same"]
        case = cases.Case(
            name="a", place="x:1", ability="files/write_file", expect="allow", args={"path": place, "content": "x"}
        )
        assert cases.run_case(bindings, case).problem == ""


# --- what a server says of its tools --------------------------------------------------------------------------------


def test_hints_lower_nothing_and_a_tool_that_works_only_as_a_task_is_no_ability(files):
    files.declared()
    document = files.lab.kernel().bindings.charter.document
    assert {entry["effects"] for name, entry in document["abilities"].items() if name.startswith("files/")} == {"write"}
    assert "files/research" not in document["abilities"]
    assert "works only as a task" in document["servers"]["files"]["left_out"]["research"]
