"""Search files for a text."""

from collections.abc import Iterator
from itertools import islice

from deedbook.contract import Ctx, Failed, HandlerSpec, Host, Json, Object

from .finding import find
from .reach import FileTool, check_time, decode_text, read_bytes
from .shapes import PATH, PATHS, PATTERN, TRUNCATED, array_of, strict

MAX_MATCHES = 1_000
MAX_LINE = 300
_UNSEARCHABLE = frozenset({"NO_SUCH_FILE", "NOT_READABLE", "NOT_TEXT", "TOO_LARGE", "PATH_REFUSED"})


class FileSearch(FileTool):
    """Search for a plain text: ``{text, paths | glob}`` to ``{matches: [{path, line, text}], skipped, truncated}``.

    Lines count from 1 and are cut to `MAX_LINE` characters around the match. Named files must be searchable; of those
    that a glob found, the ones that are not (no UTF-8, too large) are named in ``skipped``.
    """

    spec = HandlerSpec(
        settings=strict({}),
        takes={
            **strict(
                {"text": {"type": "string", "minLength": 1, "maxLength": 1_000}, "paths": PATHS, "glob": PATTERN},
                optional=frozenset({"paths", "glob"}),
            ),
            "oneOf": [{"required": ["paths"]}, {"required": ["glob"]}],
        },
        gives=strict(
            {
                "matches": array_of(
                    strict({"path": PATH, "line": {"type": "integer", "minimum": 1}, "text": {"type": "string"}})
                ),
                "skipped": PATHS,
                "truncated": TRUNCATED,
            }
        ),
        effects="read",
        files="host",
    )

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Search; for named files ``NO_SUCH_FILE``, ``NOT_TEXT``, ``TOO_LARGE``."""
        named = args.get("paths")
        paths, cut = (named, False) if named is not None else find(self.host, args["glob"], "", ctx)
        skipped: list[str] = []
        matches = _matches(self.host, paths, args["text"], ctx, None if named is not None else skipped)
        found = list(islice(matches, MAX_MATCHES + 1))
        return {"matches": found[:MAX_MATCHES], "skipped": skipped, "truncated": cut or len(found) > MAX_MATCHES}


def _matches(host: Host, paths: list[str], text: str, ctx: Ctx, skipped: list[str] | None) -> Iterator[Json]:
    for path in paths:
        check_time(ctx)
        try:
            content = decode_text(path, read_bytes(host, path))
        except Failed as problem:
            if skipped is None or problem.code not in _UNSEARCHABLE:
                raise
            skipped.append(path)
            continue
        yield from _lines(path, content, text)


def _lines(path: str, content: str, text: str) -> Iterator[Json]:
    if text not in content:
        return
    for number, line in enumerate(content.split("\n"), 1):
        at = line.find(text)
        if at >= 0:
            yield {"path": path, "line": number, "text": _cut_line(line.removesuffix("\r"), at)}


def _cut_line(line: str, at: int) -> str:
    start = max(0, min(at - MAX_LINE // 4, len(line) - MAX_LINE))
    return line[start : start + MAX_LINE]
