"""One call, from the protocol to the door and back; the client receives its progress."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Final

import anyio
from mcp import MCPError
from mcp.server.connection import allowed_log_levels
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    LoggingMessageNotification,
    PaginatedRequestParams,
)

from deedbook import DeedbookError, DomainError, Err, Json, Object, Result, Session
from deedbook_tool_mcp.client.peers import PEER

from . import people
from .lanes import MAX_CALLS, CallCancelledError, WorkerCall
from .peers import GatewayPeer, PeerTable
from .results import build_failure, build_result, build_unknown_tool, build_wrong_arguments
from .sessions import Connection, ConnectionSessions
from .tools import ToolList
from .turns import CURRENT, CallEnd, Context, LogMessage, PendingApproval, RunningCall

_MISSING: Final = frozenset({"TOOL_NOT_FOUND", "TOOL_NOT_ALLOWED"})


class CallService:
    """Makes the calls of clients in their *sessions*; *find_connection* identifies the client.

    A call waits at most *patience* seconds for the decision of a person.
    """

    def __init__(
        self, sessions: ConnectionSessions, patience: float, find_connection: Callable[[Context], Connection]
    ) -> None:
        self.patience = patience
        self._sessions, self._find_connection = sessions, find_connection
        self._peers = PeerTable(sessions, patience) if sessions.upstream else None
        self._busy = anyio.Semaphore(MAX_CALLS)

    async def call(
        self, ctx: Context, running_call: RunningCall, args: Json, patience: float, *, asks: bool
    ) -> Result[Json] | None:
        """Make a call, report its progress, and return its result.

        With *asks* the client's person is asked whether to wait for an approval; ``None`` if they declined.
        """
        connection = self._find_connection(ctx)
        session = await self._sessions.open(connection)
        if isinstance(session, Err):
            return session
        try:
            peer = self._peers.find(connection, ctx) if self._peers else None
            lane = WorkerCall(
                lambda: _call(session.value, running_call, args, patience, peer), self._sessions.loops, self._busy
            )
            with peer.during(running_call, ctx) if peer else nullcontext():
                reporter = _ProgressReporter(ctx, running_call, lane, asks=asks and patience > 0)
                return await _run_with_progress(lane, running_call, reporter)
        finally:
            self._sessions.release(connection)


async def _call(
    session: Session, running_call: RunningCall, args: Json, patience: float, peer: GatewayPeer | None
) -> Result[Json]:
    """Make the call, on the worker's thread; the result of a flow that keeps a context is the outcome of that."""
    CURRENT.set(running_call)
    PEER.set(peer)
    try:
        result = await session.acall(running_call.ability, args, wait=patience)
        context = None if isinstance(result, Err) else session.find_context(result.value)
        return result if context is None else context.outcome()
    except DeedbookError as problem:
        return Err(problem.error)


class ToolService:
    """Serves ``tools/list`` and ``tools/call`` for the list of *tools*; *calls* makes the calls."""

    def __init__(self, calls: CallService, tools: ToolList) -> None:
        self._calls, self._tools = calls, tools

    async def list_tools(self, _ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        """Answer ``tools/list``."""
        page = self._tools.list_page(params.cursor if params else None)
        if page is None:
            raise MCPError(INVALID_PARAMS, "Invalid cursor: it is none that this server gave")
        return page

    async def call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        """Answer ``tools/call``."""
        contact = people.choose_contact(ctx.protocol_version, ctx.session.client_capabilities)
        is_repeated = contact == "round" and params.request_state is not None
        if is_repeated and not people.is_accepted((params.input_responses or {}).get(people.KEY)):
            return _build_declined(str(params.request_state))
        tool = self._tools.find(params.name)
        running_call = RunningCall(self._tools.find_ability(params.name))
        returns_first = contact == "round" and not is_repeated and not (tool and tool.makes_calls)
        patience = 0.0 if returns_first else self._calls.patience
        result = await self._calls.call(ctx, running_call, params.arguments or {}, patience, asks=contact == "question")
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
            and not running_call.is_nested
        ):
            return people.build_round_trip(running_call.request)
        return _build_refusal(result.error, running_call, ctx.protocol_version)


class _ProgressReporter:
    """Reports progress and pending approvals to a client; with *asks* it also asks the client's person."""

    def __init__(self, ctx: Context, running_call: RunningCall, lane: WorkerCall[Result[Json]], *, asks: bool) -> None:
        self._ctx, self._turn, self._lane, self._asks = ctx, running_call, lane, asks

    async def __call__(self) -> None:
        """Report every update until the call is over, then cancel an open question."""
        async with anyio.create_task_group() as questions:
            while not isinstance(update := await self._turn.next(), CallEnd):
                if isinstance(update, LogMessage):
                    await self._pass_on(update.notification)
                    continue
                if isinstance(update, PendingApproval) and self._asks:
                    questions.start_soon(self._ask, update.request)
                step = (
                    self._turn.build_progress(people.describe_request(update.request))
                    if isinstance(update, PendingApproval)
                    else update
                )
                await self._ctx.session.report_progress(*step)
            questions.cancel_scope.cancel()

    async def _pass_on(self, message: LoggingMessageNotification) -> None:
        """Pass a log message on, unless the client's revision sends none to this request."""
        if message.params.level in allowed_log_levels(self._ctx.protocol_version, self._ctx.meta):
            await self._ctx.session.send_notification(message, self._ctx.request_id)

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
    if error.code != "NEEDS_HUMAN":
        return build_failure(error, approval=running_call.approval)
    approvals, more = running_call.approvals, ""
    if running_call.is_nested:
        more = people.build_restart_hint(running_call.ability, approvals)
    elif approvals:
        more = people.build_retry_hint(approvals[-1])
    return build_failure(error, approval=approvals[-1] if approvals else "", approvals=approvals, more=more)


def _build_declined(approval: str) -> CallToolResult:
    why = "the client declined to wait for the approver. Nothing has been done"
    return build_failure(DomainError("run", "NEEDS_HUMAN", why), approval=approval)
