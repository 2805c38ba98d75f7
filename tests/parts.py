"""Gates, abilities, callers and tickets bound by hand: what the charter would make, without a workspace."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from deedbook.call.handlers import Ticket
from deedbook.contract import ALLOW, PATHS, Call, Decision, Principal
from deedbook.format import canonical
from deedbook.format.schema import foreign
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import EVERYTHING, BoundAbility, Caller, event_names
from deedbook.policy.charter import Charter
from deedbook.policy.gates import BoundGate
from deedbook.policy.judge import DecisionContext, Verdict, judge

ADA = Principal("ada", "cli", frozenset({"approver"}))
WHEN = DecisionContext("2026-01-02T03:04:05.006Z", "s1", {"session.calls": {"echo": 2}, "context.state": "PLANNED"})
ANYTHING = foreign({"type": "object"}, place="test")


def still() -> float:
    """Stand still, as a clock."""
    return 0.0


def always(decision: Any) -> Callable[..., Any]:
    """Return what answers *decision*, whatever it is asked."""
    return lambda *_: decision


def gate(name: str = "g", ask: Any = ALLOW, **more: Any) -> BoundGate:
    """Return a pure inline gate that answers *ask*: a decision, or a function."""
    fixed: dict[str, Any] = {"kind": "hook", "digest": "0" * 64, "may": {"allow", "ask", "deny"}, "limit": 1.0}
    given = fixed | {"pure": True} | more
    given["may"] = frozenset(given["may"])
    asked = ask if callable(ask) and not isinstance(ask, Decision) else always(ask)
    return BoundGate(id=name, ask=asked, **given)


def policy(name: str = "p", ask: Any = ALLOW, **more: Any) -> BoundGate:
    """Return a gate of kind policy."""
    return gate(name, ask, kind="policy", **more)


def rewriter(name: str = "r", ask: Any = ALLOW, **more: Any) -> BoundGate:
    """Return a gate that may answer transform."""
    return gate(name, ask, may={"allow", "ask", "deny", "transform"}, rewrites=True, **more)


def bound(handler: Any = None, **more: Any) -> BoundAbility:
    """Return an ability ``echo`` that takes and gives any object."""
    name, kind = more.pop("id", "echo"), more.pop("kind", "tool")
    gates = (*more.get("rewriters", ()), *more.get("guards", ()), *more.get("policies", ()))
    given: dict[str, Any] = {
        "summary": "", "effects": "read", "tags": frozenset(), "takes": ANYTHING, "gives": ANYTHING,
        "takes_document": {}, "scopes": frozenset(), "paths": PATHS, "interruptible": False, "timeout": float("inf"),
        "durable": False, "uses": EVERYTHING,
        "big_integers": False, "rewriters": (), "guards": (), "policies": (), "observers": (),
        "reads": frozenset().union(*(each.reads for each in gates)),
    }  # fmt: skip
    return BoundAbility(
        id=name, kind=kind, handler=handler or _never, event_names=event_names(kind, name), **(given | more)
    )


def bindings(*abilities: BoundAbility, enforcement: str = "enforce") -> Bindings:
    """Return bindings of *abilities*."""
    named = {ability.id: ability for ability in abilities}
    charter = Charter({"models": {}, "roles": {}}, b"", "0" * 64)
    return Bindings(charter=charter, abilities=named, enforcement=enforcement, hooks={}, skills={})


def caller(**more: Any) -> Caller:
    """Return a caller who may use everything."""
    return Caller(**({"principal": ADA, "actor": "user", "scope": EVERYTHING} | more))


def a_call(**more: Any) -> Call:
    """Return a call of ``echo``, as a gate sees it."""
    fields: dict[str, Any] = {
        "ability": "echo", "kind": "tool", "args": {}, "effects": "read", "tags": frozenset(), "principal": ADA,
        "role": None, "skill": None, "enforcement": "enforce", "session": "s1", "now": WHEN.now, "raw": b"{}",
        "facts": {},
    }  # fmt: skip
    return Call(**(fields | more))


def decide(
    ability: BoundAbility, args: Any = None, *, answers: Mapping[str, Any] | None = None, **more: Any
) -> Verdict:
    """Drive `judge` to its verdict; *answers* are those of the gates that it does not ask itself, by id."""
    frozen = more.pop("bindings", None) or bindings(ability, enforcement=more.pop("enforcement", "enforce"))
    raw = canonical.encode({} if args is None else args)
    who, when, clock = more.pop("caller", None) or caller(), more.pop("when", WHEN), more.pop("clock", still)
    judging = judge(frozen, who, more.pop("asked", ability.id), canonical.decode(raw), raw, when, clock)
    assert not more, more
    try:
        asked, _ = next(judging)
        while True:
            asked, _ = judging.send((answers or {})[asked.id])
    except StopIteration as done:
        return cast("Verdict", done.value)


def ticket(handler: Any, args: Any = None, *, deadline: float = float("inf"), **more: Any) -> Ticket:
    """Return an opened call of *handler*."""
    given = {} if args is None else args
    return Ticket(bound(handler, **more), caller(), given, canonical.encode(given), "0" * 15 + "1", "s1", deadline)


def _never(*_: Any) -> Any:
    raise AssertionError("the handler of a judged call was invoked")
