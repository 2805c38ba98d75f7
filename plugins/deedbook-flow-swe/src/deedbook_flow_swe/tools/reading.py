"""The tools ``swe-read`` and ``swe-slice``: many text files in one call."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from deedbook.contract import Ctx, Failed, HandlerSpec, Host, Json, Object
from deedbook.policy.limits import FileList
from deedbook_tool_standard.reach import FileTool, check_time
from deedbook_tool_standard.shapes import COUNT, FOLDER, PATH, listed, strict

from .files import compile_globs, find_files, is_glob, read_text
from .shapes import GLOB, GLOBS, TEXT_FILE

MOST_BYTES: Final = 4 << 20
"""The most bytes of text in one result."""
_MOST: Object = {"type": "integer", "minimum": 1, "maximum": MOST_BYTES, "default": MOST_BYTES}


class SweRead(FileTool):
    """Read files: ``{paths, optional?, exclude?, most_bytes?}`` to ``{files, missing}``.

    Each entry of *paths* and *optional* is a path or a glob. *missing* lists the entries of *paths* without any file.
    Each file is whole, stands once, and has the SHA-256 of its bytes as its *digest*.
    """

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict(
            {"paths": GLOBS, "optional": GLOBS, "exclude": GLOBS, "most_bytes": _MOST},
            optional=frozenset({"optional", "exclude", "most_bytes"}),
        ),
        gives=strict({"files": listed(TEXT_FILE), "missing": listed(GLOB)}),
        effects="read",
        files="host",
    )

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Read; ``TOO_LARGE``, ``TOO_MANY``, ``NOT_TEXT``, ``BAD_PATTERN``, ``PATH_REFUSED``."""
        wanted, optional = args["paths"], args.get("optional", ())
        excluded = compile_globs(args["exclude"]) if args.get("exclude") else None
        left = args.get("most_bytes", MOST_BYTES)
        files: dict[str, Json] = {}
        missing: list[str] = []
        for index, entry in enumerate((*wanted, *optional)):
            found = list(_paths_of(self.host, entry, excluded, ctx))
            for path in found:
                if path in files:
                    continue
                check_time(ctx)
                file = read_text(self.host, path, left)
                left -= file.bytes
                files[path] = file.json()
            missing += [entry] if not found and index < len(wanted) else []
        return {"files": list(files.values()), "missing": missing}


class SweSlice(FileTool):
    """Read the code that a unit may see: ``{root, files, most_bytes}`` to ``{files, left_out}``.

    *files* are globs below *root*, such as the files of a unit below its worktree. Paths in the result are relative to
    *root*. A file that does not fit into what is left of *most_bytes*, or is no text, is left out as a whole, and named
    with its reason: ``size`` or ``not_text``.
    """

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict({"root": {**FOLDER, "minLength": 1}, "files": GLOBS, "most_bytes": _MOST}),
        gives=strict(
            {
                "files": listed(TEXT_FILE),
                "left_out": listed(strict({"path": PATH, "why": {"enum": ["size", "not_text"]}})),
                "bytes": COUNT,
            }
        ),
        effects="read",
        files="host",
    )

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Read; ``TOO_MANY``, ``BAD_PATTERN``, ``PATH_REFUSED``."""
        root = args["root"].rstrip("/")
        compile_globs(args["files"])  # so that a fault names the glob as it was given
        below = [f"!{root}/{each[1:]}" if each[:1] == "!" else f"{root}/{each}" for each in args["files"]]
        files: list[dict[str, Any]] = []
        left_out: list[Json] = []
        left = args["most_bytes"]
        for path in sorted(set(self._find(below, ctx))):
            check_time(ctx)
            name = path.removeprefix(f"{root}/")
            try:
                file = read_text(self.host, path, left)
            except Failed as problem:
                if problem.code not in _LEFT_OUT:
                    raise
                left_out.append({"path": name, "why": _LEFT_OUT[problem.code]})
                continue
            left -= file.bytes
            files.append({**file.json(), "path": name})
        return {"files": files, "left_out": left_out, "bytes": args["most_bytes"] - left}

    def _find(self, globs: Sequence[str], ctx: Ctx) -> Iterator[str]:
        yield from find_files(self.host, globs, None, ctx) if globs else ()


_LEFT_OUT: Final = {"TOO_LARGE": "size", "NOT_TEXT": "not_text"}


def _paths_of(host: Host, entry: str, excluded: FileList | None, ctx: Ctx) -> Iterator[str]:
    """Yield the files that *entry*, a path or a glob, stands for."""
    if is_glob(entry):
        yield from sorted(find_files(host, [entry], excluded, ctx))
    elif not (excluded is not None and excluded.fits(entry)):
        try:
            host.open(entry).close()
        except FileNotFoundError:
            return
        yield entry
