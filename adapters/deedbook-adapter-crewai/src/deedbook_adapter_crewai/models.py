"""The methods of governed models: each request is judged as it is sent, and recorded with its answer."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

import attrs
from crewai.hooks import HookAborted

from deedbook_guard import CallDenied, Guard, Permit

from .completions import request_of, response_of

SOURCE: Final = "deedbook"
"""The name of a denial's source in the framework's events."""
ASKED: Final[ContextVar[Any]] = ContextVar("deedbook_crewai_asked", default=None)
"""The request that this context waits for."""


@attrs.define(eq=False)
class Asked:
    """A model that is asked, and what the framework shows of its answer: ``usage`` and ``finish_reason``."""

    model: Any
    shown: dict[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class ModelMethods:
    """The methods of a governed model, for `govern_object`.

    The framework puts its retries around them, so each attempt is a request of its own.
    """

    guard: Guard

    def __call__(self, base: Any) -> Mapping[str, Any]:
        """Return the methods that send a request, and the one that tells what it used."""
        guard = self.guard

        def call(model: Any, messages: Any, tools: Any = None, *args: Any, **kwargs: Any) -> Any:
            permit, asked, token = _begin(guard, model, messages, tools)
            try:
                answer = base.call(model, messages, tools, *args, **kwargs)
                recorded = response_of(model, answer, asked.shown)
            except BaseException as problem:
                permit.conversation.fail(permit, problem)
                raise
            finally:
                ASKED.reset(token)
            permit.conversation.after_model(permit, recorded)
            return answer

        async def acall(model: Any, messages: Any, tools: Any = None, *args: Any, **kwargs: Any) -> Any:
            permit, asked, token = _begin(guard, model, messages, tools)
            try:
                answer = await base.acall(model, messages, tools, *args, **kwargs)
                recorded = response_of(model, answer, asked.shown)
            except BaseException as problem:
                permit.conversation.fail(permit, problem)
                raise
            finally:
                ASKED.reset(token)
            await permit.conversation.aafter_model(permit, recorded)
            return answer

        def _emit_call_completed_event(model: Any, *args: Any, **kwargs: Any) -> None:
            asked = ASKED.get()
            if asked is not None and asked.model is model:
                asked.shown.update(kwargs)
            base._emit_call_completed_event(model, *args, **kwargs)

        return {"call": call, "acall": acall, "_emit_call_completed_event": _emit_call_completed_event}


def permit_request(guard: Guard, model: Any, messages: Any, tools: Any = None) -> Permit:
    """Judge a request and record it. A denial is `HookAborted`, which the framework does not try again."""
    try:
        return guard.current.before_model(request_of(model, messages, tools))
    except CallDenied as denied:
        raise HookAborted(denied.reason, SOURCE) from denied


def _begin(guard: Guard, model: Any, messages: Any, tools: Any) -> tuple[Permit, Asked, Any]:
    permit, asked = permit_request(guard, model, messages, tools), Asked(model)
    return permit, asked, ASKED.set(asked)
