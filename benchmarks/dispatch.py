"""Asking hooks: what each adds, that the others add nothing, and pluggy's own way of calling them (T5)."""

import time
from collections.abc import Iterator
from typing import Any, Final

import pluggy

from benchmarks.measures import Line, Measure, Value
from benchmarks.rounds import Plan, Work
from benchmarks.workspaces import ARGS, session
from deedbook.contract.lifecycle import Lifecycle
from deedbook.format import canonical
from deedbook.policy.gates import answer
from deedbook.policy.judge import DecisionContext, judge, make_call
from deedbook.sessions.session import Session

_COUNTS: Final = (1, 5, 20)
_STRANGERS: Final = 1000


def run(plan: Plan) -> Iterator[Line]:
    """Measure decisions under workspaces that differ in their hooks only."""
    many = plan.size(_STRANGERS, 20)
    with (
        session(guards=0) as none,
        session(guards=1) as one,
        session(guards=5) as five,
        session(guards=20) as twenty,
        session(guards=0, strangers=many) as strangers,
    ):
        yield from _added(plan, {"0": none, "1": one, "20": twenty, "strangers": strangers}, many)
        yield from _beside_pluggy(plan, dict(zip(_COUNTS, (one, five, twenty), strict=True)), many)


def _added(plan: Plan, made: dict[str, Session], many: int) -> Iterator[Line]:
    deciding = plan.take_turns({name: decide(each) for name, each in made.items()})
    whole = plan.take_turns({name: call(each) for name, each in made.items()})
    yield Value("deciding about a call, one hook and one policy: CPU", deciding.micros("1"), "µs")
    yield Measure("each added matching hook, deciding", "at most", 0.4, deciding.added("20", "1", 19), unit="µs")
    yield Value("each added matching hook, recorded, in a whole call", whole.added("20", "1", 19), "µs")
    what = f"{many} hooks that do not match"
    yield Measure(f"{what}, deciding", "at most", 1.02, deciding.ratio("strangers", "0"), 1.0)
    yield Measure(f"{what}, whole call", "at most", 1.02, whole.ratio("strangers", "0"), 1.0)


def _beside_pluggy(plan: Plan, made: dict[int, Session], strangers: int) -> Iterator[Line]:
    ours = {f"{count}": ask(each) for count, each in made.items()}
    theirs = {f"pluggy {count}": through_pluggy(each) for count, each in made.items()}
    many = {"ours of many": ask(made[5]), "pluggy, many": through_pluggy(made[5], strangers)}
    times = plan.take_turns({**ours, **theirs, **many})
    for count in made:
        faster = times.ratio(f"pluggy {count}", f"{count}")
        yield Measure(f"asking {count} of {count} hooks, timed and guarded, faster than pluggy", "at least", 8, faster)
    faster = times.ratio("pluggy, many", "ours of many")
    yield Measure(f"asking 5 of {strangers + 5} hooks, faster than pluggy", "at least", 8, faster)


def call(made: Session) -> Work:
    """Return the whole governed call."""
    return lambda: made.call("echo", ARGS)


def decide(made: Session) -> Work:
    """Return the decision of a call of `echo`, without I/O: scope, schema, hooks and policy."""
    raw, when = canonical.admit(ARGS), _when(made)

    def work() -> Any:
        try:
            next(judge(made.bindings, made.caller, "echo", ARGS, raw, when, time.perf_counter))
        except StopIteration as done:
            return done.value
        raise AssertionError("every gate here is inline and pure")

    return work


def ask(made: Session) -> Work:
    """Return the asking of the hooks alone, as the judge does it: each within its limit, no exception gets out."""
    guards, subject, clock = made.bindings.abilities["echo"].guards, _call(made), time.perf_counter

    def work() -> Any:
        return [(gate, answer(gate, clock, subject)) for gate in guards]

    return work


def through_pluggy(made: Session, strangers: int = 0) -> Work:
    """Return pluggy's caller with the same hooks, and with as many *strangers*, which it must also ask."""
    manager = pluggy.PluginManager("deedbook")
    manager.add_hookspecs(Lifecycle)
    guards = made.bindings.abilities["echo"].guards
    make = type(guards[0].ask.__self__)
    for _ in range(len(guards) + strangers):
        manager.register(make({}, None))
    caller, subject = manager.hook.pre_tool_use, _call(made)
    return lambda: caller(call=subject)


def _when(made: Session) -> DecisionContext:
    return DecisionContext("2026-01-01T00:00:00.000Z", made.id, {})


def _call(made: Session) -> Any:
    bound = made.bindings.abilities["echo"]
    return make_call(made.bindings, made.caller, bound, ARGS, canonical.admit(ARGS), _when(made))
