"""The tool `elsewhere`: the handler of abilities that another program performs, such as a coding agent's own tools."""

from typing import ClassVar, Final, NoReturn

from deedbook.contract import Ctx, Failed, Handler, HandlerSpec, Host, Object, Plugin

ANY_VALUE: Final[Object] = {"type": ["object", "array", "string", "number", "boolean", "null"]}
"""The JSON Schema of any value."""


class ExternalTool:
    """Performs nothing: the door judges and records such a call, and the agent performs it."""

    spec: ClassVar[HandlerSpec] = HandlerSpec(gives=ANY_VALUE, effects="none")

    def __init__(self, settings: Object, host: Host) -> None:
        pass

    def __call__(self, _args: Object, _ctx: Ctx, /) -> NoReturn:
        """Raise `Failed` (``EFFECT_ELSEWHERE``)."""
        why = "the effect of this ability is the agent's own; let the agent use its tool, and its hooks ask here"
        raise Failed("EFFECT_ELSEWHERE", why)


_: Plugin[HandlerSpec, Handler] = ExternalTool
