"""Policies that judge something else than calls: a flow asks, the answer is recorded and asked for again."""

import pytest

from deedbook import Err, Failed, allow, ask, deny
from deedbook.contract import Decision, GateSpec, Subject, advisory
from deedbook.format.errors import BindingError
from deedbook.policy.subjects import answer_subject
from deedbook_inspect.event_summary import summary

FINDING = {
    "type": "object",
    "required": ["severity"],
    "properties": {"severity": {"enum": ["P0", "P1", "P2", "P3"]}, "note": {"type": "string"}},
    "additionalProperties": False,
}


class Severity:
    """A policy kind of a third party: it judges findings by the rules of its body, in order, and no calls."""

    spec = GateSpec(
        settings={"type": "object", "required": ["rules"]},
        pure=True,
        calls=False,
        subjects={"finding": Subject(schema=FINDING)},
    )

    def __init__(self, settings, host):
        self._rules = settings["rules"]

    def decide(self, case):
        for index, rule in enumerate(self._rules):
            if case.value["severity"] in rule["severity"]:
                signals = {"rule": index, **rule.get("signals", {})}
                return Decision(rule["then"], rule.get("reason", ""), None, signals)
        return allow()


OBJECT = {"type": "object"}
YAML = """schema_version: v1
id: routing
kind: severity
rules:
  - {severity: [P0], then: deny, reason: it must be fixed first}
  - {severity: [P1, P2], then: advisory, reason: look at it, signals: {route: gated}}
"""
PLACE = ".system/policies/routing.yaml"


@pytest.fixture
def review(lab):
    """Give a lab with a policy about findings in a file of its own; the flow returns what it decides."""
    lab.offer("policy", "severity", Severity)
    lab.write("policies/routing.yaml", YAML)
    return lab


def decide(lab, value, *, policy="routing", subject="finding", **options):
    """Let a flow ask about one value; return its `SubjectDecision`, or the error of its call."""
    told = []
    lab.flow("review", lambda args, run: told.append(run.decide(policy, subject, value)) or {}, gives=OBJECT)
    with lab.session(**options) as session:
        got = session.call("review", {})
    return got.error if isinstance(got, Err) else told[0]


def kind(function, **spec):
    """Return a policy kind that decides about findings with *function*."""
    more = {"calls": False, "subjects": {"finding": Subject(schema=FINDING)}, **spec}
    made = {"decide": lambda self, case: function(case), "__init__": lambda self, settings, host: None}
    return type("Kind", (), {"spec": GateSpec(**more), **made})


def use(lab, function, body=None, **spec):
    """Declare the policy ``routing`` of a kind that decides with *function*."""
    lab.offer("policy", "own", kind(function, **spec))
    lab.settings(policies={"routing": {"kind": "own", **(body or {})}})


# --- deciding and recording -------------------------------------------------------------------------------------------


def test_decision_about_a_subject_is_returned_and_recorded_with_rule_and_signals(review):
    found = decide(review, {"severity": "P1"})
    event = review.one("policy.check")
    place = f"{PLACE}:6"
    assert found.span == event.span
    assert found.decision == Decision("advisory", "look at it", None, {"route": "gated", "rule": place})
    (line,) = event.payload["asked"]
    assert line == {
        "digest": line["digest"],
        "policy": "routing",
        "decision": "advisory",
        "reason": "look at it",
        "rule": place,
        "signals": {"route": "gated"},
    }
    assert event.payload == {
        "schema_version": "v2",
        "subject": {"name": "finding", "value": {"severity": "P1"}},
        "asked": event.payload["asked"],
        "decision": "advisory",
        "enforcement": "enforce",
    }
    assert (event.actor, event.principal, event.parent) == ("policy", "local", review.one("flow.call").span)


def test_event_is_shown_with_subject_and_answer(review):
    decide(review, {"severity": "P0"})
    text = summary(review.one("policy.check"))
    assert text == 'finding {"severity":"P0"}: deny [routing deny (it must be fixed first)]'


def test_policy_about_subjects_is_asked_about_no_call(review):
    review.tool("echo", lambda args, ctx: args)
    with review.session() as session:
        assert session.call("echo", {}).value == {}
    assert not review.all("policy.check")


def test_policy_in_the_settings_is_asked_about_no_call(lab):
    use(lab, lambda case: deny("no"))
    lab.tool("echo", lambda args, ctx: args)
    with lab.session() as session:
        assert session.call("echo", {}).value == {}
    assert not lab.all("policy.check")


