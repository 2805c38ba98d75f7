"""The tools keep the contract that third parties keep; and what reading, writing and moving promise."""

from hashlib import sha256
from typing import ClassVar

import pytest
from git_workshop import ABILITIES, COPY, PROJECT, README, Calls, git, hashes, make_project

from deedbook.format.files import Folder
from deedbook.plugins.host import WorkspaceHost
from deedbook_flow_swe.tools.writing import SweMove, SweWrite
from deedbook_testing import Example, ToolContract

ROOMS = tuple(
    f"deedbook.{room}"
    for room in (
        "approvals", "call", "charter", "cli", "continuation", "contract", "format", "kernel", "ledger", "maintenance",
        "plugins", "policy", "programs", "sessions", "workspace",
    )
)  # fmt: skip
"""The rooms that the distribution uses beside the contract: it has a feature and commands."""
DIGEST = sha256(b"one\n").hexdigest()


class Reading(ToolContract):
    rooms = ROOMS

    def prepare(self, lab):
        lab.write("tasks/t-1/a/one.md", "one\n", system=False)
        lab.write("tasks/t-1/b/two.md", "two\n", system=False)


class TestSweRead(Reading):
    name = "swe-read"
    examples = (
        Example(
            {"paths": ["tasks/t-1/a/*.md", "tasks/t-1/c.md"], "optional": ["tasks/t-1/d/"]},
            gives={
                "files": [{"path": "tasks/t-1/a/one.md", "text": "one\n", "digest": DIGEST, "bytes": 4}],
                "missing": ["tasks/t-1/c.md"],
            },
        ),
        Example({"paths": ["tasks/"]}, holds=lambda result: len(result["files"]) == 2),
        Example({"paths": ["../outside.md"]}, fails="PATH_REFUSED"),
        Example({"paths": ["../*"]}, fails="BAD_PATTERN"),
    )


class TestSweSlice(Reading):
    name = "swe-slice"
    examples = (
        Example(
            {"root": "tasks/t-1", "files": ["**/*.md"], "most_bytes": 5},
            gives={
                "files": [{"path": "a/one.md", "text": "one\n", "digest": DIGEST, "bytes": 4}],
                "left_out": [{"path": "b/two.md", "why": "size"}],
                "bytes": 4,
            },
        ),
        Example(
            {"root": "tasks/t-1", "files": ["**/*.md"], "most_bytes": 9, "names": ["one"]},
            holds=lambda result: [each["path"] for each in result["files"]] == ["a/one.md", "b/two.md"],
        ),
        Example({"root": "..", "files": ["*"], "most_bytes": 5}, fails="BAD_PATTERN"),
    )


class TestSweWrite(Reading):
    name = "swe-write"
    examples = (
        Example(
            {
                "paths": ["tasks/t-1/c/new.md", "tasks/t-1/a/one.md"],
                "texts": ["one\n", "1\n"],
                "expected": ["", DIGEST],
            },
            holds=lambda result: result["digests"]["tasks/t-1/c/new.md"] == DIGEST,
        ),
        Example({"paths": ["a"], "texts": ["x"], "expected": ["0" * 64]}, fails="WRITE_CONFLICT"),
        Example({"paths": ["a", "b"], "texts": ["x"], "expected": [None]}, fails="ARGUMENT_REFUSED"),
        Example({"paths": [".git/config"], "texts": ["x"], "expected": [None]}, fails="PATH_REFUSED"),
    )


class TestSweMove(Reading):
    name = "swe-move"
    ability = {"paths": ["/paths", "/to"]}
    examples = (
        Example(
            {"paths": ["tasks/t-1/a/one.md"], "to": ["tasks/t-1/superseded/1-a/one.md"]},
            gives={"digests": {"tasks/t-1/superseded/1-a/one.md": DIGEST}},
        ),
        Example({"paths": ["tasks/t-1/a/one.md"], "to": ["x.md"]}, fails="NO_SUCH_FILE"),
        Example({"paths": ["tasks/t-1/b/two.md"], "to": ["../two.md"]}, fails="PATH_REFUSED"),
    )


class TestSwePatch(ToolContract):
    name = "swe-patch"
    rooms = ROOMS
    examples = (
        Example(
            {"patch": README, "allow": ["*.md"], "most_lines": 2},
            gives={
                "files": [{"path": "README.md", "kind": "changed", "added": 1, "removed": 1}],
                "added": 1,
                "removed": 1,
            },
        ),
        Example({"patch": README, "allow": ["src/**"]}, fails="PATCH_REFUSED"),
    )


class TestSweReview(ToolContract):
    name = "swe-review"
    rooms = ROOMS
    ability: ClassVar = {"tags": ["approval-gate"]}
    examples = (
        Example(
            {
                "task": "t-1",
                "phase": "security",
                "issue": "security:auth:x",
                "reason": "auth",
                "seen": {"x": DIGEST},
            },
            fails="NEEDS_HUMAN",
        ),
    )


class TestSweGit(ToolContract):
    name = "swe-git"
    rooms = ROOMS
    repeatable = False  # commits have dates
    bad_settings = ({"name": "<"},)
    examples = (
        Example({"action": "head", "repository": PROJECT}, holds=lambda result: result["clean"]),
        Example({"action": "merge", "worktree": COPY}, fails="ARGUMENT_REFUSED"),
    )

    def prepare(self, lab):
        make_project(lab.path)


# --- reading, writing and moving --------------------------------------------------------------------------------------


@pytest.fixture
def calls(lab):
    lab.settings(abilities=ABILITIES)
    return Calls(lab.session())


