"""A git repository below the root, used without anything that it, its owner or the machine configures.

git runs in a process of its own with an emptied environment, without hooks, and without the configuration of the user
and the machine. The configuration of the repository itself cannot be switched off. So it may only hold keys that run
nothing and lead nowhere else; any other key is refused.
"""

import re
from collections.abc import Mapping, Sequence
from posixpath import relpath
from types import MappingProxyType
from typing import Final

import attrs

from deedbook.contract import Ctx, Failed, Host, ProgramResult
from deedbook_tool_standard.outputs import beginning

from .patches import ChangedFile, Kind

SECONDS: Final = 120.0
"""The most seconds for one program."""
MOST_OUTPUT: Final = 4 << 20
"""The most bytes that git may print."""
_ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "GIT_ALLOW_PROTOCOL": "file",
        "GIT_ASKPASS": "/bin/false",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_EDITOR": "/bin/false",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
)
_OWN: Final[Mapping[str, str]] = MappingProxyType({"GIT_DIR": ".git", "GIT_WORK_TREE": "."})
_OPTIONS: Final = (
    "commit.gpgSign=false",
    "core.attributesFile=/dev/null",
    "core.autocrlf=false",
    "core.excludesFile=/dev/null",
    "core.fsmonitor=false",
    "core.fsync=committed,reference",
    "core.hooksPath=/dev/null",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.quotePath=false",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "submodule.recurse=false",
    "transfer.fsckObjects=true",
)
_HARMLESS: Final = re.compile(
    r"core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|abbrev)"
    r"|(?:user|author|committer)\.(?:name|email)"
    r"|remote\..*\.(?:url|fetch|pushurl|tagopt|prune)"
    r"|branch\..*\.(?:remote|merge|rebase|description)"
    r"|(?:init|push|pull|color|advice|column|tag|commit\.(?:cleanup|verbose|status))\..*",
    re.DOTALL,
)
_KINDS: Final[Mapping[str, Kind]] = MappingProxyType({"A": "added", "D": "removed", "M": "changed", "T": "changed"})
_SUBMODULE: Final = "160000"


def refusal(why: str) -> Failed:
    """Return the failure of a request that the tool refuses."""
    return Failed("GIT_REFUSED", why)


