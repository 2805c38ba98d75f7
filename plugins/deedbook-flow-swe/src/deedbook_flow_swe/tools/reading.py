"""The tools ``swe-read`` and ``swe-slice``: many text files in one call."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from deedbook.contract import Ctx, Failed, HandlerSpec, Host, Json, Object
from deedbook.policy.limits import FileList
from deedbook_tool_standard.reach import FileTool, check_time
from deedbook_tool_standard.shapes import COUNT, FOLDER, PATH, array_of, strict

from .excerpts import cut_text
from .files import TextFile, compile_globs, find_files, is_glob, read_text
from .shapes import GLOB, GLOBS, SLICE, TEXT_FILE

MOST_BYTES: Final = 4 << 20
"""The most bytes of text in one result."""
_NAMES: Object = {"type": "array", "maxItems": 200, "items": {"type": "string", "minLength": 1, "maxLength": 200}}
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
        gives=strict({"files": array_of(TEXT_FILE), "missing": array_of(GLOB)}),
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
                files[path] = file.as_json()
            missing += [entry] if not found and index < len(wanted) else []
        return {"files": list(files.values()), "missing": missing}


class SweSlice(FileTool):
    """Read the code that a unit may see: ``{root, files, most_bytes, names?}`` to ``{files, left_out, bytes}``.

    *files* are globs below *root*, such as the files of a unit below its worktree. Paths in the result are relative to
    *root*. The smaller files come first. With *names*, such as those of functions, each file gets an equal share of
    what is left of *most_bytes*; an excerpt with the definitions of the names stands for a longer one, marked as
    ``excerpt``. A file that does not fit, or is no text, is left out, and named with its reason: ``size`` or
    ``not_text``.
    """

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict(
            {"root": {**FOLDER, "minLength": 1}, "files": GLOBS, "most_bytes": _MOST, "names": _NAMES},
            optional=frozenset({"names"}),
        ),
        gives=strict(
            {
                "files": array_of(SLICE),
                "left_out": array_of(strict({"path": PATH, "why": {"enum": ["size", "not_text"]}})),
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
        read: list[TextFile] = []
        left_out: dict[str, str] = {}
        for path in sorted(set(self._find(below, ctx))):
            check_time(ctx)
            try:
                read.append(read_text(self.host, path, MOST_BYTES))
            except Failed as problem:
                if problem.code not in _LEFT_OUT:
                    raise
                left_out[path] = _LEFT_OUT[problem.code]
        files, left = _share(read, args["most_bytes"], args.get("names"))
        left_out |= {file.path: "size" for file in read if file.path not in files}
        return {
            "files": [{**files[path], "path": path.removeprefix(f"{root}/")} for path in sorted(files)],
            "left_out": [{"path": path.removeprefix(f"{root}/"), "why": left_out[path]} for path in sorted(left_out)],
            "bytes": args["most_bytes"] - left,
        }

    def _find(self, globs: Sequence[str], ctx: Ctx) -> Iterator[str]:
        yield from find_files(self.host, globs, None, ctx) if globs else ()


def _share(read: Sequence[TextFile], most: int, names: Sequence[str] | None) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the files or excerpts that fit into *most* bytes, by path, and the bytes that are left."""
    found: dict[str, dict[str, Any]] = {}
    waiting = sorted(read, key=lambda file: (file.bytes, file.path))
    for index, file in enumerate(waiting):
        share = most if names is None else most // (len(waiting) - index)
        text = (
            file.text if file.bytes <= share else "" if names is None else cut_text(file.path, file.text, names, share)
        )
        if text or not file.bytes:
            most -= len(text.encode())
            found[file.path] = {**file.as_json(), "text": text, **({} if text == file.text else {"excerpt": True})}
    return found, most


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