@pytest.fixture
def host(lab):
    with Folder.at(lab.path) as folder:
        yield WorkspaceHost(folder, [""], [".deedbook"], {})


def test_read_leaves_out_what_is_excluded_and_reads_nothing_twice(calls, lab):
    for name in ("agents/a/persona.md", "agents/a/rewards.md", "agents/b/rewards.md"):
        lab.write(name, name, system=False)
    found = calls("read", paths=["agents/", "agents/a/persona.md"], exclude=["agents/*/rewards.md"])
    assert [each["path"] for each in found["files"]] == ["agents/a/persona.md"]
    assert found["missing"] == []


def test_read_follows_no_link_and_reads_no_second_name(calls, lab):
    outside = lab.path.parent / "secret.md"
    outside.write_text("secret")
    (lab.path / "data").mkdir()
    (lab.path / "data/link.md").symlink_to(outside)
    (lab.path / "data/twin.md").hardlink_to(outside)
    (lab.path / "data/up").symlink_to("..")
    assert calls("read", paths=["data/**"]) == {"files": [], "missing": ["data/**"]}
    for path in ("data/link.md", "data/twin.md", "data/up/secret.md"):
        assert calls.fails("read", paths=[path]).code == "PATH_REFUSED"


def test_write_checks_everything_before_it_writes_anything(calls, lab):
    lab.write("a", "theirs", system=False)
    error = calls.fails("write", paths=["new", "a"], texts=["x", "mine"], expected=["", ""])
    assert (error.code, (lab.path / "new").exists(), (lab.path / "a").read_text()) == (
        "WRITE_CONFLICT",
        False,
        "theirs",
    )
    assert calls.fails("write", paths=["new", "new"], texts=["x", "y"], expected=["", ""]).code == "ARGUMENT_REFUSED"


def test_write_that_was_interrupted_is_finished(host, lab):
    args = {"paths": ["a", "b", "c"], "texts": ["A", "B", "C"], "expected": ["", sha256(b"old").hexdigest(), None]}
    lab.write("a", "A", system=False)
    lab.write("b", "old", system=False)
    tool = SweWrite({}, host)
    assert tool.reconcile(args, "") == tool.reconcile(args, "")
    assert [(lab.path / name).read_text() for name in "abc"] == ["A", "B", "C"]


def test_move_that_was_interrupted_is_finished(host, lab):
    for name in ("from/a", "to/a", "from/b", "to/c"):
        lab.write(name, name[-1], system=False)
    tool = SweMove({}, host)
    args = {"paths": ["from/a", "from/b", "from/c"], "to": ["to/a", "to/b", "to/c"]}
    assert tool.reconcile(args, "") == {"digests": {f"to/{each}": sha256(each.encode()).hexdigest() for each in "abc"}}
    assert sorted(path.name for path in (lab.path / "to").iterdir()) == ["a", "b", "c"]
    assert list((lab.path / "from").iterdir()) == []


def test_move_overwrites_nothing(calls, lab):
    lab.write("a", "mine", system=False)
    lab.write("b", "theirs", system=False)
    assert calls.fails("move", paths=["a"], to=["b"]).code == "WRITE_CONFLICT"
    assert ((lab.path / "a").read_text(), (lab.path / "b").read_text()) == ("mine", "theirs")


# --- nothing else changes ---------------------------------------------------------------------------------------------


def test_tools_change_nothing_outside_of_what_they_are_told(calls, lab):
    """All that a task does, good and bad, leaves every other file as it was, in the workspace and beside it."""
    project = make_project(lab.path)
    (lab.path.parent / "beside").mkdir()
    (lab.path.parent / "beside/file").write_text("theirs")
    lab.write("tasks/t-2/META.yaml", "id: t-2\n", system=False)
    (lab.path / "tasks/t-1/link").symlink_to("../t-2")
    own = ("workspace/.deedbook", "workspace/tasks/t-1", "workspace/repos/shop")
    before, theirs = hashes(lab.path.parent, *own), hashes(project, ".git/")
    calls("git", action="open", worktree=COPY, repository=PROJECT)
    calls("git", action="apply", worktree=COPY, patch=README)
    calls("write", paths=["tasks/t-1/spec.md"], texts=["# Spec\n"], expected=[""])
    calls("move", paths=["tasks/t-1/spec.md"], to=["tasks/t-1/superseded/1/spec.md"])
    bad = README.replace("README.md", "../../../t-2/META.yaml").replace("# Shop", "id: t-2")
    assert calls.fails("git", action="apply", worktree=COPY, patch=bad).code == "PATCH_REFUSED"
    assert calls.fails("git", action="open", worktree="tasks/t-1/link/copy", repository=PROJECT)
    for path in ("../beside/file", "tasks/t-1/link/META.yaml", "tasks/t-1/../../.system/deedbook.yaml"):
        assert calls.fails("write", paths=[path], texts=["mine"], expected=[None]).code == "PATH_REFUSED"
    commit = calls("git", action="commit", worktree=COPY, message="feat: name the shop")["commit"]
    assert (hashes(lab.path.parent, *own), hashes(project, ".git/")) == (before, theirs)
    head = git(project, "rev-parse", "HEAD").strip()
    merge = {"action": "merge", "worktree": COPY, "repository": PROJECT, "head": head, "commit": commit}
    calls("git", **merge, message="Merge t-1")
    assert hashes(lab.path.parent, *own) == before
    assert {name for name, digest in hashes(project, ".git/").items() if theirs.get(name) != digest} == {"README.md"}
