"""Recorded decisions about subjects are derived again, also under another charter, and changes are found."""

import attrs
import ledgers
import pytest
from test_subjects import OBJECT, Severity, kind

from deedbook import Decision, allow
from deedbook_audit.charters import CHARTER_MISSING
from deedbook_audit.recheck import recheck

BODY = {
    "kind": "severity",
    "rules": [
        {"severity": ["P0"], "then": "deny", "reason": "fix it first"},
        {"severity": ["P1"], "then": "advisory", "reason": "look at it", "signals": {"route": "gated"}},
    ],
}


def ask_about(lab, *severities, **options):
    """Let a flow, and a branch of it, ask about findings in one session; return the session."""

    def work(args, run):
        for severity in severities:
            run.decide("routing", "finding", {"severity": severity})
        return {}

    lab.flow("review", work, gives=OBJECT)
    session = lab.session(**options)
    session.call("review", {})
    session.end(ok=True, reason="done")
    return session


@pytest.fixture
def reviewed(lab):
    lab.offer("policy", "severity", Severity)
    lab.settings(policies={"routing": BODY})
    return lab, ask_about(lab, "P0", "P1", "P2")


def again(lab, session, *changes):
    """Derive everything again from a copy in which each of *changes* took place and all hashes are right."""
    place = lab.path / "copy.jsonl"
    lines = lab.ledger(session).read_bytes().splitlines(keepends=True)
    for before, after in changes:
        assert any(before in line for line in lines)
        lines = [line.replace(before, after) for line in lines]
    place.write_bytes(b"".join(ledgers.forge(lines)))
    return recheck(place, lambda _: session.bindings)


def test_decisions_of_an_honest_session_are_the_same(reviewed):
    told = again(*reviewed)
    assert (told.calls, told.same, told.subjects, told.same_subjects, told.failures) == (1, 1, 3, 3, ())
    assert told.as_json()["subjects"] == {"all": 3, "same": 3}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"decision":"deny","digest"', b'"decision":"allow","digest"'),
        (b'"value":{"severity":"P1"}', b'"value":{"severity":"P0"}'),
        (b'"signals":{"route":"gated"}', b'"signals":{"route":"free"}'),
        (b'"rule":".system/deedbook.yaml', b'"rule":".system/another.yaml'),
        (b'"value":{"severity":"P0"}', b'"value":{"severity":"P9"}'),
        (b'"policy":"routing"', b'"policy":"rooting"'),
    ],
)
def test_decision_that_was_changed_and_hashed_anew_is_found(reviewed, before, after):
    told = again(*reviewed, (before, after))
    assert [failure.check for failure in told.failures][:1] == ["answer"]
    assert told.same_subjects < told.subjects


def test_changed_facts_are_found(lab):
    lab.offer("policy", "own", kind(lambda case: allow(), pure=True, reads=frozenset({"session.calls"})))
    lab.settings(policies={"routing": {"kind": "own"}})
    session = ask_about(lab, "P0")
    assert again(lab, session).failures == ()
    told = again(lab, session, (b'"facts":{"session.calls":{"review":1}}', b'"facts":{"session.calls":{"review":0}}'))
    assert [failure.check for failure in told.failures] == ["facts"]


def test_answer_of_a_kind_that_is_not_pure_is_taken_from_the_record_and_named(lab):
    lab.offer("policy", "own", kind(lambda case: Decision("advisory", "x", None, {"a": 1})))
    lab.settings(policies={"routing": {"kind": "own"}})
    told = again(lab, ask_about(lab, "P0"))
    assert (told.same_subjects, told.failures) == (1, ())
    ((who, count),) = told.recorded.items()
    assert who.startswith("policy routing, which is not pure (offered ")
    assert count == 1


def test_decisions_are_counted_without_a_charter(reviewed):
    lab, session = reviewed
    told = recheck(lab.ledger(session), lambda _: CHARTER_MISSING)
    assert (told.unchecked, told.failures) == (CHARTER_MISSING, ())


def test_session_under_observe_is_the_same_again(lab):
    lab.offer("policy", "severity", Severity)
    lab.settings(policies={"routing": BODY}, enforcement="observe")
    told = again(lab, ask_about(lab, "P0"))
    assert (told.subjects, told.same_subjects) == (1, 1)


def test_decision_beside_a_call_is_not_taken_for_a_policy_about_that_call(reviewed):
    lab, _ = reviewed
    lab.tool("echo", lambda args, ctx: args)
    lab.policy("base", lambda call: allow(), pure=True)

    def work(args, run):
        run.decide("routing", "finding", {"severity": "P0"})
        return run.call("echo", {})

    lab.skill("clerk", allows="echo", triggers="hello")
    lab.flow("work", work)
    with lab.session("run") as session:
        assert session.run("hello").value.text == "{}"
    told = recheck(lab.ledger(session), lambda _: session.bindings)
    assert (told.same, told.subjects, told.same_subjects, told.failures) == (2, 1, 1, ())


def test_verify_prints_how_many_decisions_about_subjects_are_the_same(reviewed):
    lab, session = reviewed
    told = recheck(lab.ledger(session), lambda _: session.bindings)
    report = attrs.evolve(lab.verify(session), decisions=told)
    assert "decisions: 1 of 1 call judged again and the same, 3 of 3 subjects" in report.lines()
