"""The smallest tool."""

from deedbook.contract import Ctx, HandlerSpec, Host, Json, Object

from .shapes import strict


class Echo:
    """Give a text back: ``{text}`` to ``{text}``."""

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict({"text": {"type": "string"}}),
        gives=strict({"text": {"type": "string"}}),
        effects="none",
        files="none",
    )

    def __init__(self, settings: Object, host: Host) -> None:
        """Bind; there is nothing to keep."""

    def __call__(self, args: Object, _ctx: Ctx, /) -> Json:
        """Return the text."""
        return {"text": args["text"]}
