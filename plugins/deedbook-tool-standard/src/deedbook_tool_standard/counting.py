"""Count lines, words and bytes."""

from typing import NamedTuple

from deedbook.contract import Ctx, HandlerSpec, Json, Object

from .reach import FileTool, check_time, decode_text, read_bytes
from .shapes import COUNT, PATH, PATHS, array_of, strict

MAX_COUNTED = 16 * 1024 * 1024
_COUNTS: Object = {"lines": COUNT, "words": COUNT, "bytes": COUNT}


class Count(NamedTuple):
    """Lines (a last one without newline is one), words (between white space) and bytes."""

    lines: int
    words: int
    bytes: int


class FileCount(FileTool):
    """Count text files: ``{paths}`` to ``{files: [{path, lines, words, bytes}], total: {files, …}, table}``.

    The table is Markdown, with a row for each file and one for the total.
    """

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict({"paths": PATHS}),
        gives=strict(
            {
                "files": array_of(strict({"path": PATH, **_COUNTS})),
                "total": strict({"files": COUNT, **_COUNTS}),
                "table": {"type": "string"},
            }
        ),
        effects="read",
        files="host",
    )

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Count; ``NO_SUCH_FILE``, ``TOO_LARGE``, ``NOT_TEXT``."""
        counted: list[tuple[str, Count]] = []
        for path in args["paths"]:
            check_time(ctx)
            counted.append((path, count(path, read_bytes(self.host, path, MAX_COUNTED))))
        total = Count(*map(sum, zip(*(each for _, each in counted), strict=True))) if counted else Count(0, 0, 0)
        return {
            "files": [{"path": path, **each._asdict()} for path, each in counted],
            "total": {"files": len(counted), **total._asdict()},
            "table": _table([*((_escape(path), each) for path, each in counted), ("**total**", total)]),
        }


def count(path: str, raw: bytes) -> Count:
    """Count one file's content; raise `Failed` with ``NOT_TEXT``."""
    text = decode_text(path, raw)
    unfinished = bool(text) and not text.endswith("\n")
    return Count(text.count("\n") + unfinished, len(text.split()), len(raw))


def _table(rows: list[tuple[str, Count]]) -> str:
    head = ["| file | lines | words | bytes |", "|:-----|------:|------:|------:|"]
    return "\n".join(head + [f"| {name} | {each.lines} | {each.words} | {each.bytes} |" for name, each in rows])


def _escape(name: str) -> str:
    """Return a file name as Markdown text: what would be markup is escaped."""
    return "".join(f"\\{letter}" if letter in "\\|`*_<>[]&" else letter for letter in name)