@attrs.frozen
class Repository:
    """The repository with its working tree in the folder *path*."""

    path: str
    _host: Host
    _ctx: Ctx | None

    def exists(self) -> bool:
        """Return whether the folder is there; raises `Failed` (``PATH_REFUSED``) where a link leads to it."""
        try:
            self._host.scan(self.path)
        except FileNotFoundError:
            return False
        return True

    def has_git(self) -> bool:
        """Return whether the folder has a repository of its own."""
        return self._run(("rev-parse", "--git-dir")).status == 0

    def make(self, branch: str) -> None:
        """Make an empty repository whose first branch is *branch*; its parent folder must be there."""
        parent, _, name = self.path.rpartition("/")
        arguments = ("init", "--quiet", "--template=", f"--initial-branch={branch}", "--", name)
        self._check_result(arguments, self._run(arguments, cwd=parent, own=False))

    def check(self) -> None:
        """Refuse a folder that is no repository of its own, and one whose configuration could do more than name it."""
        if not self.exists():
            raise refusal(f"{self.path}: there is no such folder")
        places = ("--show-toplevel", "--absolute-git-dir", "--path-format=absolute", "--git-common-dir")
        found = self._run(("rev-parse", *places))
        if found.status:
            raise refusal(f"{self.path}: this is no git repository with a working tree")
        top, own, common = found.out.decode("utf-8", "replace").splitlines()
        if not own == common == f"{top}/.git":
            raise refusal(f"{self.path}: its folder .git leads elsewhere; expected a plain clone")
        for key in self.run("config", "--local", "--no-includes", "--list", "--name-only", "-z").split("\0"):
            if key and not _HARMLESS.fullmatch(key):
                raise refusal(f"{self.path}/.git/config: {key[:200]!r} is not accepted here; remove it")
        if any(line.startswith("alternate:") for line in self.lines("count-objects", "-v")):
            raise refusal(f"{self.path}: it borrows objects of another repository; clone it whole")

    def run(self, *arguments: str, stdin: str = "", fine: Sequence[int] = (0,), options: Sequence[str] = ()) -> str:
        """Run git and return what it printed; raises `Failed` (``GIT_FAILED``)."""
        ran = self._check_result(arguments, self._run(arguments, stdin, options), fine)
        try:
            return ran.out.decode("utf-8")
        except UnicodeDecodeError:
            raise Failed("GIT_FAILED", f"{self.path}: git {arguments[0]} printed what is no UTF-8 text") from None

    def succeeds(self, *arguments: str) -> bool:
        """Return whether git ends with status 0; 1 is no, and anything else raises `Failed`."""
        return self._check_result(arguments, self._run(arguments), (0, 1)).status == 0

    def lines(self, *arguments: str) -> list[str]:
        """Return the lines that git printed."""
        return self.run(*arguments).splitlines()

    def find(self, name: str) -> str:
        """Return the commit that *name* stands for; empty if there is none."""
        return self.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", fine=(0, 1)
        ).strip()

    def branch(self) -> str:
        """Return the full name of the branch that is checked out; empty if there is none."""
        return self.run("symbolic-ref", "--quiet", "HEAD", fine=(0, 1)).strip()

    def dirty_paths(self) -> frozenset[str]:
        """Return the files that differ from the last commit, and new ones."""
        out = self.run(
            "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=none"
        )
        return frozenset(entry[3:] for entry in out.split("\0") if entry)

    def is_below(self, ancestor: str, commit: str) -> bool:
        """Return whether *commit* descends from *ancestor*, or is it."""
        return self.succeeds("merge-base", "--is-ancestor", ancestor, commit)

    def changes(self, since: str, commit: str) -> tuple[ChangedFile, ...]:
        """Return the files that differ between two commits, with the counts of their lines (0 for binary files)."""
        asked = ("diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--raw", "--numstat")
        fields = self.run(*asked, since, commit).split("\0")
        kinds: dict[str, Kind] = {}
        files = []
        at = 0
        while at < len(fields) and fields[at]:
            if fields[at].startswith(":"):
                mode, new_mode, *_, letter = fields[at][1:].split(" ")
                path, at = fields[at + 1], at + 2
                if _SUBMODULE in (mode, new_mode):
                    raise refusal(f"{self.path}: {path[:200]!r} is a submodule; these are not supported")
                kinds[path] = _KINDS[letter[:1]]
            else:
                added, removed, path = fields[at].split("\t", 2)
                files.append(ChangedFile(path, kinds[path], *(0 if n == "-" else int(n) for n in (added, removed))))
                at += 1
        return tuple(files)

    def merge_trees(self, ours: str, theirs: str) -> tuple[str, list[str]]:
        """Return the tree of a merge of two commits; if they are in conflict, no tree and the files that are."""
        asked = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs)
        ran = self._check_result(asked, self._run(asked), (0, 1))
        tree, *conflicts = ran.out.decode("utf-8", "replace").rstrip("\0").split("\0")
        return ("", conflicts or [self.path]) if ran.status else (tree.strip(), [])

    def patched_files(self, patch: str) -> frozenset[str]:
        """Return the files that git would change with *patch*."""
        out = self.run("apply", "--numstat", "-z", "-", stdin=patch)
        return frozenset(entry.split("\t", 2)[2] for entry in out.split("\0") if entry)

    def path_to(self, other: "Repository") -> str:
        """Return the path of *other* from here; both were found without links."""
        return relpath(other.path, self.path)

    def _check_result(self, arguments: Sequence[str], ran: ProgramResult, fine: Sequence[int] = (0,)) -> ProgramResult:
        if ran.status not in fine:
            why = f"git {arguments[0]} ended with status {ran.status}: {beginning(ran.err)}"
            raise Failed("GIT_FAILED", f"{self.path}: {why}")
        return ran

    def _run(
        self,
        arguments: Sequence[str],
        stdin: str = "",
        options: Sequence[str] = (),
        *,
        cwd: str | None = None,
        own: bool = True,
    ) -> ProgramResult:
        """Run git; with *own*, it uses the repository in its working folder and looks for none above it."""
        seconds = min(SECONDS, self._ctx.remaining()) if self._ctx is not None else SECONDS
        if seconds <= 0:
            raise Failed("TOOL_TIMEOUT", f"the call was cancelled or its time is up before git {arguments[0]}")
        common = [part for option in _OPTIONS for part in ("-c", option)]
        return self._host.run(
            ["git", "--no-pager", "--literal-pathspecs", *common, *options, *arguments],
            stdin=stdin.encode("utf-8"),
            env={**_ENVIRONMENT, **(_OWN if own else {})},
            cwd=self.path if cwd is None else cwd,
            seconds=seconds,
            limit=MOST_OUTPUT,
        )
