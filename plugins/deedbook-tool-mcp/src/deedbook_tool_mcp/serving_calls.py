"""A tool call, from the protocol to the door and back; what happens meanwhile is told to the client."""

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

from . import serving_people as people
from .serving_lanes import WIDEST, Cancelled, Lane
from .serving_results import failed, given, unknown, wrong_arguments
from .serving_sessions import Connection, Desk
from .serving_turns import CURRENT, Over, Parked, Turn

Context = ServerRequestContext[Any, Any]
_MISSING: Final = frozenset({"TOOL_NOT_FOUND", "TOOL_NOT_ALLOWED"})


class Counter:
    """Serves ``tools/list`` and ``tools/call`` at a *desk*; *connected* says who asks.

    What a person has to decide is waited for at most *patience* seconds.
    """

    def __init__(self, desk: Desk, patience: float, connected: Callable[[Context], Connection]) -> None:
        self._desk, self._patience, self._connected = desk, patience, connected
        self._busy = anyio.Semaphore(WIDEST)

    async def list_tools(self, _ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        """Answer ``tools/list``."""
        page = self._desk.shelf.page(params.cursor if params else None)
        if page is None:
            raise MCPError(INVALID_PARAMS, "Invalid cursor: it is none that this server gave")
        return page

    async def call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        """Answer ``tools/call``."""
        connection = self._connected(ctx)
        begun: Result[Session] | None = self._desk.taken(connection)
        if begun is None:
            begun = await anyio.to_thread.run_sync(self._desk.take, connection)
        if isinstance(begun, Err):
            return failed(begun.error)
        try:
            serving = _Serving(self._desk, self._patience, self._busy, begun.value)
            return await serving.answer(ctx, params)
        finally:
            self._desk.give_back(connection)


class _Serving:
    """One call being served."""

    def __init__(self, desk: Desk, patience: float, busy: anyio.Semaphore, session: Session) -> None:
        self._shelf, self._lanes = desk.shelf, desk.lanes
        self._patience, self._busy, self._session = patience, busy, session

    async def answer(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        """Make the call, tell what happens meanwhile, and return what it came to."""
        way = people.way(ctx.protocol_version, ctx.session.client_capabilities)
        again = way == "round" and params.request_state is not None
        if again and not people.accepted((params.input_responses or {}).get(people.KEY)):
            return _given_up(str(params.request_state))
        offered = self._shelf.find(params.name)
        turn = Turn(self._shelf.ability(params.name))
        patience = 0.0 if way == "round" and not again else self._patience
        lane = Lane(lambda: self._call(turn, params.arguments or {}, patience), self._lanes, self._busy)
        asks = way == "question" and patience > 0
        result = await _meanwhile(lane, turn, _Telling(ctx, turn, lane, asks=asks))
        if result is None:
            return _given_up(turn.approval)
        if not isinstance(result, Err):
            assert offered
            return given(result.value, offered)
        if offered is None and result.error.code in _MISSING:
            raise unknown(params.name)
        if way == "round" and not again and result.error.code == "NEEDS_HUMAN" and turn.request is not None:
            return people.round_trip(turn.request)
        return _refused(result.error, turn, ctx.protocol_version)

    async def _call(self, turn: Turn, args: Json, patience: float) -> Result[Json]:
        """Make the call; on the lane's thread."""
        CURRENT.set(turn)
        try:
            return await self._session.acall(turn.ability, args, wait=patience)
        except DeedbookError as problem:
            return Err(problem.error)


class _Telling:
    """Tells a client how far its call is and what it waits for; *asks*: its person, beside the call."""

    def __init__(self, ctx: Context, turn: Turn, lane: Lane[Result[Json]], *, asks: bool) -> None:
        self._ctx, self._turn, self._lane, self._asks = ctx, turn, lane, asks

    async def __call__(self) -> None:
        """Tell all that there is to tell, until the call is over; a question that is open then is taken back."""
        async with anyio.create_task_group() as questions:
            while not isinstance(said := await self._turn.next(), Over):
                if isinstance(said, Parked) and self._asks:
                    questions.start_soon(self._ask, said.request)
                step = self._turn.step(people.told(said.request)) if isinstance(said, Parked) else said
                await self._ctx.session.report_progress(*step)
            questions.cancel_scope.cancel()

    async def _ask(self, request: Object) -> None:
        """Ask the client's person; whoever declines ends the waiting. Who cannot be asked just waits."""
        with suppress(MCPError, ValueError):
            asked, form = people.question(request), dict(people.FORM)
            answer = await self._ctx.session.elicit_form(asked, form, self._ctx.request_id)
            if not people.accepted(answer):
                self._lane.cancel()


async def _meanwhile(lane: Lane[Result[Json]], turn: Turn, tell: _Telling) -> Result[Json] | None:
    """Return what a call comes to; its client is told as soon as there is something to tell.

    ``None`` where its person has given up.
    """
    telling: list[asyncio.Task[None]] = []
    turn.first = lambda: telling.append(asyncio.ensure_future(tell()))
    try:
        return await lane.run()
    except Cancelled:
        return None
    except Exception as problem:
        raise MCPError(INTERNAL_ERROR, "Internal error") from problem
    finally:
        turn.over()
        for task in telling:
            await _ended(task)


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait for the last words; who was cancelled needs none."""
    try:
        await asyncio.wait([task])
    finally:
        if not task.done():
            task.cancel()


def _refused(error: DomainError, turn: Turn, version: str) -> CallToolResult:
    if turn.faults or error.code == "INTAKE_REFUSED":
        return wrong_arguments(error, version, turn.faults)
    more = people.again(turn.approval) if error.code == "NEEDS_HUMAN" and turn.approval else ""
    return failed(error, approval=turn.approval, more=more)


def _given_up(approval: str) -> CallToolResult:
    why = "nobody waits for the approver: the question at the client was declined. Nothing has been done"
    return failed(DomainError("run", "NEEDS_HUMAN", why), approval=approval)
