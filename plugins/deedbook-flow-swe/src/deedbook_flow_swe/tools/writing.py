"""The tools ``swe-write`` and ``swe-move``: many files in one call, each atomically.

Both can be interrupted between two files. Nothing is lost then: each file is as before or as it should be, and
`reconcile` finishes the rest if the expectations still hold.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from deedbook.contract import Ctx, Failed, HandlerSpec, Json, Object
from deedbook_tool_standard.reach import FileTool, check_time, read_bytes
from deedbook_tool_standard.shapes import PATH, array_of, strict

from .files import check_unique, digest_of
from .shapes import DIGEST, MOST_PATHS

MOST_BYTES: Final = 8 << 20
"""The most bytes that one call writes, and the size of the largest file that is moved."""
_ATTEMPTS: Final = 8
"""How often a file of any content is tried: another writer may come between reading and writing."""
_PATHS: Object = {"type": "array", "items": PATH, "minItems": 1, "maxItems": MOST_PATHS}
_DIGESTS: Object = {"type": "object", "additionalProperties": DIGEST}
_EXPECTED: Object = {
    "type": ["string", "null"],
    "pattern": "^([0-9a-f]{64})?$",
    "description": "SHA-256 of the present content; empty: the file must not exist; null: any content, or none.",
}


class SweWrite(FileTool):
    """Write whole files: ``{paths, texts, expected}`` to ``{digests}``, three lists of equal length.

    All expectations are checked before the first file is written.
    """

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict({"paths": _PATHS, "texts": array_of({"type": "string"}), "expected": array_of(_EXPECTED)}),
        gives=strict({"digests": _DIGESTS}),
        effects="write",
        reconciles=True,
        files="host",
    )

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Write; ``WRITE_CONFLICT``, ``PATH_REFUSED``, ``TOO_LARGE``, ``ARGUMENT_REFUSED``."""
        check_time(ctx)
        return self._write(args, finish=False)

    def reconcile(self, args: Object, idempotency_key: str) -> Json | None:  # noqa: ARG002 - the files tell
        """Finish an interrupted call; a file that another writer has changed since raises `Failed`."""
        return self._write(args, finish=True)

    def _write(self, args: Object, *, finish: bool) -> Json:
        paths, expected = args["paths"], args["expected"]
        contents = [text.encode("utf-8") for text in args["texts"]]
        if not len(paths) == len(contents) == len(expected):
            why = f"{len(paths)} paths, {len(contents)} texts and {len(expected)} expectations; give one of each a file"
            raise Failed("ARGUMENT_REFUSED", why)
        check_unique(paths)
        if (size := sum(map(len, contents))) > MOST_BYTES:
            raise Failed("TOO_LARGE", f"{size} bytes; at most {MOST_BYTES} are written in one call")
        digests = {path: sha256(data).hexdigest() for path, data in zip(paths, contents, strict=True)}
        found = {path: digest_of(self.host, path) for path in paths}
        for path, wanted in zip(paths, expected, strict=True):
            done = finish and found[path] == digests[path]
            if wanted is not None and found[path] != wanted and not done:
                raise _conflict(path, found[path], wanted)
        for path, data, wanted in zip(paths, contents, expected, strict=True):
            if not (finish and found[path] == digests[path]):
                self._replace(path, data, wanted)
        return {"digests": digests}

    def _replace(self, path: str, data: bytes, expected: str | None) -> None:
        if expected is not None:
            self.host.replace(path, data, expected=expected)
            return
        for left in reversed(range(_ATTEMPTS)):
            try:
                self.host.replace(path, data, expected=digest_of(self.host, path))
            except Failed as problem:
                if problem.code != "WRITE_CONFLICT" or not left:
                    raise
            else:
                return


class SweMove(FileTool):
    """Move files: ``{paths, to}`` to ``{digests}`` of the files by their new paths.

    No target may exist, unless it is the same file from an earlier, interrupted call. A file stands at its new place
    before it goes from its old one.
    """

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict({"paths": _PATHS, "to": _PATHS}),
        gives=strict({"digests": _DIGESTS}),
        effects="write",
        reconciles=True,
        files="host",
    )

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Move; ``NO_SUCH_FILE``, ``WRITE_CONFLICT``, ``PATH_REFUSED``, ``TOO_LARGE``, ``ARGUMENT_REFUSED``."""
        check_time(ctx)
        moves = _moves(args)
        sources = {path: digest_of(self.host, path) for path in moves}
        for path, target in moves.items():
            if not sources[path]:
                raise Failed("NO_SUCH_FILE", f"{path}: there is no such file; nothing was moved")
            if (there := digest_of(self.host, target)) not in ("", sources[path]):
                raise _conflict(target, there, "")
        return {"digests": {target: self._move(path, target) for path, target in moves.items()}}

    def reconcile(self, args: Object, idempotency_key: str) -> Json | None:  # noqa: ARG002 - the files tell
        """Finish an interrupted call; a file that is at neither place raises `Failed`."""
        moves = _moves(args)
        digests = {}
        for path, target in moves.items():
            gone = not digest_of(self.host, path)
            digests[target] = digest_of(self.host, target) if gone else self._move(path, target)
            if not digests[target]:
                raise Failed("NO_SUCH_FILE", f"{path}: there is no such file, and none at {target}")
        return {"digests": digests}

    def _move(self, path: str, target: str) -> str:
        data = read_bytes(self.host, path, MOST_BYTES)
        digest = sha256(data).hexdigest()
        there = digest_of(self.host, target)
        if there != digest:
            self.host.replace(target, data, expected="")
        self.host.remove(path, expected=digest)
        return digest


def _moves(args: Object) -> Mapping[str, str]:
    paths, to = args["paths"], args["to"]
    if len(paths) != len(to):
        raise Failed("ARGUMENT_REFUSED", f"{len(paths)} paths and {len(to)} targets; give each file one target")
    check_unique((*paths, *to))
    return dict(zip(paths, to, strict=True))


def _conflict(path: str, found: str, expected: str) -> Failed:
    is_there = f"holds {found}" if found else "does not exist"
    why = f"{is_there}; expected {expected or 'no such file'}. Nothing was changed; read it again and decide again"
    return Failed("WRITE_CONFLICT", f"{path!r} {why}")
