"""The tool ``swe-patch``: says what a patch changes, or refuses it."""

from deedbook.contract import Ctx, HandlerSpec, Host, Json, Object
from deedbook_tool_standard.shapes import strict

from .patches import check_patch, describe
from .shapes import CHANGES, GLOBS


class SwePatch:
    """Check a unified diff: ``{patch, allow?, most_lines?}`` to ``{files, added, removed}``.

    It is refused (``PATCH_REFUSED``) if it changes a file that fits none of the globs *allow*, more than *most_lines*
    lines, or anything but the text of plain files: modes, links, submodules, binary files, renames, ``.git`` and the
    files that git reads as instructions.
    """

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict(
            {
                "patch": {"type": "string"},
                "allow": GLOBS,
                "most_lines": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
            },
            optional=frozenset({"allow", "most_lines"}),
        ),
        gives=CHANGES,
        effects="none",
        files="none",
    )

    def __init__(self, settings: Object, host: Host) -> None:
        """Take no settings."""

    def __call__(self, args: Object, _ctx: Ctx, /) -> Json:
        """Check; ``PATCH_REFUSED``, ``BAD_PATTERN``."""
        return describe(check_patch(args["patch"], args.get("allow"), args.get("most_lines")))
