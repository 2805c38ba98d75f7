"""The requests besides those about tools, passed on by the gateway: each is a call of its ability."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from pydantic import BaseModel, ValidationError

from deedbook import DomainError, Err
from deedbook_tool_mcp.requests import ELICIT, REQUESTS

from . import people
from .calls import CallService
from .results import describe_error
from .sessions import ConnectionSessions
from .turns import Context, RunningCall

_FORMS: Final[Mapping[str, tuple[type[types.RequestParams], type[BaseModel]]]] = {
    "completion/complete": (types.CompleteRequestParams, types.CompleteResult),
    "logging/setLevel": (types.SetLevelRequestParams, types.EmptyResult),
    "prompts/get": (types.GetPromptRequestParams, types.GetPromptResult),
    "prompts/list": (types.PaginatedRequestParams, types.ListPromptsResult),
    "resources/list": (types.PaginatedRequestParams, types.ListResourcesResult),
    "resources/read": (types.ReadResourceRequestParams, types.ReadResourceResult),
    "resources/subscribe": (types.SubscribeRequestParams, types.EmptyResult),
    "resources/templates/list": (types.PaginatedRequestParams, types.ListResourceTemplatesResult),
    "resources/unsubscribe": (types.UnsubscribeRequestParams, types.EmptyResult),
}
_WRONG: Final = frozenset({"SCHEMA_VIOLATION", "INTAKE_REFUSED", "MCP_REFUSED"})
"""Codes of errors that the client's parameters caused."""


def find_methods(sessions: ConnectionSessions) -> Iterator[str]:
    """Yield the requests of the server behind the gateway that the client may make."""
    upstream = sessions.upstream
    for method in sessions.document["servers"][upstream]["requests"]:
        if method != ELICIT and f"{upstream}/{method}" in sessions.exposed:
            yield method


class RequestService:
    """Serves requests of the server *upstream*; *calls* makes the calls."""

    def __init__(self, calls: CallService, upstream: str) -> None:
        self._calls, self._upstream = calls, upstream

    def register(self, server: Server[Any], methods: Iterable[str]) -> None:
        """Let *server* answer *methods*, and declare the capabilities that they belong to."""
        for method in methods:
            server.add_request_handler(method, _FORMS[method][0], partial(self._answer, method))

    async def _answer(self, method: str, ctx: Context, params: types.RequestParams) -> BaseModel:
        """Answer one request; raises `MCPError`."""
        given = params.model_dump(by_alias=True, exclude_none=True, mode="json")
        args = {name: given[name] for name in REQUESTS[method].takes["properties"] if name in given}
        running_call = RunningCall(f"{self._upstream}/{method}")
        asks = people.choose_contact(ctx.protocol_version, ctx.session.client_capabilities) == "question"
        result = await self._calls.call(ctx, running_call, args, self._calls.patience, asks=asks)
        if result is None:
            why = DomainError("run", "NEEDS_HUMAN", "the client declined to wait for the approver")
            raise _build_error(why, running_call)
        if isinstance(result, Err):
            raise _build_error(result.error, running_call)
        try:
            return _FORMS[method][1].model_validate(result.value, by_name=False)
        except ValidationError:
            why = DomainError("run", "MCP_RESULT_INVALID", f"the answer to {method} is not what MCP says")
            raise _build_error(why, running_call) from None


def _build_error(error: DomainError, running_call: RunningCall) -> MCPError:
    """Return the protocol's error for a request that was denied or failed."""
    hint = people.build_retry_hint(running_call.approval) if running_call.approval else ""
    code = types.INVALID_PARAMS if error.code in _WRONG else types.INTERNAL_ERROR
    return MCPError(code, f"{error} [{error.code}]{hint}", describe_error(error, running_call.approval))
