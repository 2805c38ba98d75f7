"""The tool ``swe-git``: the working copy of a task, and the merge of what was verified.

| action | arguments beside *worktree* | result |
|---|---|---|
| ``open`` | *repository* | ``{commit, base, branch}``: a clone of the repository's last commit, made once |
| ``apply`` | *patch*, *allow*?, *most_lines*? | ``{files, added, removed}``: the patch is in the files, not committed |
| ``commit`` | *message* | ``{commit}``: of all that was applied |
| ``update`` | *repository* | ``{commit, head, merged, conflicts}``: the copy has the repository's last commit too |
| ``reset`` | *commit*? (default: the base) | ``{commit}``: the files are those of that commit, and nothing else |
| ``head`` | or *repository* | ``{commit, branch, clean}``; with both, of the repository, and ``{base, moved}`` |
| ``changed`` | *since*?, *commit*? (default: base to last commit) | ``{files, added, removed, commit}`` |
| ``merge`` | *repository*, *head*, *commit*, *message* | ``{commit, merged, clean}`` |

A merge makes one commit with two parents in the repository: *head*, which must still be its last commit, and *commit*,
which descends from it. So a merge has no conflicts: if the repository has moved on, it is refused (``GIT_MOVED``). Its
one effect is the move of the branch, which git makes in one step. The files of the working tree follow; *clean* says
whether they did. The same merge again finds the commit, and makes no second one.

An update brings the working copy to the last commit of a repository that has moved on. A copy without commits of its
own begins anew there. In any other copy, git merges that commit. If it cannot, because both sides changed the same
lines or the repository no longer has the base, the copy stays as it is, and *merged* is false.

After a crash `reconcile` says for ``merge`` whether the commit was made (*merged* is false, and *commit* null, if
not), and finishes the checkout. The other actions reach only the task's own copy, and are finished.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from deedbook.contract import Ctx, Failed, HandlerSpec, Host, Json, Object
from deedbook.plugins.host import mark_copy
from deedbook_tool_standard.shapes import FOLDER, strict

from .patches import check_patch, describe
from .repository import Repository, refusal
from .shapes import CHANGES, COMMIT, GLOBS

BRANCH: Final = "refs/heads/task"
"""The branch of a task's working copy."""
BASE: Final = "refs/deedbook/base"
"""The commit that it began with; written last, so that a working copy that has it is complete."""
_PLACE: Object = {**FOLDER, "minLength": 1}
_MESSAGE: Object = {"type": "string", "minLength": 1, "maxLength": 20_000}
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "open": ("worktree", "repository"),
        "apply": ("worktree", "patch"),
        "commit": ("worktree", "message"),
        "update": ("worktree", "repository"),
        "reset": ("worktree",),
        "head": (),
        "changed": ("worktree",),
        "merge": ("worktree", "repository", "head", "commit", "message"),
    }
)
_OPTIONAL: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "apply": frozenset({"allow", "most_lines"}),
        "reset": frozenset({"commit"}),
        "head": frozenset({"worktree", "repository"}),
        "changed": frozenset({"since", "commit"}),
    }
)
_NAME: Object = {"type": "string", "pattern": "^[^<>\\x00-\\x1f]{1,100}$"}


