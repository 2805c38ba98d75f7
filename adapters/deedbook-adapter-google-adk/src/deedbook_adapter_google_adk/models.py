"""Models of Google ADK whose requests are judged as they are sent, and recorded with their answers."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from threading import Lock
from typing import Any, Final
from weakref import finalize

from google.adk.models import LlmRequest, LlmResponse

from deedbook_guard import Guard

from .completions import hosted_tools, request_of, response_of


class ExpectedRequests:
    """Which guard judges a request; an entry lives as long as the request."""

    def __init__(self) -> None:
        self._guards: dict[int, Guard] = {}
        self._lock = Lock()

    def add(self, request: LlmRequest, guard: Guard) -> None:
        """Say that *guard* judges *request*."""
        with self._lock:
            if id(request) not in self._guards:
                finalize(request, self._guards.pop, id(request), None)
            self._guards[id(request)] = guard

    def guard_of(self, request: LlmRequest) -> Guard | None:
        """Return the guard that judges *request*, if there is one."""
        return self._guards.get(id(request))


EXPECTED: Final = ExpectedRequests()
"""The framework gives a model nothing but the request, so the plugin says here which guard judges it."""


def governed_model(base: Any) -> dict[str, Any]:
    """Return the methods of a governed model; see `govern_object`."""

    async def generate_content_async(
        self: Any, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        """Ask the model if the request is allowed; otherwise `CallDenied` stops the run."""
        responses = base.generate_content_async(self, llm_request, stream=stream)
        guard = EXPECTED.guard_of(llm_request)
        if guard is not None:
            responses = _record_responses(guard, llm_request, responses)
        async with aclosing(responses):
            async for response in responses:
                yield response

    return {"generate_content_async": generate_content_async}


async def _record_responses(guard: Guard, request: LlmRequest, responses: Any) -> AsyncIterator[LlmResponse]:
    """Yield the *responses*, which begin only if the request is allowed, and record the answer that they make.

    A complete response is given on when the answer is recorded, since tools run as soon as it is given.
    """
    conversation = guard.current
    permit = await conversation.abefore_model(request_of(request))
    seen: list[LlmResponse] = []
    held: LlmResponse | None = None
    try:
        async with aclosing(responses):
            async for response in responses:
                seen.append(response)
                if held is not None:
                    yield held
                held = None if response.partial else response
                if held is None:
                    yield response
        recorded = response_of(request, seen)
    except BaseException as problem:
        conversation.fail(permit, problem)
        raise
    await conversation.aafter_model(permit, recorded)
    for kind in hosted_tools(seen):
        conversation.note("HostedTool", {"type": kind})
    if held is not None:
        yield held
