"""The SDK's `query` and client, with hooks that judge and record each call of a tool."""

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import aclosing
from types import TracebackType
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, Message, Transport

from deedbook_guard import CallDenied, Guard

from .run import Run


class Governance:
    """Runs agents of the SDK whose tools are governed.

    *pending* has, by the id of its tool use, each call that waits for a person: its ``approval`` and its ``reason``.
    """

    def __init__(self, guard: Guard, *, pause: bool) -> None:
        self.pending: dict[str, CallDenied] = {}
        self._guard, self._pause = guard, pause

    async def query(
        self,
        *,
        prompt: str | AsyncIterable[dict[str, Any]],
        options: ClaudeAgentOptions | None = None,
        transport: Transport | None = None,
    ) -> AsyncIterator[Message]:
        """Act like the SDK's ``query``; calls belong to the conversation that is open when the first message is read.

        Raises the exception of the guard or the ledger that ended the run, if there is one.
        """
        run = self.begin()
        governed = run.govern(options or ClaudeAgentOptions())
        try:
            messages: Any = claude_agent_sdk.query(prompt=prompt, options=governed, transport=transport)
            async with aclosing(messages):
                async for message in messages:
                    run.read(message)
                    yield message
            run.check()
        except BaseException as problem:
            run.end(problem)
            raise
        run.end()

    def client(self, options: ClaudeAgentOptions | None = None, transport: Transport | None = None) -> "GovernedClient":
        """Return a ``ClaudeSDKClient``; its calls belong to the conversation that is open when it connects."""
        return GovernedClient(self, options or ClaudeAgentOptions(), transport)

    def begin(self) -> Run:
        """Begin a run in the conversation that is open now."""
        return Run(self._guard.current, self.pending, pause=self._pause)


class GovernedClient(ClaudeSDKClient):
    """The SDK's client with governed tools. `disconnect` closes the calls that are still open."""

    def __init__(self, governance: Governance, options: ClaudeAgentOptions, transport: Transport | None) -> None:
        super().__init__(options, transport)
        self._own, self._governance = options, governance
        self._run: Run | None = None
        self._problem: BaseException | None = None

    async def connect(self, prompt: str | AsyncIterable[dict[str, Any]] | None = None) -> None:
        """Start the CLI with the governing hooks."""
        self._end()
        self._run, self._problem = self._governance.begin(), None
        self.options = self._run.govern(self._own)
        await super().connect(prompt)

    async def receive_messages(self) -> AsyncIterator[Message]:
        """Act like the SDK's client; raises the exception of the guard or the ledger that ended a run."""
        async for message in super().receive_messages():
            if self._run is not None:
                self._run.read(message)
            yield message

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Disconnect; *problem* may have cancelled the calls that are still open."""
        self._problem = problem
        return await super().__aexit__(kind, problem, traceback)

    async def disconnect(self) -> None:
        """Stop the CLI."""
        try:
            await super().disconnect()
        finally:
            self._end()

    def _end(self) -> None:
        if self._run is not None:
            self._run.end(self._problem)
