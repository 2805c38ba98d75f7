"""Hook methods as gates are asked: each answers with a `Decision`, whatever its event lets it return."""

from collections.abc import Callable
from typing import Any

from deedbook.contract import ALLOW, Decision
from deedbook.contract.lifecycle import EVENTS, Unanswered


def asked(event: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return *method*, which answers *event*, as a gate is asked: with a `Decision` for an answer."""
    if EVENTS[event].blocking:
        return method
    return _observer(method) if event == "PostToolUse" else _witness(event, method)


def _observer(method: Callable[..., Any]) -> Callable[..., Decision]:
    def observe(*subject: Any) -> Decision:
        seen = method(*subject)
        if type(seen) is Decision:
            why = "PostToolUse takes no decision and no signals, which is a configuration error; return the result"
            raise Unanswered(f"answered a Decision; {why}")
        return Decision("transform", args={"result": seen})

    return observe


def _witness(event: str, method: Callable[..., Any]) -> Callable[..., Decision]:
    def witness(*subject: Any) -> Decision:
        said = method(*subject)
        if type(said) is Decision and said.signals:
            raise Unanswered(f"carried signals; {event} is not blocking, so that is a configuration error")
        return ALLOW

    return witness
