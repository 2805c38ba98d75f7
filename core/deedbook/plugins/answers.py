"""Adapt hook methods to gates: each returns a `Decision`, whichever form its event allows."""

from collections.abc import Callable
from typing import Any

from deedbook.contract import ALLOW, Decision
from deedbook.contract.lifecycle import EVENTS, NoAnswer


def adapt_method(event: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return *method*, which answers *event*, as a function that returns a `Decision`."""
    if EVENTS[event].blocking:
        return method
    return _observer(method) if event == "PostToolUse" else _witness(event, method)


def _observer(method: Callable[..., Any]) -> Callable[..., Decision]:
    def observe(*subject: Any) -> Decision:
        seen = method(*subject)
        if type(seen) is Decision:
            why = "PostToolUse takes no decision and no signals, which is a configuration error; return the result"
            raise NoAnswer(f"answered a Decision; {why}")
        return Decision("transform", args={"result": seen})

    return observe


def _witness(event: str, method: Callable[..., Any]) -> Callable[..., Decision]:
    def witness(*subject: Any) -> Decision:
        decision = method(*subject)
        if type(decision) is Decision and decision.signals:
            raise NoAnswer(f"carried signals; {event} is not blocking, so that is a configuration error")
        return ALLOW

    return witness