def test_case_says_who_asks_and_has_only_the_facts_that_the_kind_reads(lab):
    seen = []
    use(lab, lambda case: seen.append(case) or allow(), reads=frozenset({"session.calls"}))
    decide(lab, {"severity": "P3"}, mode="headless")
    (case,) = seen
    assert (case.name, case.value, case.facts) == ("finding", {"severity": "P3"}, {"session.calls": {"review": 1}})
    assert (case.principal.id, case.skill, case.enforcement, case.mode) == ("local", None, "enforce", "headless")
    assert (case.session, case.now) == (review_of(lab), lab.one("policy.check").ts)
    assert lab.payload("policy.check")["facts"] == {"session.calls": {"review": 1}}


def review_of(lab):
    (place,) = lab.state.glob("sessions/*/.events.jsonl")
    return place.parent.name


def test_under_observe_the_answer_is_recorded_and_returned_as_advisory(review):
    review.settings(enforcement="observe")
    assert decide(review, {"severity": "P0"}).decision.outcome == "advisory"
    assert review.payload("policy.check")["decision"] == "deny"
    assert review.payload("policy.check")["enforcement"] == "observe"


# --- what denies ------------------------------------------------------------------------------------------------------


def fails(case):
    raise KeyError("severity")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (fails, "KeyError"),
        (lambda case: ask("a person"), "answered ask; it may answer advisory, allow, deny"),
        (lambda case: "allow", "answered str, not a Decision"),
        (lambda case: Decision("allow", "", None, {"when": {1, 2}}), "signals that cannot be recorded"),
    ],
)
def test_exception_and_wrong_answer_deny(lab, function, reason):
    use(lab, function)
    found = decide(lab, {"severity": "P3"}).decision
    assert found.outcome == "deny"
    assert reason in found.reason
    assert lab.payload("policy.check")["decision"] == "deny"


def test_late_answer_denies(lab):
    use(lab, lambda case: allow())
    with lab.session() as session:
        bound = session.bindings.subjects["routing"]["finding"]
    clock = iter((0.0, 2.0))
    found = answer_subject(bound, lambda: next(clock), None)
    assert (found.outcome, found.reason) == ("deny", "answered after its limit of 1000 ms")


def test_kind_that_changes_the_value_changes_no_record(lab):
    use(lab, lambda case: case.value.update(severity="P3") or allow())
    decide(lab, {"severity": "P0"})
    assert lab.payload("policy.check")["subject"]["value"] == {"severity": "P0"}


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        ({"policy": "rooting"}, "NOT_AVAILABLE", "no policy 'rooting' judges subjects; did you mean"),
        ({"subject": "findings"}, "NOT_AVAILABLE", "judges no 'findings'; did you mean"),
        ({"value": {"severity": "P9"}}, "SCHEMA_VIOLATION", "finding: $.severity"),
        ({"value": {}}, "SCHEMA_VIOLATION", "finding: $"),
        ({"value": [1]}, "SCHEMA_VIOLATION", "expected object"),
        ({"value": {"severity": {1}}}, "SCHEMA_VIOLATION", "finding: "),
    ],
)
def test_unknown_name_and_invalid_value_are_refused_and_not_recorded(review, asked, code, words):
    error = decide(review, **{"value": {"severity": "P0"}, **asked})
    assert error.code == code
    assert words in error.message
    assert not review.all("policy.check")


def test_flow_that_is_over_decides_nothing(review):
    kept = []
    review.flow("review", lambda args, run: kept.append(run) or {}, gives=OBJECT)
    with review.session() as session:
        session.call("review", {})
        with pytest.raises(Failed) as refused:
            kept[0].decide("routing", "finding", {"severity": "P0"})
    assert refused.value.code == "TOOL_NOT_ALLOWED"


# --- declaring --------------------------------------------------------------------------------------------------------


def faults(lab):
    with pytest.raises(BindingError) as refused:
        lab.kernel()
    return [(each.place, each.message) for each in refused.value.errors]


def test_match_of_a_policy_that_judges_no_calls_is_refused_at_its_place(review):
    review.write("policies/routing.yaml", f"{YAML}match: {{tags: [x]}}\n")
    ((place, message),) = faults(review)
    assert place.startswith(f"{PLACE}:7")
    assert "judges no calls" in message


