"""Read a text file, or take its hash."""

from hashlib import sha256

from deedbook.contract import Ctx, HandlerSpec, Json, Object

from .reach import MAX_TEXT, FileTool, decode_text, read_bytes, translate_os_errors
from .shapes import COUNT, HASH, PATH, strict

_CHUNK = 1024 * 1024


class FileRead(FileTool):
    """Read a whole UTF-8 file: ``{path, max_bytes?}`` to ``{path, text, hash, bytes}``. It is never cut short."""

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict(
            {"path": PATH, "max_bytes": {"type": "integer", "minimum": 0, "maximum": MAX_TEXT, "default": MAX_TEXT}},
            optional=frozenset({"max_bytes"}),
        ),
        gives=strict({"path": PATH, "text": {"type": "string"}, "hash": HASH, "bytes": COUNT}),
        effects="read",
        files="host",
    )

    def __call__(self, args: Object, _ctx: Ctx, /) -> Json:
        """Read; ``NO_SUCH_FILE``, ``TOO_LARGE``, ``NOT_TEXT``."""
        path = args["path"]
        raw = read_bytes(self.host, path, args.get("max_bytes", MAX_TEXT))
        return {"path": path, "text": decode_text(path, raw), "hash": sha256(raw).hexdigest(), "bytes": len(raw)}


class FileHash(FileTool):
    """Take the hash that a protected write expects: ``{path}`` to ``{path, hash}``, empty where there is no file."""

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict({"path": PATH}),
        gives=strict({"path": PATH, "hash": HASH}),
        effects="read",
        files="host",
    )

    def __call__(self, args: Object, _ctx: Ctx, /) -> Json:
        """Hash a file of any size and kind."""
        path = args["path"]
        try:
            file = self.host.open(path)
        except FileNotFoundError:
            return {"path": path, "hash": ""}
        taken = sha256()
        with translate_os_errors(path), file:
            while chunk := file.read(_CHUNK):
                taken.update(chunk)
        return {"path": path, "hash": taken.hexdigest()}
