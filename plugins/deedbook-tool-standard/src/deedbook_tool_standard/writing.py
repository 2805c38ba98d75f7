"""Protected write: a whole file, if it is still what the writer saw."""

from deedbook.contract import Ctx, Failed, HandlerSpec, Json, Object

from .reach import MAX_TEXT, FileTool, check_time, translate_os_errors
from .shapes import COUNT, HASH, PATH, strict

CLAIM: Object = {
    "who": {"type": "string", "minLength": 1, "description": "Who writes: a role, a person, a client."},
    "why": {"type": "string", "minLength": 1, "description": "What the write is for."},
    "expected_hash": {**HASH, "description": "SHA-256 of the content the writer saw; empty: the file must not exist."},
    "schema_version": {"const": "v1"},
}
"""The members of ``write_claim_v1``; the version may be left out."""


class FileWrite(FileTool):
    """Write a whole UTF-8 file: ``{path, text, who, why, expected_hash}`` to ``{path, hash, bytes}``.

    Of several writers who saw the same content, one wins and the others get ``WRITE_CONFLICT``. A reader, and a machine
    that loses power, has the old content or the new one.
    """

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict({"path": PATH, "text": {"type": "string"}, **CLAIM}, optional=frozenset({"schema_version"})),
        gives=strict({"path": PATH, "hash": HASH, "bytes": COUNT}),
        effects="write",
        files="host",
    )

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Write; ``WRITE_CONFLICT``, ``PATH_REFUSED``, ``TOO_LARGE``."""
        path, data = args["path"], args["text"].encode("utf-8")
        if len(data) > MAX_TEXT:
            raise Failed("TOO_LARGE", f"{path}: {len(data)} bytes; at most {MAX_TEXT} are written")
        check_time(ctx)
        try:
            with translate_os_errors(path):
                digest = self.host.replace(path, data, expected=args["expected_hash"])
        except Failed as problem:
            if problem.code != "WRITE_CONFLICT":
                raise
            claim = f"{args['who']}, to {args['why']}"
            raise Failed(problem.code, f"{problem} (asked by {claim})", retryable=problem.retryable) from None
        return {"path": path, "hash": digest, "bytes": len(data)}
