"""A connection to one MCP server: begun at the first call, shared by all calls, begun anew after it broke.

What a server lists is compared with what was pinned when it is reached, when it says that its list has changed, and
once a minute; a tool that differs is not called.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import mcp_types as types
from mcp import Client
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel

from deedbook.contract import Failed, Host, Object, RunningProgram, Secret

from .messages import refusal_code
from .pipes import Pipes
from .results import is_about_the_call, refused, result_of
from .web import reached

STARTING: Final = 120.0
"""Seconds that a server has to start and to list its tools; some are downloaded first."""
LISTED: Final = 60.0
"""Seconds after which a listing is asked for again."""
PAGES: Final = 100
TOOLS: Final = 2000
_SAID: Final = 0.2


class Raw(RootModel[dict[str, Any]]):
    """A result as it came, whose form the session has checked."""


class Live:
    """A server that is spoken with: its session, and its tools as last listed, by name."""

    def __init__(self, client: Client, pipes: Pipes | None) -> None:
        self.client, self.pipes = client, pipes
        self.ended = asyncio.Event()
        self.tools: dict[str, Object] = {}
        self.stale = False
        self._listed = 0.0
        self._lock = asyncio.Lock()

    async def look(self, *, anew: bool = False) -> None:
        """List the tools, unless that was done a moment ago and nothing was said since."""
        async with self._lock:
            if not (anew or self.stale or time.monotonic() - self._listed > LISTED):
                return
            self.stale = False
            self.tools = {tool["name"]: tool for tool in await self._pages()}
            self._listed = time.monotonic()

    async def _pages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = None
        for _ in range(PAGES):
            page = await self.client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            found += (tool.model_dump(by_alias=True, exclude_unset=True, mode="json") for tool in page.tools)
            cursor = page.next_cursor
            if cursor is None or len(found) > TOOLS:
                break
        if cursor is not None or len(found) > TOOLS:
            raise Failed("OUTPUT_TOO_LARGE", f"lists more than {TOOLS} tools, or more than {PAGES} pages of them")
        names = [tool["name"] for tool in found]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise Failed("MCP_RESULT_INVALID", f"lists {', '.join(doubled)} twice")
        return [{key: value for key, value in tool.items() if key not in _VOLATILE} for tool in found]


_VOLATILE: Final = ("_meta", "icons")
"""Parts of a listing that say nothing about what a tool is."""


class Connection:
    """Reaches one server, as *how* says (``server``, and ``command`` or ``url``), with the *secrets* it is given."""

    def __init__(self, how: Mapping[str, Any], secrets: Mapping[str, Secret], host: Host) -> None:
        self.name: str = how["server"]
        self._how, self._secrets, self._host = how, secrets, host
        self._live: Live | None = None
        self._starting: asyncio.Future[Live] | None = None
        self._holder: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def call(self, tool: str, pinned: Object, args: Any, begun: threading.Event) -> Any:
        """Call *tool*, if it is listed as it was *pinned*, and set *begun* when it is asked for; raises `Failed`."""
        live = await self._reached()
        try:
            await live.look()
        except Exception as problem:  # noqa: BLE001 - whatever the SDK raises, nothing was called
            raise await self._broken(live, problem, f"{self.name} does not list its tools", lost=False) from None
        self._refuse_changed(live, tool, pinned)
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=args))
        begun.set()
        try:
            found = await live.client.session.send_request(request, Raw)
        except Exception as problem:  # noqa: BLE001 - as above; the tool may have been called
            raise await self._broken(live, problem, f"{self.name}: {tool}", lost=True) from None
        return result_of(found.root, f"{self.name}: {tool}", self._secrets)

    async def listing(self) -> dict[str, Any]:
        """Return what the server says that it is, and its tools, by name; raises `Failed`."""
        live = await self._reached()
        info = live.client.server_info
        about = {
            "name": info.name if info else None,
            "version": info.version if info else None,
            "protocol": live.client.protocol_version,
        }
        return {"about": about, "tools": [live.tools[name] for name in sorted(live.tools)]}

    async def close(self) -> None:
        """Let go of the server."""
        self._stop.set()
        if self._holder is not None:
            await asyncio.wait([self._holder])

    # --- reaching it -------------------------------------------------------------------------------------------------

    async def _reached(self) -> Live:
        """Return the server, spoken with; whoever comes first starts it, and everybody waits for that."""
        if self._live is not None and not self._live.ended.is_set():
            return self._live
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_future()
            self._holder = asyncio.create_task(self._hold(self._starting))
        return await asyncio.shield(self._starting)

    async def _hold(self, starting: "asyncio.Future[Live]") -> None:
        """Hold the connection from its beginning to its end, in one task, as its library needs it."""
        live: Live | None = None
        try:
            async with self._opened() as live:
                self._live, self._starting = live, None
                starting.set_result(live)
                await self._over(live)
        except BaseException as problem:
            if not starting.done():
                self._starting = None
                starting.set_exception(self._unreached(problem))
                starting.exception()
            if isinstance(problem, asyncio.CancelledError | KeyboardInterrupt):
                raise
        finally:
            if live is not None:
                live.ended.set()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Live]:
        """Start or reach the server, agree on a revision of the protocol, and list its tools."""
        kept: RunningProgram | None = None
        pipes: Pipes | None = None
        if "command" in self._how:
            kept = await asyncio.to_thread(
                self._host.keep, self._how["command"], env=self._given("env"), cwd=self._how.get("cwd", "")
            )
            pipes = Pipes(self.name, kept)
        self._kept = kept
        streams = pipes.streams() if pipes else reached(self._how["url"], self._given("headers"))
        try:
            async with asyncio.timeout(STARTING) as limit:
                client = Client(streams, cache=None, client_info=_US, message_handler=self._heard)
                async with client:
                    live = Live(client, pipes)
                    await live.look(anew=True)
                    limit.reschedule(None)
                    listening = asyncio.create_task(self._listen(live))
                    try:
                        yield live
                    finally:
                        listening.cancel()
                        await asyncio.gather(listening, return_exceptions=True)
        finally:
            if kept is not None:
                await asyncio.to_thread(kept.close)

    async def _over(self, live: Live) -> None:
        """Wait until the server is not to be spoken with any more."""
        waits = [asyncio.create_task(self._stop.wait()), asyncio.create_task(live.ended.wait())]
        if live.pipes:
            waits.append(asyncio.create_task(live.pipes.ended.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            live.ended.set()
            for each in waits:
                each.cancel()

    async def _heard(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification) and self._live is not None:
            self._live.stale = True

    async def _listen(self, live: Live) -> None:
        """Hear of changes where the newer protocol says them only to those who ask."""
        client = live.client
        tools = client.server_capabilities.tools
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS and tools and tools.list_changed:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    live.stale = True

    def _given(self, part: str) -> dict[str, str]:
        """Return the environment or the headers, with the values of secrets."""
        said = self._how.get(part, {})
        return {
            name: value if isinstance(value, str) else self._secrets[value["secret"]].reveal()
            for name, value in said.items()
        }

    # --- failures ----------------------------------------------------------------------------------------------------

    def _refuse_changed(self, live: Live, tool: str, pinned: Object) -> None:
        """Raise `Failed` unless the tool is what it was when somebody looked."""
        now = live.tools.get(tool)
        if now is None:
            why = f"{self.name} does not offer {tool} any more"
        elif now != pinned:
            parts = sorted(key for key in {*now, *pinned} if now.get(key) != pinned.get(key))
            why = f"{self.name}: {tool} is not what was pinned: {', '.join(parts)} changed"
        else:
            return
        raise Failed("MCP_TOOL_CHANGED", f"{why}; look at it, and accept it with: deedbook lock")

    def _unreached(self, problem: BaseException) -> Failed:
        """Return why the server cannot be spoken with."""
        first = _first(problem)
        told = f"; {self._kept.complaint()}" if self._kept else ""
        if isinstance(first, Failed):
            return Failed(first.code, f"the MCP server {self.name}: {first}{told}", retryable=first.retryable)
        if isinstance(first, TimeoutError):
            return Failed("MCP_UNAVAILABLE", f"the MCP server {self.name} did not begin within {STARTING:g} s{told}")
        code = refusal_code(first)
        if code is not None:
            return Failed(code, f"the answer of the MCP server {self.name} is refused: {first}{told}")
        why = str(first) or type(first).__name__
        return Failed("MCP_UNAVAILABLE", f"the MCP server {self.name} cannot be spoken with: {why}{told}")

    async def _broken(self, live: Live, problem: Exception, what: str, *, lost: bool) -> Failed:
        """Return what a request came to that has no result; a connection that broke is let go of."""
        if isinstance(problem, Failed):
            return Failed(problem.code, f"{what}: {problem}", lost=lost)
        said = refused(problem, what, lost=lost)
        if said is not None and (live.pipes is not None or is_about_the_call(problem)):
            return said
        live.ended.set()
        if said is not None:  # over HTTP it may be that the server was started anew and knows no session any more
            return Failed(said.code, str(said), lost=lost)
        if live.pipes is None or self._kept is None:
            return Failed("MCP_DISCONNECTED", f"{what}: the connection broke: {_first(problem)}", lost=lost)
        if live.pipes.trouble is not None:
            return Failed(live.pipes.trouble.code, f"{what}: {live.pipes.trouble}", lost=lost)
        await asyncio.sleep(_SAID)  # for its last words
        return Failed("MCP_DISCONNECTED", f"{what}: the connection broke: {self._kept.complaint()}", lost=lost)

    _kept: RunningProgram | None = None


_US: Final = types.Implementation(name="deedbook", version="0.1.0")


def _first(problem: BaseException) -> BaseException:
    """Return the failure itself, where a library wrapped it in groups."""
    while isinstance(problem, BaseExceptionGroup) and problem.exceptions:
        problem = problem.exceptions[0]
    return problem
