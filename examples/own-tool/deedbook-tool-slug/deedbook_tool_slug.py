"""A title as the last part of a web address."""

import re
from unicodedata import normalize

from deedbook import Ctx, Failed, HandlerSpec, Host, Json, Object

TEXT = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string"}},
    "additionalProperties": False,
}


class Slug:
    """``{text}`` to ``{text}``; the setting ``longest`` is the greatest length."""

    spec = HandlerSpec(
        settings={"properties": {"longest": {"type": "integer"}}}, takes=TEXT, gives=TEXT, effects="none"
    )

    def __init__(self, settings: Object, host: Host) -> None:
        self.longest = settings.get("longest", 60)

    def __call__(self, args: Object, ctx: Ctx) -> Json:
        words = re.findall(r"[a-z0-9]+", normalize("NFKD", args["text"]).encode("ascii", "ignore").decode().lower())
        if not words:
            raise Failed("NO_LETTERS", "the text has no letters that a web address can hold")
        return {"text": "-".join(words)[: self.longest].rstrip("-")}
