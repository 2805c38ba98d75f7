"""Find files by a glob pattern."""

from collections.abc import Iterator
from itertools import islice

from deedbook.contract import Ctx, Failed, FolderEntry, HandlerSpec, Host, Json, Object

from .globs import Glob
from .reach import FileTool, check_time, translate_os_errors
from .shapes import FOLDER, PATHS, PATTERN, TRUNCATED, strict

MAX_PATHS = 5_000
MAX_FOLDERS = 20_000


class FileFind(FileTool):
    """Find files: ``{pattern, path?}`` to ``{paths, truncated}``, sorted; the pattern begins at the folder *path*."""

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict({"pattern": PATTERN, "path": FOLDER}, optional=frozenset({"path"})),
        gives=strict({"paths": PATHS, "truncated": TRUNCATED}),
        effects="read",
        files="host",
    )

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Find; ``BAD_PATTERN``, ``NO_SUCH_FILE`` where the folder is absent, ``TOO_MANY`` folders to look into."""
        paths, truncated = find(self.host, args["pattern"], args.get("path", ""), ctx)
        return {"paths": paths, "truncated": truncated}


def find(host: Host, pattern: str, folder: str, ctx: Ctx) -> tuple[list[str], bool]:
    """Return the sorted paths of at most `MAX_PATHS` files that match, and whether there are more."""
    found = list(islice(_walk(host, Glob(pattern), folder, ctx), MAX_PATHS + 1))
    return sorted(found[:MAX_PATHS]), len(found) > MAX_PATHS


def _walk(host: Host, glob: Glob, folder: str, ctx: Ctx) -> Iterator[str]:
    with translate_os_errors(folder):
        host.scan(folder)
    waiting = [(folder, glob.start())]
    for _ in range(MAX_FOLDERS):
        if not waiting:
            return
        check_time(ctx)
        here, places = waiting.pop()
        deeper = []
        for entry in _entries(host, here):
            after = glob.step(places, entry.path.rpartition("/")[2])
            if entry.folder and after:
                deeper.append((entry.path, after))
            elif glob.matches(after):
                yield entry.path
        waiting.extend(reversed(deeper))
    raise Failed("TOO_MANY", f"more than {MAX_FOLDERS} folders to look into; begin the pattern with a folder")


def _entries(host: Host, folder: str) -> list[FolderEntry]:
    """List a folder; one that went away or became a link since it was seen is empty."""
    try:
        with translate_os_errors(folder):
            return list(host.scan(folder))
    except Failed as problem:
        if problem.code in {"NO_SUCH_FILE", "PATH_REFUSED"}:
            return []
        raise
