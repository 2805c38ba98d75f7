"""Policies of the kind `rules`: beside a plain Python function of the same test, and what rules about others cost."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

from benchmarks.measures import Line, Measure, Value, missing
from benchmarks.rounds import Plan, Work
from deedbook.contract import Call, Decision, Principal
from deedbook_policy_standard.rules import Rules

_SIZES: Final = ((1, 1), (10, 1), (100, 1), (1000, 1), (10, 10), (100, 10), (1000, 10))
_DENY: Final = Decision("deny", "no rule matches; the default is deny")


def run(plan: Plan) -> Iterator[Line]:
    """Measure decisions about one call that the last of the rules that can match allows."""
    works: dict[str, Work] = {}
    for total, matching in _SIZES:
        works[f"{total}/{matching}"] = decide(rules(total, matching), matching)
    for matching in (1, 10):
        works[f"plain {matching}"] = decide(plain(matching), matching)
    times = plan.take_turns(works)
    for total, matching in _SIZES:
        what = f"rules, {total} of which {matching} can match: to a plain function"
        yield Measure(what, "at most", 5, times.ratio(f"{total}/{matching}", f"plain {matching}"))
    for matching in (1, 10):
        grown = times.ratio(f"1000/{matching}", f"10/{matching}")
        yield Measure(f"1,000 rules to 10, {matching} can match", "at most", 1.1, grown, 1.0)
    yield from _conditions(plan)


def _conditions(plan: Plan) -> Iterator[Line]:
    if find_spec("cel_expr_python") is None:
        yield missing("conditions in CEL", "cel-expr-python")
        return
    made = {f"when {count}": decide(conditions(count), count) for count in (1, 10)}
    times = plan.take_turns({**made, **{f"plain {count}": decide(plain(count), count) for count in (1, 10)}})
    for count in (1, 10):
        yield Value(f"{count} rules with `when`: CPU", times.micros(f"when {count}"), "µs")
        yield Value(f"{count} rules with `when`: to a plain function", times.ratio(f"when {count}", f"plain {count}"))
    yield Value("each further `when`", times.added("when 10", "when 1", 9), "µs")


def rules(total: int, matching: int) -> Rules:
    """Return *total* rules of which *matching* are about the call, all of them asked."""
    others = [_rule(f"other{number}", number) for number in range(total - matching)]
    return _bound([*others, *(_rule("echo", number) for number in range(matching))])


def conditions(count: int) -> Rules:
    """Return *count* rules with conditions, all about the call, all of them asked."""
    rule: dict[str, Any] = {"match": {"abilities": "echo"}, "then": "allow"}
    return _bound([{**rule, "when": f"args.mode == 'm{number}'"} for number in range(count)])


def plain(matching: int) -> Any:
    """Return a function that decides the same, as one would write it by hand."""
    decisions = {f"m{number}": Decision("allow") for number in range(matching)}

    def decide(call: Call) -> Decision:
        if call.ability == "echo":
            mode = call.args.get("mode")
            for accepted, decision in decisions.items():
                if mode == accepted:
                    return decision
        return _DENY

    return decide


def decide(policy: Any, matching: int) -> Work:
    """Return one decision about a call that the last rule is about."""
    who = Principal("ada", "cli")
    args = {"mode": f"m{matching - 1}", "text": "hello"}
    call = Call("echo", "tool", args, "none", frozenset(), who, None, None, "enforce", "s", "", b"{}", {})
    assert policy(call).outcome == "allow"
    return lambda: policy(call)


def _rule(ability: str, number: int) -> dict[str, Any]:
    return {"match": {"abilities": ability, "args": {"/mode": f"m{number}"}}, "then": "allow"}


def _bound(body: list[dict[str, Any]]) -> Rules:
    host: Any = None
    return Rules({"rules": body}, host)
