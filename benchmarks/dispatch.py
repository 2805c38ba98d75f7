"""Asking hooks: what each adds, that the others add nothing, and pluggy's own way of calling them (T5)."""

import time
from collections.abc import Iterator
from typing import Any, Final

import pluggy

from benchmarks.measures import Line, Measure
from benchmarks.rounds import Work, take_turns
from benchmarks.workspaces import ARGS, session
from deedbook import Call, Decision, canonical
from deedbook.contracts import ALLOW
from deedbook.judge import Circumstances, judge
from deedbook.session import Session

_COUNTS: Final = (0, 1, 5, 20)
_STRANGERS: Final = 1000


def run() -> Iterator[Line]:
    """Measure decisions under workspaces that differ in their hooks only."""
    with (
        session(guards=0) as none,
        session(guards=1) as one,
        session(guards=5) as five,
        session(guards=20) as twenty,
        session(guards=0, strangers=_STRANGERS) as strangers,
    ):
        made = dict(zip(_COUNTS, (none, one, five, twenty), strict=True))
        ours = {f"{count}": decide(each) for count, each in made.items()}
        theirs = {f"pluggy {count}": through_pluggy(count) for count in _COUNTS}
        times = take_turns({**ours, "strangers": decide(strangers), **theirs})
        whole = take_turns({"1": call(one), "20": call(twenty), "0": call(none), "strangers": call(strangers)})
    yield Measure("dispatch: each added matching hook, deciding", "at most", 0.4, times.added("20", "1", 19), unit="µs")
    yield Measure(
        "dispatch: each added matching hook, whole call", "at most", 0.4, whole.added("20", "1", 19), unit="µs"
    )
    yield Measure(
        f"dispatch: {_STRANGERS} hooks that do not match, deciding", "at most", 1.02, times.ratio("strangers", "0"), 1.0
    )
    yield Measure(
        f"dispatch: {_STRANGERS} hooks that do not match, whole call",
        "at most",
        1.02,
        whole.ratio("strangers", "0"),
        1.0,
    )


def call(made: Session) -> Work:
    """Return the whole governed call."""
    return lambda: made.call("echo", ARGS)


def decide(made: Session) -> Work:
    """Return the decision of a call of `echo`, without I/O: scope, schema, hooks and policy."""
    raw = canonical.admit(ARGS)
    when = Circumstances("2026-01-01T00:00:00.000Z", made.id, {})

    def work() -> Any:
        try:
            next(judge(made.bindings, made.caller, "echo", ARGS, raw, when, time.perf_counter))
        except StopIteration as done:
            return done.value
        raise AssertionError("every gate here is inline and pure")

    return work


class _Lifecycle:
    @pluggy.HookspecMarker("bench")
    def pre_tool_use(self, call: Call) -> Decision | None:
        """Ask."""


class _Allow:
    @pluggy.HookimplMarker("bench")
    def pre_tool_use(self, call: Call) -> Decision | None:
        """Answer."""
        return ALLOW


def through_pluggy(count: int) -> Work:
    """Return pluggy's caller with *count* plugins that allow."""
    manager = pluggy.PluginManager("bench")
    manager.add_hookspecs(_Lifecycle)
    for _ in range(count):
        manager.register(_Allow())
    caller = manager.hook.pre_tool_use
    return lambda: caller(call=None)
