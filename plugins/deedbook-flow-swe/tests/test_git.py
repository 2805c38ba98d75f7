"""The task's working copy, and the merge of what was verified."""

import shutil

import pytest
from git_workshop import ABILITIES, COPY, PROJECT, README, Calls, git, hashes, make_project, patch_of

from deedbook.format.files import Folder
from deedbook.format.ownership import UntrustedError
from deedbook.plugins.host import WorkspaceHost
from deedbook.programs.workers import Workers
from deedbook.workspace.sources import find_workspace
from deedbook_flow_swe.tools.git import SweGit


@pytest.fixture
def project(lab):
    lab.settings(abilities=ABILITIES)
    return make_project(lab.path)


@pytest.fixture
def calls(lab, project):
    return Calls(lab.session())


@pytest.fixture
def opened(calls):
    """Return the calls, with the task's working copy open."""
    calls("git", action="open", worktree=COPY, repository=PROJECT)
    return calls


def verified(calls, patch=README):
    """Apply and commit *patch*; return the arguments of its merge."""
    calls("git", action="apply", worktree=COPY, patch=patch)
    commit = calls("git", action="commit", worktree=COPY, message="feat: name the shop (AC-001)")["commit"]
    head = calls("git", action="head", repository=PROJECT)["commit"]
    places = {"worktree": COPY, "repository": PROJECT}
    return {"action": "merge", **places, "head": head, "commit": commit, "message": "Merge t-1"}


# --- the working copy -------------------------------------------------------------------------------------------------


def hook_all(project, ran):
    """Give the repository hooks that make the file *ran*, which is returned."""
    for name in ("pre-commit", "post-commit", "post-merge", "post-checkout", "reference-transaction", "update"):
        hook = project / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
        hook.chmod(0o755)
    return ran


def test_git_takes_a_patch_from_the_task_to_one_merged_commit(lab, calls, project):
    ran = hook_all(project, lab.path.parent / "ran")
    opened = calls("git", action="open", worktree=COPY, repository=PROJECT)
    assert opened["commit"] == opened["base"] == git(project, "rev-parse", "HEAD").strip()
    assert opened["branch"] == "refs/heads/main"
    merge = verified(calls)
    changed = calls("git", action="changed", worktree=COPY)
    assert changed["files"] == [{"path": "README.md", "kind": "changed", "added": 1, "removed": 1}]
    merged = calls("git", **merge)
    assert not ran.exists(), "a hook ran"
    assert (merged["merged"], merged["clean"]) == (True, True)
    assert git(project, "rev-parse", "HEAD").strip() == merged["commit"]
    assert git(project, "log", "-1", "--format=%P %s").strip() == f"{merge['head']} {merge['commit']} Merge t-1"
    assert (project / "README.md").read_text() == "# The shop\n"
    assert git(project, "status", "--porcelain") == ""
    assert calls("git", **merge) == merged, "the same merge again makes no second commit"
    assert git(project, "rev-list", "--count", "HEAD").strip() == "3"


def test_workspace_that_a_repository_brings_is_not_taken_for_one_in_its_working_copy(lab, calls, project):
    (project / ".system").mkdir()
    (project / ".system/deedbook.yaml").write_text("schema_version: v1\n")
    (project / ".deedbook").mkdir()
    (project / ".deedbook/copies").write_text("a file of the repository\n")
    git(project, "add", "--all", "--force")
    git(project, "commit", "--quiet", "--message", "feat: rules of our own")
    calls("git", action="open", worktree=COPY, repository=PROJECT)
    copy = lab.path / COPY
    assert (copy / ".system/deedbook.yaml").exists()
    for start in (copy, copy / "shop"):
        with pytest.raises(UntrustedError, match="is a copy of a repository, made by Deedbook"):
            find_workspace(start)
    assert find_workspace(copy.parent) == lab.path
    assert find_workspace(project / "shop") == project


def test_working_copy_is_opened_once_and_its_git_dir_is_not_for_tools(opened, lab):
    before = hashes(lab.path / COPY)
    opened("git", action="open", worktree=COPY, repository=PROJECT)
    assert hashes(lab.path / COPY) == before
    assert opened.fails("read", paths=[f"{COPY}/.git/config"]).code == "PATH_REFUSED"
    names = [each["path"].removeprefix(f"{COPY}/") for each in opened("read", paths=[f"{COPY}/**"])["files"]]
    assert names == ["README.md", "shop/__init__.py", "shop/price.py"]


