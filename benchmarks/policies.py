"""Policies and signals: beside plain Python functions of the same test, and what rules about others cost."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any, Final

from benchmarks.costs import _RULE, _call, _rules
from benchmarks.measures import Line, Measure, Value, missing
from benchmarks.rounds import Plan, Work
from benchmarks.workspaces import ARGS
from deedbook.contract import Call, Decision, Principal, SubjectCase
from deedbook_policy_standard.findings import SeverityRouting
from deedbook_policy_standard.rules import Rules

_SIZES: Final = ((1, 1), (10, 1), (100, 1), (1000, 1), (10, 10), (100, 10), (1000, 10))
_FINDING: Final = {
    "id": "f1", "reviewer": "security", "severity": "P1", "autofix_class": "manual", "confidence": 75, "title": "t",
    "file": "src/a.py", "line": 3,
}  # fmt: skip
_SIGNALS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "aggregate.p0_unresolved == 0": lambda seen: bool(seen["aggregate"]["p0_unresolved"] == 0),
    "aggregate.verdict == 'pass'": lambda seen: bool(seen["aggregate"]["verdict"] == "pass"),
    "aggregate.coverage.reported == aggregate.coverage.asked": lambda seen: bool(
        seen["aggregate"]["coverage"]["reported"] == seen["aggregate"]["coverage"]["asked"]
    ),
    "size(aggregate.findings) < 20": lambda seen: len(seen["aggregate"]["findings"]) < 20,
    "aggregate.findings.all(f, f.severity != 'P0')": lambda seen: all(
        each["severity"] != "P0" for each in seen["aggregate"]["findings"]
    ),
    "aggregate.findings.exists(f, f.confidence == 75)": lambda seen: any(
        each["confidence"] == 75 for each in seen["aggregate"]["findings"]
    ),
    "context.state == 'REVIEWING'": lambda seen: bool(seen["context"]["state"] == "REVIEWING"),
    "context.generation < 3 && context.phase_runs < 5": lambda seen: bool(
        seen["context"]["generation"] < 3 and seen["context"]["phase_runs"] < 5
    ),
    "context.phase in ['review', 'fix']": lambda seen: seen["context"]["phase"] in ("review", "fix"),
    "context.mode != 'headless'": lambda seen: bool(seen["context"]["mode"] != "headless"),
}
"""Signals as cycles have them, and the same as functions."""
_SEEN: Final = {
    "aggregate": {
        "p0_unresolved": 0, "verdict": "pass", "coverage": {"asked": 3, "reported": 3}, "findings": [_FINDING] * 5,
    },
    "context": {"state": "REVIEWING", "generation": 1, "phase": "review", "phase_runs": 1, "mode": "interactive"},
}  # fmt: skip
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
    yield from _subjects(plan)
    if find_spec("cel_expr_python") is None:
        yield missing("conditions in CEL", "cel-expr-python")
        return
    yield from _conditions(plan)
    yield from _together(plan)
    yield from _governed(plan)


def _subjects(plan: Plan) -> Iterator[Line]:
    """Measure decisions about a finding by rules with a match, of which one fits."""
    works = {f"{total}": route(routing(total)) for total in (10, 1000)}
    times = plan.take_turns({**works, "plain": route(plain_routing())})
    for total in (10, 1000):
        what = f"severity-routing, {total} rules of which 1 can match: to a plain function"
        yield Measure(what, "at most", 5, times.ratio(f"{total}", "plain"))
    yield Measure("1,000 rules about findings to 10, 1 can match", "at most", 1.5, times.ratio("1000", "10"), 1.0)


def _together(plan: Plan) -> Iterator[Line]:
    """Measure ten signals that share one view, with the making of it."""
    from deedbook_policy_standard.signals import SignalLanguage

    language = SignalLanguage({name: {"type": "object"} for name in _SEEN})
    signals = [language.compile(text) for text in _SIGNALS]
    plain_signals = list(_SIGNALS.values())
    assert all(signal(_SEEN) for signal in signals)
    assert all(signal(_SEEN) for signal in plain_signals)

    def in_cel() -> None:
        view = language.view(_SEEN)
        for signal in signals:
            signal.holds(view)

    def in_python() -> None:
        for signal in plain_signals:
            signal(_SEEN)

    times = plan.take_turns({"cel": in_cel, "plain": in_python})
    yield Measure("10 signals on one view: to plain functions", "at most", 40, times.ratio("cel", "plain"))
    yield Value("10 signals on one view: CPU", times.micros("cel"), "µs")


def _governed(plan: Plan) -> Iterator[Line]:
    """Measure a governed call whose policy has one rule, with `when` and with the same test as a match."""
    text = ARGS["text"]
    choices = {
        "when": {**_RULE, "when": f"args.text == '{text}'"},
        "engine": {**_RULE, "when": "args.text.indexOf('secret') < 0"},
        "match": {**_RULE, "match": {**_RULE["match"], "args": {"/text": text}}},
    }
    with ExitStack() as held:
        works = {name: held.enter_context(_call(_rules([rule]))) for name, rule in choices.items()}
        times = plan.take_turns(works, rounds=41, batch_ns=4_000_000)
    what = "a governed call with one rule with `when`: to one without"
    yield Measure(what, "at most", 1.1, times.ratio("when", "match"))
    yield Value("the same, with a condition that needs the engine", times.ratio("engine", "match"))


def _conditions(plan: Plan) -> Iterator[Line]:
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


def routing(total: int) -> SeverityRouting:
    """Return *total* rules about findings; one fits, and asks about two members."""
    others = [{"match": {"file": f"src/{number}.py"}, "then": "deny"} for number in range(total - 1)]
    fits = {"match": {"severity": ["P0", "P1"], "autofix_class": "manual"}, "then": "advisory", "route": "gated"}
    host: Any = None
    return SeverityRouting({"rules": [*others, fits]}, host)


def plain_routing() -> Any:
    """Return the kind of the one rule as one would write it by hand."""
    decision = Decision("advisory", "", None, {"route": "gated"})

    class Plain:
        @staticmethod
        def decide(case: SubjectCase) -> Decision:
            finding = case.value
            if finding.get("severity") in ("P0", "P1") and finding.get("autofix_class") == "manual":
                return decision
            return _DENY

    return Plain()


def route(policy: Any) -> Work:
    """Return one decision about a finding."""
    who = Principal("ada", "cli")
    case = SubjectCase(
        name="finding", value=_FINDING, principal=who, role=None, skill=None, enforcement="enforce", session="s",
        now="", facts={},
    )  # fmt: skip
    assert policy.decide(case).outcome == "advisory"
    return lambda: policy.decide(case)


def _rule(ability: str, number: int) -> dict[str, Any]:
    return {"match": {"abilities": ability, "args": {"/mode": f"m{number}"}}, "then": "allow"}


def _bound(body: list[dict[str, Any]]) -> Rules:
    host: Any = None
    return Rules({"rules": body}, host)
