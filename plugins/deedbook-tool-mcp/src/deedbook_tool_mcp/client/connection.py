"""A connection to one MCP server: opened at the first call, shared by all calls, opened again after it broke.

Each client of the gateway has a connection of its own, so that what the server sends besides answers has one receiver.

The tools that a server lists are compared with the pinned ones when it is reached, when it announces a change of its
list, and once a minute. A tool that differs is not called.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import mcp_types as types
from mcp import Client
from mcp.client import ClientRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel

from deedbook.contract import Failed, Host, Object, RunningProgram, Secret
from deedbook_tool_mcp.messages import find_refusal_code
from deedbook_tool_mcp.requests import find_offered

from .peers import Peer
from .pipes import Pipes
from .results import build_answer, build_result, find_refusal, is_about_call, mark_secrets
from .web import open_streams

ShowProgress: TypeAlias = Callable[[float, float | None, str | None], None]

START_SECONDS: Final = 120.0
"""Seconds that a server has to start and to list its tools; some are downloaded first."""
LISTING_SECONDS: Final = 60.0
"""Seconds after which the tools are listed again."""
MAX_PAGES: Final = 100
MAX_TOOLS: Final = 2000
_STDERR_SECONDS: Final = 0.2


class RawResult(RootModel[dict[str, Any]]):
    """A result as received; the session has checked its form."""


class ServerSession:
    """An open session with a server, and the tools of its latest listing by name."""

    def __init__(self, client: Client, pipes: Pipes | None) -> None:
        self.client, self.pipes = client, pipes
        self.ended = asyncio.Event()
        self.tools: dict[str, Object] = {}
        self.is_stale = False
        self._listed = 0.0
        self._lock = asyncio.Lock()

    async def refresh_tools(self, *, anew: bool = False) -> None:
        """List the tools, unless the latest listing is recent and no change was announced since."""
        async with self._lock:
            if not (anew or self.is_stale or time.monotonic() - self._listed > LISTING_SECONDS):
                return
            self.is_stale = False
            self.tools = {tool["name"]: tool for tool in await self._list_pages()}
            self._listed = time.monotonic()

    async def _list_pages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = None
        for _ in range(MAX_PAGES):
            page = await self.client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            found += (tool.model_dump(by_alias=True, exclude_unset=True, mode="json") for tool in page.tools)
            cursor = page.next_cursor
            if cursor is None or len(found) > MAX_TOOLS:
                break
        if cursor is not None or len(found) > MAX_TOOLS:
            raise Failed(
                "OUTPUT_TOO_LARGE", f"lists more than {MAX_TOOLS} tools, or more than {MAX_PAGES} pages of them"
            )
        names = [tool["name"] for tool in found]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise Failed("MCP_RESULT_INVALID", f"lists {', '.join(duplicates)} twice")
        return [{key: value for key, value in tool.items() if key not in _VOLATILE} for tool in found]


_VOLATILE: Final = ("_meta", "icons")
"""Members of a listing that do not describe the tool."""


class Connection:
    """Connects to one server by its *settings* (``server``, and ``command`` or ``url``), with *secrets*.

    With *peer*, it is the connection of that client of the gateway.
    """

    def __init__(
        self, settings: Mapping[str, Any], secrets: Mapping[str, Secret], host: Host, peer: Peer | None = None
    ) -> None:
        self.name: str = settings["server"]
        self._settings, self._secrets, self._host, self._peer = settings, secrets, host, peer
        self._session: ServerSession | None = None
        self._starting: asyncio.Future[ServerSession] | None = None
        self._holder: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def call(
        self, tool: str, pinned: Object, args: Any, started: threading.Event, show: ShowProgress | None = None
    ) -> Any:
        """Call *tool* if its listing equals *pinned*; set *started* when the request is sent; raises `Failed`.

        *show* gets the progress that the server reports.
        """
        session = await self._get_session()
        try:
            await session.refresh_tools()
        except Exception as problem:  # noqa: BLE001 - for every exception of the SDK: nothing was called
            raise await self._request_error(
                session, problem, f"{self.name} does not list its tools", lost=False
            ) from None
        self._refuse_changed(session, tool, pinned)
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=args))
        found = await self._send(session, request, tool, started, show)
        return build_result(found, f"{self.name}: {tool}", self._secrets)

    async def request(
        self, method: str, args: Mapping[str, Any], started: threading.Event, show: ShowProgress | None = None
    ) -> Any:
        """Send the request *method* with *args* and return its result; *started* and *show* are as in `call`."""
        session = await self._get_session()
        request = types.Request[dict[str, Any], str](method=method, params=dict(args))
        found = await self._send(session, request, method, started, show)
        return build_answer(found, f"{self.name}: {method}", self._secrets)

    async def _send(
        self, session: ServerSession, request: Any, what: str, started: threading.Event, show: ShowProgress | None
    ) -> dict[str, Any]:
        """Return the result of *request*; raises `Failed`."""

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if show is not None:
                show(progress, total, mark_secrets(message, self._secrets))

        started.set()
        try:
            found = await session.client.session.send_request(request, RawResult, progress_callback=report)
        except Exception as problem:  # noqa: BLE001 - for every exception of the SDK; the work may have been done
            raise await self._request_error(session, problem, f"{self.name}: {what}", lost=True) from None
        return found.root

    async def listing(self) -> dict[str, Any]:
        """Return how the server describes itself, and its tools by name; raises `Failed`."""
        session = await self._get_session()
        client = session.client
        capabilities = client.server_capabilities.model_dump(by_alias=True, exclude_none=True, mode="json")
        info = client.server_info
        about = {
            "name": info.name if info else None,
            "version": info.version if info else None,
            "protocol": client.protocol_version,
            "requests": [*find_offered(capabilities, is_modern=client.protocol_version in MODERN_PROTOCOL_VERSIONS)],
            **({"instructions": client.instructions} if client.instructions else {}),
        }
        return {"about": about, "tools": [session.tools[name] for name in sorted(session.tools)]}

    async def close(self) -> None:
        """Disconnect from the server."""
        self._stop.set()
        if self._holder is not None:
            await asyncio.wait([self._holder])

    # --- reaching it -------------------------------------------------------------------------------------------------

    async def _get_session(self) -> ServerSession:
        """Return the open session; the first caller opens it, and all others wait for it."""
        if self._session is not None and not self._session.ended.is_set():
            return self._session
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_future()
            self._holder = asyncio.create_task(self._hold(self._starting))
        return await asyncio.shield(self._starting)

    async def _hold(self, starting: "asyncio.Future[ServerSession]") -> None:
        """Hold the connection from start to end in one task, as the SDK requires."""
        session: ServerSession | None = None
        try:
            async with self._open() as session:
                self._session, self._starting = session, None
                starting.set_result(session)
                await self._wait_until_over(session)
        except BaseException as problem:
            if not starting.done():
                self._starting = None
                starting.set_exception(self._unreachable_error(problem))
                starting.exception()
            if isinstance(problem, asyncio.CancelledError | KeyboardInterrupt):
                raise
        finally:
            if session is not None:
                session.ended.set()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[ServerSession]:
        """Start or reach the server, agree on a revision of the protocol, and list its tools."""
        process: RunningProgram | None = None
        pipes: Pipes | None = None
        if "command" in self._settings:
            process = await asyncio.to_thread(
                self._host.keep,
                self._settings["command"],
                env=self._resolve_secrets("env"),
                cwd=self._settings.get("cwd", ""),
            )
            pipes = Pipes(self.name, process)
        self._process = process
        streams = pipes.streams() if pipes else open_streams(self._settings["url"], self._resolve_secrets("headers"))
        try:
            async with asyncio.timeout(START_SECONDS) as limit:
                client = Client(
                    streams, cache=None, client_info=_CLIENT_INFO, message_handler=self._on_message,
                    mode=self._peer.mode if self._peer else "auto",
                    elicitation_callback=self._on_question if self._peer and self._peer.elicits else None,
                )  # fmt: skip
                async with client:
                    session = ServerSession(client, pipes)
                    await session.refresh_tools(anew=True)
                    limit.reschedule(None)
                    listening = asyncio.create_task(self._listen(session))
                    try:
                        yield session
                    finally:
                        listening.cancel()
                        await asyncio.gather(listening, return_exceptions=True)
        finally:
            if process is not None:
                await asyncio.to_thread(process.close)

    async def _wait_until_over(self, session: ServerSession) -> None:
        """Wait until the session is over."""
        waits = [asyncio.create_task(self._stop.wait()), asyncio.create_task(session.ended.wait())]
        if session.pipes:
            waits.append(asyncio.create_task(session.pipes.ended.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            session.ended.set()
            for each in waits:
                each.cancel()

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            if self._session is not None:
                self._session.is_stale = True
        elif self._peer is not None and isinstance(message, _PASSED_ON):
            params = message.params.model_dump(by_alias=True, exclude_none=True, mode="json") if message.params else {}
            marked = mark_secrets({key: value for key, value in params.items() if key != "_meta"}, self._secrets)
            self._peer.notify(type(message).model_validate({"method": message.method, "params": marked}))

    async def _on_question(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> Any:
        """Answer a question of the server to the client's person."""
        del context  # it says nothing about the call that the question belongs to
        assert self._peer is not None
        if not isinstance(params, types.ElicitRequestFormParams):
            return types.ErrorData(code=types.INVALID_REQUEST, message="only forms are passed on to the person")
        asked = params.model_dump(by_alias=True, exclude_none=True, mode="json", exclude={"meta", "task"})
        try:
            answer = await asyncio.wrap_future(self._peer.elicit(mark_secrets(asked, self._secrets)))
        except Failed as problem:
            return types.ErrorData(code=types.INVALID_REQUEST, message=f"the question is refused: {problem}")
        return types.ElicitResult.model_validate(answer, by_name=False)

    async def _listen(self, session: ServerSession) -> None:
        """Listen for changes of the list; in the newer protocol only clients that ask receive them."""
        client = session.client
        tools = client.server_capabilities.tools
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS and tools and tools.list_changed:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    session.is_stale = True

    def _resolve_secrets(self, part: str) -> dict[str, str]:
        """Return the environment or the headers, with the values of secrets."""
        values = self._settings.get(part, {})
        return {
            name: value if isinstance(value, str) else self._secrets[value["secret"]].reveal()
            for name, value in values.items()
        }

    # --- failures ----------------------------------------------------------------------------------------------------

    def _refuse_changed(self, session: ServerSession, tool: str, pinned: Object) -> None:
        """Raise `Failed` unless the tool equals the pinned one."""
        now = session.tools.get(tool)
        if now is None:
            why = f"{self.name} does not offer {tool} any more"
        elif now != pinned:
            parts = sorted(key for key in {*now, *pinned} if now.get(key) != pinned.get(key))
            why = f"{self.name}: {tool} is not what was pinned: {', '.join(parts)} changed"
        else:
            return
        raise Failed("MCP_TOOL_CHANGED", f"{why}; look at it, and accept it with: deedbook lock")

    def _unreachable_error(self, problem: BaseException) -> Failed:
        """Return the error for a server that cannot be reached."""
        first = _find_first(problem)
        complaint = f"; {self._process.complaint()}" if self._process else ""
        if isinstance(first, Failed):
            return Failed(first.code, f"the MCP server {self.name}: {first}{complaint}", retryable=first.retryable)
        if isinstance(first, TimeoutError):
            return Failed(
                "MCP_UNAVAILABLE", f"the MCP server {self.name} did not begin within {START_SECONDS:g} s{complaint}"
            )
        code = find_refusal_code(first)
        if code is not None:
            return Failed(code, f"the answer of the MCP server {self.name} is refused: {first}{complaint}")
        why = str(first) or type(first).__name__
        return Failed("MCP_UNAVAILABLE", f"the MCP server {self.name} cannot be reached: {why}{complaint}")

    async def _request_error(self, session: ServerSession, problem: Exception, what: str, *, lost: bool) -> Failed:
        """Return the error for a request without a result; close the session if the connection broke."""
        if isinstance(problem, Failed):
            return Failed(problem.code, f"{what}: {problem}", lost=lost)
        refusal = find_refusal(problem, what, lost=lost)
        if refusal is not None and (session.pipes is not None or is_about_call(problem)):
            return refusal
        session.ended.set()
        if refusal is not None:  # over HTTP, a server that restarted does not know the session
            return Failed(refusal.code, str(refusal), lost=lost)
        if session.pipes is None or self._process is None:
            return Failed("MCP_DISCONNECTED", f"{what}: the connection broke: {_find_first(problem)}", lost=lost)
        if session.pipes.trouble is not None:
            return Failed(session.pipes.trouble.code, f"{what}: {session.pipes.trouble}", lost=lost)
        await asyncio.sleep(_STDERR_SECONDS)  # for the rest of its standard error
        return Failed("MCP_DISCONNECTED", f"{what}: the connection broke: {self._process.complaint()}", lost=lost)

    _process: RunningProgram | None = None


_PASSED_ON: Final = (
    types.LoggingMessageNotification,
    types.PromptListChangedNotification,
    types.ResourceListChangedNotification,
    types.ResourceUpdatedNotification,
)
"""The notifications for the client of the gateway. Its list of tools is the pinned one, which does not change."""
_CLIENT_INFO: Final = types.Implementation(name="deedbook", version="0.1.0")


def _find_first(problem: BaseException) -> BaseException:
    """Return the first failure inside exception groups."""
    while isinstance(problem, BaseExceptionGroup) and problem.exceptions:
        problem = problem.exceptions[0]
    return problem