def test_apply_refuses_a_patch_and_changes_nothing(opened, lab):
    before = hashes(lab.path, ".deedbook")
    for patch, more in (
        (patch_of("README.md", "# Other", "# X"), {}),
        (patch_of("absent.md", "# Other", "# X"), {}),
        (patch_of(".git/config", "[core]", "[alias]"), {}),
        (README, {"allow": ["shop/**"]}),
        (README, {"most_lines": 1}),
    ):
        error = opened.fails("git", action="apply", worktree=COPY, patch=patch, **more)
        assert error.code == "PATCH_REFUSED", patch
    assert hashes(lab.path, ".deedbook") == before
    opened("git", action="apply", worktree=COPY, patch=README)
    error = opened.fails("git", action="apply", worktree=COPY, patch=patch_of("README.md", "# The shop", "# X"))
    assert error.code == "GIT_REFUSED", "what was applied has to be committed first"


def test_reset_leaves_what_was_committed_and_nothing_else(opened, lab):
    merge = verified(opened)
    opened("git", action="apply", worktree=COPY, patch=patch_of("README.md", "# The shop", "# Again"))
    (lab.path / COPY / "new.txt").write_text("left over")
    opened("git", action="reset", worktree=COPY, commit=merge["commit"])
    assert opened("git", action="head", worktree=COPY) == {
        "commit": merge["commit"], "branch": "refs/heads/task", "clean": True,
    }  # fmt: skip
    opened("git", action="reset", worktree=COPY)
    assert (lab.path / COPY / "README.md").read_text() == "# Shop\n"