def test_ability_that_names_a_policy_about_subjects_is_refused(review):
    review.tool("echo", lambda args, ctx: args, policies=["routing"])
    ((place, message),) = faults(review)
    assert place.startswith(".system/deedbook.yaml")
    assert "policy 'routing' judges no calls, only finding" in message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"subjects": {}}, "it judges nothing"),
        ({"calls": True}, "it has no method `__call__`"),
        ({"subjects": {"x y": Subject(schema={})}}, "has the name 'x y'"),
        ({"subjects": {"x": Subject(schema=None)}}, "not a JSON Schema"),
        ({"subjects": {"x": Subject(schema={}, answers=frozenset({"deny"}))}}, "with allow and deny"),
        ({"subjects": {"x": Subject(schema={}, answers=frozenset({"allow", "deny", "transform"}))}}, "with allow"),
        ({"subjects": {"x": {}}}, "does not map names of subjects to Subject"),
    ],
)
def test_kind_with_a_wrong_declaration_of_subjects_is_refused(lab, spec, words):
    use(lab, lambda case: allow(), **spec)
    ((_, message),) = faults(lab)
    assert words in message


def test_gate_that_is_false_as_a_truth_value_is_asked(review):
    review.offer("policy", "severity", type("Empty", (Severity,), {"__len__": lambda _: 0}))
    assert decide(review, {"severity": "P1"}).decision.outcome == "advisory"


def test_kind_without_decide_is_refused(lab):
    lab.offer("policy", "own", type("Kind", (), {k: v for k, v in vars(kind(allow)).items() if k != "decide"}))
    lab.settings(policies={"routing": {"kind": "own"}})
    ((_, message),) = faults(lab)
    assert "it has no method `decide`" in message


def test_schema_of_a_subject_is_linted(lab):
    use(lab, lambda case: allow(), subjects={"finding": Subject(schema={"requried": ["x"]})})
    ((place, message),) = faults(lab)
    assert "subjects['finding'].schema" in place
    assert "requried" in message


# --- resuming ---------------------------------------------------------------------------------------------------------


def test_resumed_run_gets_the_recorded_answer(review):
    told, asked = [], []

    class Counting(Severity):
        def decide(self, case):
            asked.append(case)
            return super().decide(case)

    def work(args, run):
        told.append(run.decide("routing", "finding", {"severity": "P1"}))
        with pytest.raises(Failed):
            run.decide("routing", "finding", {"severity": "P9"})
        run.call("pay", {})
        told.append(run.decide("routing", "finding", {"severity": "P0"}))
        run.answer("done")

    review.offer("policy", "severity", Counting)
    approved(review, work)
    assert len(told) == 3
    assert told[0] == told[1]
    assert told[2].decision.outcome == "deny"
    assert [case.value["severity"] for case in asked] == ["P1", "P0"]
    recorded = [each.payload for each in review.all("policy.check", review_of(review)) if "subject" in each.payload]
    assert [each["subject"]["value"]["severity"] for each in recorded] == ["P1", "P0"]


def approved(lab, work):
    """Run a flow up to a call that waits for a person, approve that, and resume the run."""
    from persons import approving
    from test_resume import answered, resume, suspended

    lab.tool("pay", lambda args, ctx: {}, effects="write")
    lab.policy("people", lambda call: ask("a payment") if call.ability == "pay" else allow())
    lab.skill("clerk", allows="pay", triggers="hello")
    approving(lab)
    lab.flow("work", work)
    session = suspended(lab)
    answered(lab, session)
    return resume(lab, session)


def test_resumed_run_that_asks_about_another_value_diverges(review):
    values = iter(["P1", "P2"])

    def work(args, run):
        run.decide("routing", "finding", {"severity": next(values)})
        run.call("pay", {})
        run.answer("done")

    got = approved(review, work)
    assert got.error.code == "RESUME_DIVERGED"
    assert "finding of policy routing was asked for otherwise" in got.error.message


# --- advisory answers about calls -------------------------------------------------------------------------------------


def test_advisory_answer_about_a_call_is_recorded_and_gates_nothing(lab):
    lab.tool("echo", lambda args, ctx: args)
    lab.policy("advice", lambda call: advisory("better not"))
    lab.policy("base", lambda call: allow())
    with lab.session() as session:
        assert session.call("echo", {}).value == {}
    checked = lab.payload("policy.check")
    assert (checked["schema_version"], checked["ability"], checked["decision"]) == ("v2", "echo", "advisory")
    assert [line["decision"] for line in checked["asked"]] == ["advisory", "allow"]


def test_advisory_answer_does_not_lift_the_ask_of_a_tag(lab):
    lab.tool("drop", lambda args, ctx: args, tags=["destructive"])
    lab.policy("advice", lambda call: advisory("fine"), match={"tags": ["destructive"]})
    with lab.session() as session:
        assert session.call("drop", {}).error.code == "NEEDS_HUMAN"


def test_call_without_an_advisory_answer_is_recorded_in_the_first_version(lab):
    lab.tool("echo", lambda args, ctx: args)
    lab.policy("base", lambda call: allow())
    with lab.session() as session:
        session.call("echo", {})
    assert "schema_version" not in lab.payload("policy.check")
