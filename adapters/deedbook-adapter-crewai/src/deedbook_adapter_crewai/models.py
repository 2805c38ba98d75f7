"""The methods of governed models: each request is judged as it is sent, and recorded with its answer."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    """A model that is asked, what the framework shows of its answer (``usage``, ``finish_reason``), and the record."""

    model: Any
    shown: dict[str, Any] = attrs.field(factory=dict)
    answer: dict[str, Any] = attrs.field(factory=dict)


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
            permit = permit_request(guard, model, messages, tools)
            with _record_failure(permit, model) as asked:
                answer = base.call(model, messages, tools, *args, **kwargs)
                asked.answer = response_of(model, answer, asked.shown)
            permit.conversation.after_model(permit, asked.answer)
            return answer

        async def acall(model: Any, messages: Any, tools: Any = None, *args: Any, **kwargs: Any) -> Any:
            try:
                permit = await guard.current.abefore_model(request_of(model, messages, tools))
            except CallDenied as denied:
                raise HookAborted(denied.reason, SOURCE) from denied
            with _record_failure(permit, model) as asked:
                answer = await base.acall(model, messages, tools, *args, **kwargs)
                asked.answer = response_of(model, answer, asked.shown)
            await permit.conversation.aafter_model(permit, asked.answer)
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


@contextmanager
def _record_failure(permit: Permit, model: Any) -> Iterator[Asked]:
    """Record an exception of the model as the outcome of its request."""
    asked = Asked(model)
    token = ASKED.set(asked)
    try:
        yield asked
    except BaseException as problem:
        permit.conversation.fail(permit, problem)
        raise
    finally:
        ASKED.reset(token)