class SweGit:
    """Use git for a task: ``{action, worktree, …}``; the module describes the actions."""

    spec = HandlerSpec(
        settings=strict({"name": _NAME, "email": _NAME}, optional=frozenset({"name", "email"})),
        takes=strict(
            {
                "action": {"enum": list(_NEEDED)},
                "worktree": {**_PLACE, "description": "The folder of the task's working copy."},
                "repository": {**_PLACE, "description": "The folder of the project's repository."},
                "patch": {"type": "string"},
                "allow": GLOBS,
                "most_lines": {"type": "integer", "minimum": 1},
                "message": _MESSAGE,
                "commit": COMMIT,
                "head": COMMIT,
                "since": COMMIT,
            },
            optional=frozenset(
                {"worktree", "repository", "patch", "allow", "most_lines", "message", "commit", "head", "since"}
            ),
        ),
        gives={
            "type": "object",
            "properties": {
                **CHANGES["properties"],
                "commit": {"anyOf": [COMMIT, {"type": "null"}]},
                "base": COMMIT,
                "branch": {"type": "string"},
                "clean": {"type": "boolean"},
                "merged": {"type": "boolean"},
                "moved": {"type": "boolean"},
                "head": COMMIT,
                "conflicts": {"type": "array", "items": {"type": "string"}},
            },
            "additionalProperties": False,
        },
        effects="write",
        reconciles=True,
    )

    def __init__(self, settings: Object, host: Host) -> None:
        self._host = host
        self._name: str = settings.get("name", "Deedbook")
        self._email: str = settings.get("email", "deedbook@localhost")

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Act; ``GIT_REFUSED``, ``GIT_MOVED``, ``GIT_FAILED``, ``PATCH_REFUSED``, and those of arguments and paths."""
        return self._act(args, ctx)

    def reconcile(self, args: Object, idempotency_key: str) -> Json | None:  # noqa: ARG002 - the repository tells
        """Say for a merge whether the commit was made; finish any other action."""
        if args["action"] in ("apply", "update"):
            self._reset({"worktree": args["worktree"], "commit": self._open_copy(args, None).find("HEAD")}, None)
        if args["action"] != "merge":
            return self._act(args, None)
        repository = self._repository(args["repository"], None)
        repository.check()
        made = _find_merge(repository, args["head"], args["commit"])
        if made is None:
            return {"commit": None, "merged": False, "clean": not repository.dirty_paths()}
        return _finish_merge(repository, args["head"], made)

    def _act(self, args: Object, ctx: Ctx | None) -> dict[str, Any]:
        action: str = args["action"]
        given, needed = args.keys() - {"action"}, frozenset(_NEEDED[action])
        extra = given - needed - _OPTIONAL.get(action, frozenset())
        if needed - given or extra:
            wrong = f"needs {', '.join(sorted(needed))}" if needed - given else f"takes no {', '.join(sorted(extra))}"
            raise Failed("ARGUMENT_REFUSED", f"the action {action} {wrong}")
        actions: Mapping[str, Callable[[Object, Ctx | None], dict[str, Any]]] = {
            "open": self._open,
            "apply": self._apply,
            "commit": self._commit,
            "update": self._update,
            "reset": self._reset,
            "head": self._head,
            "changed": self._describe_changes,
            "merge": self._merge,
        }
        return actions[action](args, ctx)

    def _repository(self, path: str, ctx: Ctx | None) -> Repository:
        return Repository(path.rstrip("/"), self._host, ctx)

    def _open_copy(self, args: Object, ctx: Ctx | None) -> Repository:
        """Return the working copy of a task; raises `Failed` if it was never completed."""
        copy = self._repository(args["worktree"], ctx)
        copy.check()
        if not copy.find(BASE):
            raise refusal(f"{copy.path}: this is no working copy of a task, or it is not complete; open it first")
        return copy

    # --- the working copy ---------------------------------------------------------------------------------------------

    def _open(self, args: Object, ctx: Ctx | None) -> dict[str, Any]:
        source, copy = self._repository(args["repository"], ctx), self._repository(args["worktree"], ctx)
        source.check()
        mark_copy(self._host, copy.path)  # before it has files, since it may bring a .system/
        if not copy.exists() or not copy.has_git():
            copy.make(BRANCH.rpartition("/")[2])
        copy.check()
        if not copy.find(BASE):
            head = source.find("HEAD")
            if not head:
                raise refusal(f"{source.path}: it has no commit yet")
            copy.run("config", "core.symlinks", "false")
            copy.run("fetch", "--quiet", "--no-tags", "--update-head-ok", copy.path_to(source), f"+{head}:{BRANCH}")
            copy.run("read-tree", "--reset", "-u", BRANCH)
            copy.run("update-ref", BASE, head)
        return {"commit": copy.find("HEAD"), "base": copy.find(BASE), "branch": source.branch()}

    def _apply(self, args: Object, ctx: Ctx | None) -> dict[str, Any]:
        files = check_patch(args["patch"], args.get("allow"), args.get("most_lines"))
        copy = self._open_copy(args, ctx)
        if dirty := copy.dirty_paths():
            raise refusal(f"{copy.path}: {min(dirty)} differs from the last commit; commit or reset first")
        patch = args["patch"] if args["patch"].endswith("\n") else args["patch"] + "\n"
        try:
            seen = copy.patched_files(patch)
            same = seen == {file.path for file in files}
            if same:
                copy.run("apply", "--index", "--whitespace=nowarn", "-", stdin=patch)
        except Failed as problem:
            if problem.code != "GIT_FAILED":
                raise
            why = str(problem).partition("error: ")[2] or str(problem)
            raise Failed("PATCH_REFUSED", f"patch: it does not apply: {why}") from None
        if not same:
            raise Failed("PATCH_REFUSED", f"patch: git reads other files in it: {', '.join(sorted(seen)[:5])}")
        return describe(files)

    def _commit(self, args: Object, ctx: Ctx | None) -> dict[str, Any]:
        copy = self._open_copy(args, ctx)
        head, tree = copy.find("HEAD"), copy.run("write-tree").strip()
        if tree == copy.run("rev-parse", "HEAD^{tree}").strip():
            if copy.run("log", "-1", "--format=%B").strip() == args["message"].strip():
                return {"commit": head}
            raise refusal(f"{copy.path}: there is nothing to commit; apply a patch first")
        made = self._make_commit(copy, tree, args["message"], head)
        copy.run("update-ref", "--no-deref", BRANCH, made, head)
        return {"commit": made}

    def _update(self, args: Object, ctx: Ctx | None) -> dict[str, Any]:
        repository, copy = self._repository(args["repository"], ctx), self._open_copy(args, ctx)
        repository.check()
        base, own, head = copy.find(BASE), copy.find("HEAD"), repository.find("HEAD")
        if not head:
            raise refusal(f"{repository.path}: it has no commit yet")
        if dirty := copy.dirty_paths():
            raise refusal(f"{copy.path}: {min(dirty)} differs from the last commit; commit or reset first")
        copy.run("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", copy.path_to(repository), head)
        made, conflicts = own, list[str]()
        if own == base != head:
            made = head
            moves = f"update {BRANCH} {head} {own}\nupdate {BASE} {head} {base}\n"
            copy.run("update-ref", "--no-deref", "--stdin", stdin=moves)
        elif not copy.is_below(base, head):
            return {"commit": own, "head": head, "merged": False, "conflicts": []}
        elif not copy.is_below(head, own):
            tree, conflicts = copy.merge_trees(own, head)
            if tree:
                made = self._make_commit(copy, tree, f"merge: the last commit of {repository.path}\n", own, head)
                copy.run("update-ref", "--no-deref", BRANCH, made, own)
        if made != own:
            copy.run("read-tree", "--reset", "-u", made)
        return {"commit": made, "head": head, "merged": not conflicts, "conflicts": conflicts}

    def _reset(self, args: Object, ctx: Ctx | None) -> dict[str, Any]:
        copy = self._open_copy(args, ctx)
        base = copy.find(BASE)
        commit = copy.find(args.get("commit", base))
        if not commit or not copy.is_below(base, commit):
            raise refusal(f"{copy.path}: {args['commit']} is no commit of this task")
        copy.run("update-ref", "--no-deref", BRANCH, commit)
        copy.run("read-tree", "--reset", "-u", commit)
        copy.run("clean", "--quiet", "-ffdx")
        return {"commit": commit}

    def _head(self, args: Object, ctx: Ctx | None) -> dict[str, Any]:
        if not {"worktree", "repository"} & args.keys():
            raise Failed("ARGUMENT_REFUSED", "the action head needs worktree or repository")
        found = self._repository(args.get("repository", args.get("worktree", "")), ctx)
        found.check()
        commit = found.find("HEAD") or None
        state = {"commit": commit, "branch": found.branch(), "clean": not found.dirty_paths()}
        if not {"worktree", "repository"} <= args.keys():
            return state
        base = self._open_copy(args, ctx).find(BASE)
        return {**state, "base": base, "moved": commit != base}

    def _describe_changes(self, args: Object, ctx: Ctx | None) -> dict[str, Any]:
        copy = self._open_copy(args, ctx)
        ends = {"since": copy.find(args.get("since", BASE)), "commit": copy.find(args.get("commit", "HEAD"))}
        for name, found in ends.items():
            if not found:
                raise refusal(f"{copy.path}: {args[name]} is no commit of this task")
        return {**describe(copy.changes(**ends)), "commit": ends["commit"]}

    # --- the merge ----------------------------------------------------------------------------------------------------

    def _merge(self, args: Object, ctx: Ctx | None) -> dict[str, Any]:
        repository, copy = self._repository(args["repository"], ctx), self._open_copy(args, ctx)
        repository.check()
        head, commit = args["head"], args["commit"]
        made = _find_merge(repository, head, commit)
        if made is not None:
            return _finish_merge(repository, head, made)
        branch = repository.branch()
        if not branch:
            raise refusal(f"{repository.path}: no branch is checked out")
        if (found := repository.find("HEAD")) != head:
            raise Failed("GIT_MOVED", f"{repository.path}: its last commit is {found or 'none'}, not {head}")
        if dirty := repository.dirty_paths():
            raise refusal(f"{repository.path}: {min(dirty)} differs from the last commit; nothing is merged over it")
        if copy.find(commit) != commit or commit == head or not copy.is_below(head, commit):
            raise refusal(f"{copy.path}: {commit} is no commit that follows {head}")
        copy.changes(head, commit)  # refuses submodules
        repository.run("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", repository.path_to(copy), commit)
        tree = repository.run("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}").strip()
        made = self._make_commit(repository, tree, args["message"], head, commit)
        repository.run("update-ref", "-m", "merge of a verified commit", branch, made, head)
        return _finish_merge(repository, head, made)

    def _make_commit(self, repository: Repository, tree: str, message: str, *parents: str) -> str:
        """Return a new commit object, which no branch has yet."""
        before = [part for parent in parents for part in ("-p", parent)]
        who = ("-c", f"user.name={self._name}", "-c", f"user.email={self._email}")
        return repository.run("commit-tree", *before, "-F", "-", tree, stdin=message, options=who).strip()


def _find_merge(repository: Repository, head: str, commit: str) -> str | None:
    """Return the commit whose parents are *head* and *commit*, if the branch has it."""
    if not repository.find("HEAD"):
        return None
    for line in repository.lines("rev-list", "--merges", "--first-parent", "--parents", "HEAD"):
        made, *parents = line.split(" ")
        if parents == [head, commit]:
            return made
    return None


def _finish_merge(repository: Repository, head: str, made: str) -> dict[str, Any]:
    """Bring the files to the merged commit; files that others have changed since stay as they are."""
    if repository.find("HEAD") == made and (dirty := repository.dirty_paths()):
        changed = {file.path for file in repository.changes(head, made)}
        if dirty <= changed:
            try:
                repository.run("read-tree", "--reset", "-u", made)
            except Failed as problem:
                if problem.code != "GIT_FAILED":  # such as a lock that a killed git left behind
                    raise
    return {"commit": made, "merged": True, "clean": not repository.dirty_paths()}
