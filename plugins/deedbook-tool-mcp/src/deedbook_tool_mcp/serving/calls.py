"""One tool call, from the protocol to the door and back; the client receives its progress."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import anyio
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from deedbook import DeedbookError, DomainError, Err, Json, Object, Result, Session

from . import people
from .lanes import MAX_CALLS, CallCancelledError, WorkerCall
from .results import build_failure, build_result, build_unknown_tool, build_wrong_arguments
from .sessions import Connection, ConnectionSessions
from .turns import CURRENT, CallEnd, PendingApproval, RunningCall

Context = ServerRequestContext[Any, Any]
_MISSING: Final = frozenset({"TOOL_NOT_FOUND", "TOOL_NOT_ALLOWED"})


class ToolService:
    """Serves ``tools/list`` and ``tools/call`` for *sessions*; *find_connection* identifies the client.

    A call waits at most *patience* seconds for the decision of a person.
    """

    def __init__(
        self, sessions: ConnectionSessions, patience: float, find_connection: Callable[[Context], Connection]
    ) -> None:
        self._sessions, self._patience, self._find_connection = sessions, patience, find_connection
        self._busy = anyio.Semaphore(MAX_CALLS)

    async def list_tools(self, _ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        """Answer ``tools/list``."""
        page = self._sessions.tools.list_page(params.cursor if params else None)
        if page is None:
            raise MCPError(INVALID_PARAMS, "Invalid cursor: it is none that this server gave")
        return page

    async def call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        """Answer ``tools/call``."""
        connection = self._find_connection(ctx)
        session: Result[Session] | None = self._sessions.take_open(connection)
        if session is None:
            session = await anyio.to_thread.run_sync(self._sessions.take, connection)
        if isinstance(session, Err):
            return build_failure(session.error)
        try:
            serving = _ToolCall(self._sessions, self._patience, self._busy, session.value)
            return await serving.answer(ctx, params)
        finally:
            self._sessions.release(connection)


class _ToolCall:
    """One call in progress."""

    def __init__(self, sessions: ConnectionSessions, patience: float, busy: anyio.Semaphore, session: Session) -> None:
        self._shelf, self._lanes = sessions.tools, sessions.loops
        self._patience, self._busy, self._session = patience, busy, session

    async def answer(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        """Make the call, report its progress, and return its result."""
        contact = people.choose_contact(ctx.protocol_version, ctx.session.client_capabilities)
        is_repeated = contact == "round" and params.request_state is not None
        if is_repeated and not people.is_accepted((params.input_responses or {}).get(people.KEY)):
            return _build_declined(str(params.request_state))
        tool = self._shelf.find(params.name)
        running_call = RunningCall(self._shelf.find_ability(params.name))
        patience = 0.0 if contact == "round" and not is_repeated else self._patience
        lane = WorkerCall(lambda: self._call(running_call, params.arguments or {}, patience), self._lanes, self._busy)
        asks = contact == "question" and patience > 0
        result = await _run_with_progress(lane, running_call, _ProgressReporter(ctx, running_call, lane, asks=asks))
        if result is None:
            return _build_declined(running_call.approval)
        if not isinstance(result, Err):
            assert tool
            return build_result(result.value, tool)
        if tool is None and result.error.code in _MISSING:
            raise build_unknown_tool(params.name)
        if (
            contact == "round"
            and not is_repeated
            and result.error.code == "NEEDS_HUMAN"
            and running_call.request is not None
        ):
            return people.build_round_trip(running_call.request)
        return _build_refusal(result.error, running_call, ctx.protocol_version)

    async def _call(self, running_call: RunningCall, args: Json, patience: float) -> Result[Json]:
        """Make the call, on the worker's thread."""
        CURRENT.set(running_call)
        try:
            return await self._session.acall(running_call.ability, args, wait=patience)
        except DeedbookError as problem:
            return Err(problem.error)


class _ProgressReporter:
    """Reports progress and pending approvals to a client; with *asks* it also asks the client's person."""

    def __init__(self, ctx: Context, running_call: RunningCall, lane: WorkerCall[Result[Json]], *, asks: bool) -> None:
        self._ctx, self._turn, self._lane, self._asks = ctx, running_call, lane, asks

    async def __call__(self) -> None:
        """Report every update until the call is over, then cancel an open question."""
        async with anyio.create_task_group() as questions:
            while not isinstance(update := await self._turn.next(), CallEnd):
                if isinstance(update, PendingApproval) and self._asks:
                    questions.start_soon(self._ask, update.request)
                step = (
                    self._turn.build_progress(people.describe_request(update.request))
                    if isinstance(update, PendingApproval)
                    else update
                )
                await self._ctx.session.report_progress(*step)
            questions.cancel_scope.cancel()

    async def _ask(self, request: Object) -> None:
        """Ask the client's person; declining ends the call. If the client cannot ask, the call waits."""
        with suppress(MCPError, ValueError):
            question, form = people.build_question(request), dict(people.FORM)
            answer = await self._ctx.session.elicit_form(question, form, self._ctx.request_id)
            if not people.is_accepted(answer):
                self._lane.cancel()


async def _run_with_progress(
    lane: WorkerCall[Result[Json]], running_call: RunningCall, report: _ProgressReporter
) -> Result[Json] | None:
    """Return the result of a call, and start reports at the first update.

    ``None`` if the client's person declined to wait.
    """
    reports: list[asyncio.Task[None]] = []
    running_call.on_first = lambda: reports.append(asyncio.ensure_future(report()))
    try:
        return await lane.run()
    except CallCancelledError:
        return None
    except Exception as problem:
        raise MCPError(INTERNAL_ERROR, "Internal error") from problem
    finally:
        running_call.end()
        for task in reports:
            await _wait_for_end(task)


async def _wait_for_end(task: asyncio.Task[None]) -> None:
    """Wait for the last report, unless this task is cancelled."""
    try:
        await asyncio.wait([task])
    finally:
        if not task.done():
            task.cancel()


def _build_refusal(error: DomainError, running_call: RunningCall, version: str) -> CallToolResult:
    if running_call.faults or error.code == "INTAKE_REFUSED":
        return build_wrong_arguments(error, version, running_call.faults)
    more = (
        people.build_retry_hint(running_call.approval) if error.code == "NEEDS_HUMAN" and running_call.approval else ""
    )
    return build_failure(error, approval=running_call.approval, more=more)


def _build_declined(approval: str) -> CallToolResult:
    why = "the client declined to wait for the approver. Nothing has been done"
    return build_failure(DomainError("run", "NEEDS_HUMAN", why), approval=approval)
