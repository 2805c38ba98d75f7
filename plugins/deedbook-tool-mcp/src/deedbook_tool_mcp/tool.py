"""One tool of an MCP server, as the handler of an ability."""

from typing import Any, Final

from deedbook.contracts import Ctx, Failed, HandlerSpec, Host, Json, Object

SETTINGS: Final = {"type": "object", "required": ["server", "tool"]}


class Mcp:
    """Calls one tool of the server that its settings name."""

    spec = HandlerSpec(settings=SETTINGS, effects="none", interruptible=True)

    def __init__(self, settings: Object, host: Host) -> None:
        self._settings = settings
        self._host = host

    def __call__(self, _args: Any, _ctx: Ctx) -> Json:
        """Call the tool; raises `Failed`."""
        raise Failed("NOT_AVAILABLE", f"{self._settings['tool']}: comes with a later release")
