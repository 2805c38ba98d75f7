"""List a folder."""

from deedbook.contract import Ctx, HandlerSpec, Json, Object

from .reach import FileTool, translate_os_errors
from .shapes import COUNT, FOLDER, PATH, TRUNCATED, array_of, strict

MAX_ENTRIES = 5_000


class FileList(FileTool):
    """List a folder, not those below it: ``{path?}`` to ``{entries: [{path, folder, size}], truncated}``, sorted."""

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict({"path": FOLDER}, optional=frozenset({"path"})),
        gives=strict(
            {
                "entries": array_of(strict({"path": PATH, "folder": {"type": "boolean"}, "size": COUNT})),
                "truncated": TRUNCATED,
            }
        ),
        effects="read",
        files="host",
    )

    def __call__(self, args: Object, _ctx: Ctx, /) -> Json:
        """List; ``NO_SUCH_FILE``."""
        path = args.get("path", "")
        with translate_os_errors(path):
            entries = self.host.scan(path)
        shown = [{"path": found.path, "folder": found.folder, "size": found.size} for found in entries[:MAX_ENTRIES]]
        return {"entries": shown, "truncated": len(entries) > MAX_ENTRIES}
