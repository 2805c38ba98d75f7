"""The provider ``rules``: deterministic, stateless, and without a model."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from deedbook import Ctx, Failed, HandlerSpec, Host, Object

from .completion import REQUEST, RESPONSE
from .roles import advisor, lead, planner, reviewer, scaffolder, worker
from .rule import check_skill

_FILLS: Final[Mapping[str, Callable[[Object], dict[str, Any]]]] = MappingProxyType(
    {
        "lead_directive_v1": lead,
        "plan_v1": planner,
        "worker_report_v1": worker,
        "review_result_v1": reviewer,
        "advice_v1": advisor,
        "scaffold_v1": scaffolder,
    }
)


class Rules:
    """Fills the roles' messages from ``metadata.deedbook.rules`` of the skill in the request.

    A request that no rule fits raises `Failed` with ``NO_RULE``; nothing is invented.
    """

    spec = HandlerSpec(
        settings={"type": "object", "additionalProperties": False},
        takes=REQUEST,
        gives=RESPONSE,
        effects="read",
        interruptible=False,
        check_skill=check_skill,
    )

    def __init__(self, settings: Object, host: Host) -> None:
        """Bind; there is nothing to keep."""

    def __call__(self, request: Object, _ctx: Ctx) -> dict[str, Any]:
        """Answer a ``completion_request_v2`` with a ``completion_response_v2``."""
        schema = request.get("response_schema")
        fills = _FILLS.get(str(schema))
        if fills is None:
            raise Failed("NO_RULE", f"rules fill {', '.join(_FILLS)}; response_schema is {schema!r}")
        return fills(request)