def test_head_of_both_says_whether_the_repository_has_moved_since_the_task_began(opened, lab):
    both = {"action": "head", "worktree": COPY, "repository": PROJECT}
    base = opened("git", **both)["commit"]
    verified(opened)
    assert opened("git", **both) == {
        "commit": base, "branch": "refs/heads/main", "clean": True, "base": base, "moved": False,
    }  # fmt: skip
    git(lab.path / PROJECT, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    found = opened("git", **both)
    assert (found["moved"], found["base"]) == (True, base)
    assert found["commit"] != base


def test_git_refuses_what_makes_no_sense(opened):
    for args, code in (
        ({"action": "apply", "worktree": COPY}, "ARGUMENT_REFUSED"),
        ({"action": "head", "worktree": COPY, "message": "x"}, "ARGUMENT_REFUSED"),
        ({"action": "head"}, "ARGUMENT_REFUSED"),
        ({"action": "commit", "worktree": COPY, "message": "nothing"}, "GIT_REFUSED"),
        ({"action": "reset", "worktree": COPY, "commit": "0" * 40}, "GIT_REFUSED"),
        ({"action": "changed", "worktree": COPY, "since": "0" * 40}, "GIT_REFUSED"),
        ({"action": "head", "worktree": "tasks/t-1"}, "GIT_REFUSED"),
        ({"action": "head", "repository": "nowhere"}, "GIT_REFUSED"),
        ({"action": "head", "repository": "../outside"}, "PATH_REFUSED"),
        ({"action": "push", "repository": PROJECT}, "SCHEMA_VIOLATION"),
    ):
        assert opened.fails("git", **args).code == code, args


# --- a repository that moves on ---------------------------------------------------------------------------------------

UPDATE = {"action": "update", "worktree": COPY, "repository": PROJECT}


def commit_file(project, path, text):
    """Commit a file in the repository, as a person would; return the commit."""
    (project / path).write_text(text)
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", f"change {path}")
    return git(project, "rev-parse", "HEAD").strip()


def test_copy_without_commits_begins_anew_at_the_last_commit(opened, lab, project):
    base = opened("git", **UPDATE)
    assert base == {"commit": base["head"], "head": base["head"], "merged": True, "conflicts": []}
    head = commit_file(project, "news.txt", "new\n")
    assert opened("git", **UPDATE) == {"commit": head, "head": head, "merged": True, "conflicts": []}
    assert (lab.path / COPY / "news.txt").read_text() == "new\n"
    assert opened("git", action="head", worktree=COPY, repository=PROJECT)["moved"] is False
    opened("git", action="reset", worktree=COPY)
    assert (lab.path / COPY / "news.txt").exists()


def test_copy_with_commits_gets_the_last_commit_by_a_merge_and_can_be_merged_then(opened, lab, project):
    merge = verified(opened)
    head = commit_file(project, "news.txt", "new\n")
    found = opened("git", **UPDATE)
    assert (found["head"], found["merged"], found["conflicts"]) == (head, True, [])
    assert (lab.path / COPY / "README.md").read_text() == "# The shop\n"
    assert (lab.path / COPY / "news.txt").read_text() == "new\n"
    assert git(lab.path / COPY, "log", "-1", "--format=%P").strip() == f"{merge['commit']} {head}"
    assert opened("git", **UPDATE) == found, "the same update again makes no commit"
    assert opened("git", action="head", worktree=COPY, repository=PROJECT)["moved"] is True
    assert opened("git", **{**merge, "head": head, "commit": found["commit"]})["merged"]
    assert (project / "README.md").read_text() == "# The shop\n"
    opened("git", action="reset", worktree=COPY, commit=merge["commit"])
    assert not (lab.path / COPY / "news.txt").exists()


def test_update_in_conflict_or_of_a_rewritten_history_leaves_the_copy_as_it_is(opened, lab, project):
    merge = verified(opened)
    before = (hashes(lab.path / COPY, ".git"), git(lab.path / COPY, "rev-parse", "HEAD"))
    head = commit_file(project, "README.md", "# Our shop\n")
    expected = {"commit": merge["commit"], "head": head, "merged": False}
    assert opened("git", **UPDATE) == {**expected, "conflicts": ["README.md"]}
    git(project, "checkout", "-q", "--orphan", "other")
    head = commit_file(project, "README.md", "# Shop\n")
    assert opened("git", **UPDATE) == {**expected, "head": head, "conflicts": []}
    assert (hashes(lab.path / COPY, ".git"), git(lab.path / COPY, "rev-parse", "HEAD")) == before


# --- hostile repositories ---------------------------------------------------------------------------------------------


def test_repository_whose_configuration_runs_or_leads_elsewhere_is_refused(calls, project, lab):
    out = lab.path.parent / "outside"
    for key, value in (
        ("core.fsmonitor", "touch {out}"), ("core.sshCommand", "touch {out}"), ("filter.x.clean", "touch {out}"),
        ("diff.external", "touch {out}"), ("include.path", "{out}"), ("core.worktree", "{out}"),
        ("core.hooksPath", "{out}"), ("uploadpack.packObjectsHook", "touch {out}"), ("merge.x.driver", "touch {out}"),
    ):  # fmt: skip
        git(project, "config", key, value.format(out=out))
        error = calls.fails("git", action="head", repository=PROJECT)
        git(project, "-c", "core.worktree=.", "config", "--unset", key)
        assert (error.code, out.exists()) == ("GIT_REFUSED", False), key


def test_links_lead_git_nowhere(calls, project, lab):
    (lab.path.parent / "outside").mkdir()
    (lab.path / "tasks/t-1/worktree").symlink_to(lab.path.parent / "outside")
    (lab.path / "repos/link").symlink_to(project)
    assert calls.fails("git", action="open", worktree=COPY, repository=PROJECT).code == "PATH_REFUSED"
    assert calls.fails("git", action="head", repository="repos/link").code == "PATH_REFUSED"
    assert list((lab.path.parent / "outside").iterdir()) == []


def test_git_dir_that_leads_elsewhere_is_refused(calls, project, lab):
    elsewhere = lab.path.parent / "elsewhere"
    (project / ".git").rename(elsewhere)
    (project / ".git").write_text(f"gitdir: {elsewhere}\n")
    assert calls.fails("git", action="head", repository=PROJECT).code == "GIT_REFUSED"


# --- the merge --------------------------------------------------------------------------------------------------------


def test_merge_refuses_other_commits_a_dirty_tree_and_a_repository_that_has_moved_on(opened, project):
    merge = verified(opened)
    for wrong in ("0" * 40, merge["head"]):
        assert opened.fails("git", **{**merge, "commit": wrong}).code == "GIT_REFUSED"
    (project / "shop/price.py").write_text("# in work\n")
    assert opened.fails("git", **merge).code == "GIT_REFUSED"
    assert (project / "shop/price.py").read_text() == "# in work\n"
    assert git(project, "rev-parse", "HEAD").strip() == merge["head"]
    git(project, "commit", "-q", "-a", "-m", "fix: meanwhile")
    moved = git(project, "rev-parse", "HEAD")
    assert opened.fails("git", **merge).code == "GIT_MOVED"
    assert git(project, "rev-parse", "HEAD") == moved


class Killed(BaseException):
    """The process is gone: nothing catches it."""


class DyingHost:
    """The host of a tool in a process that is gone *after* a program of git, or after a number of programs."""

    def __init__(self, host, after):
        self._host, self._after = host, after
        self.scan, self.ran = host.scan, 0

    def run(self, argv, **options):
        if self._after == self.ran:
            raise Killed
        self.ran += 1
        result = self._host.run(argv, **options)
        if self._after in argv:
            raise Killed
        return result


class Patient:
    """A call without a limit."""

    def remaining(self):
        return float("inf")


@pytest.fixture
def host(lab):
    make_project(lab.path)
    with Workers() as workers, Folder.at(lab.path) as folder:
        yield WorkspaceHost(folder, [""], [".deedbook"], {}, workers=lambda: workers)


@pytest.fixture
def act(host):
    """Return what makes a call of the tool, which is gone *after* a step."""

    def call(args, after=None):
        try:
            return SweGit({}, DyingHost(host, after))(args, Patient())
        except Killed:
            return None

    return call


@pytest.fixture
def merge(act):
    """Return the arguments of a merge that is due."""
    act({"action": "open", "worktree": COPY, "repository": PROJECT})
    return verified(lambda _, **args: act(args))


def check_killed_merge(root, host, act, merge, after):
    """Kill a merge, reconcile it, make it again; return whether it was made before (``None``: not killed)."""
    project = root / PROJECT
    before = hashes(root, ".deedbook", "repos/")
    if act(merge, after) is not None:
        return None
    told = SweGit({}, host).reconcile(merge, "")
    made = git(project, "rev-list", "--count", "HEAD").strip() == "3"
    assert (told["merged"], told["commit"] is not None, told["clean"]) == (made, made, True)
    assert act(merge)["merged"]
    assert git(project, "rev-list", "--count", "HEAD").strip() == "3"
    assert (project / "README.md").read_text() == "# The shop\n"
    assert hashes(root, ".deedbook", "repos/") == before
    return made


def kill_merges(root, host, act, merge, steps):
    """Kill a merge after each of the *steps*, in a fresh repository each time; return where it was made."""
    project, kept = root / PROJECT, root.parent / "kept"
    shutil.copytree(project, kept)
    for step in steps:
        made = check_killed_merge(root, host, act, merge, step)
        if made is None:
            return
        yield made
        shutil.rmtree(project)
        shutil.copytree(kept, project)


def test_merge_that_is_killed_is_made_once_or_not_at_all(lab, host, act, merge):
    steps = ("fetch", "commit-tree", "update-ref", "read-tree")
    assert list(kill_merges(lab.path, host, act, merge, steps)) == [False, False, True, True]


@pytest.mark.campaign
def test_merge_that_is_killed_after_any_program_is_made_once_or_not_at_all(lab, host, act, merge):
    made = list(kill_merges(lab.path, host, act, merge, range(1000)))
    assert made == sorted(made)
    assert set(made) == {True, False}


def test_merge_whose_checkout_was_cut_short_is_finished_without_a_loss(lab, host, act, merge):
    project = lab.path / PROJECT
    act(merge, "update-ref")
    (project / "shop/price.py").write_text("# in work\n")  # by a person
    assert SweGit({}, host).reconcile(merge, "") | {"commit": ""} == {"commit": "", "merged": True, "clean": False}
    assert (project / "shop/price.py").read_text() == "# in work\n"
    git(project, "checkout", "shop/price.py")
    (project / "README.md").write_text("# The s")  # half a file
    assert SweGit({}, host).reconcile(merge, "")["clean"]
    assert (project / "README.md").read_text() == "# The shop\n"


def test_actions_on_the_working_copy_that_were_killed_are_finished(lab, host, act):
    calls = [
        ({"action": "open", "worktree": COPY, "repository": PROJECT}, "fetch"),
        ({"action": "apply", "worktree": COPY, "patch": README}, "--index"),
        ({"action": "commit", "worktree": COPY, "message": "feat: name the shop"}, "commit-tree"),
    ]
    for args, after in calls:
        assert act(args, after) is None
        assert SweGit({}, host).reconcile(args, "")
    assert git(lab.path / COPY, "log", "--format=%s").splitlines() == ["feat: name the shop", "feat: begin"]
    assert git(lab.path / COPY, "status", "--porcelain") == ""


@pytest.mark.parametrize("own", [False, True], ids=["without commits", "with commits"])
@pytest.mark.parametrize("after", ["fetch", "update-ref", "read-tree"])
def test_update_that_was_killed_is_finished(lab, host, act, own, after):
    act({"action": "open", "worktree": COPY, "repository": PROJECT})
    if own:
        verified(lambda _, **args: act(args))
    head = commit_file(lab.path / PROJECT, "news.txt", "new\n")
    assert act(UPDATE, after) is None
    told = SweGit({}, host).reconcile(UPDATE, "")
    assert (told["head"], told["merged"]) == (head, True)
    assert told == act(UPDATE)
    assert (lab.path / COPY / "news.txt").read_text() == "new\n"
    assert git(lab.path / COPY, "status", "--porcelain") == ""
    merges = git(lab.path / COPY, "log", "--merges", "--format=%s").splitlines()
    assert merges == ["merge: the last commit of repos/shop"] * own
