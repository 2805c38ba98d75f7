"""Verification of workflow.*: a cycle whose record lacks an event, or has them out of order, fails the audit."""

import pytest
from ledgers import Book, start

from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verification.excisions import EXCISED
from deedbook_audit.verify import verify_file
from deedbook_audit.workflow_rules import CHECK, WorkflowRules

RUN = b"0" * 15 + b"1"
SPAN = "c" * 16
STARTED = ("workflow.started", {"cycle_id": "check", "session_id": "s", "entry_phase": "first"})
ASKED = (CHECK, {"subject": {}, "asked": [{"policy": "sure", "decision": "deny"}], "enforcement": "enforce"})
GATED = ("workflow.policy_gated", {"cycle_id": "check", "policy_id": "sure", "decision": "deny", "check": SPAN})
ADVANCED = ("workflow.phase_advanced", {"cycle_id": "check", "from_phase": "first", "to_phase": "second"})
COMPLETED = ("workflow.completed", {"cycle_id": "check", "verdict": "done"})
ABORTED = ("workflow.aborted", {"cycle_id": "check", "reason": "no"})
RESULT = ("flow.result", {})
WHOLE = [STARTED, ASKED, GATED, ADVANCED, COMPLETED, RESULT]


def changed(event, **values):
    return event[0], {**event[1], **values}


def violations(events):
    """Return what the rules say about *events*, all in the same run."""
    rules, found = WorkflowRules(), []
    for kind, payload in events:
        if kind == CHECK:
            rules.add_check(SPAN.encode(), RUN, payload)
        else:
            found += rules.check(kind, RUN, payload)
    return found


def test_complete_cycle_has_no_violations():
    assert violations(WHOLE) == []
    assert violations([STARTED, ABORTED, ("flow.error", {"outcome": "failed"})]) == []
    assert violations([ABORTED, ("flow.error", {"outcome": "failed"})]) == []  # refused before it began


CASES = {
    "no start": (WHOLE[1:], "without a workflow.started before it"),
    "start after the end": ([ABORTED, STARTED, RESULT], "workflow.started after workflow.aborted"),
    "two starts": ([STARTED, *WHOLE], "a second workflow.started"),
    "no end": ([*WHOLE[:4], RESULT], "ended without workflow.aborted or workflow.completed"),
    "failed without an end": ([STARTED, ("flow.error", {"outcome": "failed"})], "ended without"),
    "two ends": ([*WHOLE[:5], ABORTED, RESULT], "workflow.aborted after workflow.completed"),
    "advance after the end": ([STARTED, COMPLETED, ADVANCED, RESULT], "workflow.phase_advanced after"),
    "advance left out": (
        [STARTED, changed(ADVANCED, from_phase="second", to_phase="third"), COMPLETED, RESULT],
        "from 'second', and the cycle was in 'first'",
    ),
    "another cycle": ([STARTED, changed(COMPLETED, cycle_id="other"), RESULT], "in a run of 'check'"),
    "decision not named": ([STARTED, ASKED, COMPLETED, RESULT], "1 decisions of policies"),
    "named twice": ([STARTED, ASKED, GATED, GATED, COMPLETED, RESULT], "no policy.check of this run, or one"),
    "no decision": ([STARTED, GATED, COMPLETED, RESULT], "no policy.check of this run"),
    "another decision": (
        [STARTED, ASKED, changed(GATED, decision="allow"), COMPLETED, RESULT],
        "says 'allow', and the policy answered 'deny'",
    ),
    "another policy": ([STARTED, ASKED, changed(GATED, policy_id="other"), COMPLETED, RESULT], "a decision of 'sure'"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_broken_record_of_a_cycle_is_a_violation(name):
    events, why = CASES[name]
    [found, *_] = violations(events)
    assert why in found


def test_interrupted_run_need_not_have_ended_its_cycle():
    assert violations([STARTED, ("flow.error", {"outcome": "unknown"})]) == []


def test_advice_under_observe_is_what_was_gated():
    asked = changed(ASKED, enforcement="observe")
    assert violations([STARTED, asked, changed(GATED, decision="advisory"), COMPLETED, RESULT]) == []


@pytest.mark.parametrize("at", range(len(WHOLE)))
def test_excised_payload_is_no_violation(at):
    events = [(kind, EXCISED if index == at else payload) for index, (kind, payload) in enumerate(WHOLE)]
    assert violations(events) == []


def test_ledger_without_the_end_of_its_cycle_is_not_sound(tmp_path):
    book = Book()
    root = start(book, "call")
    run = book.add("flow.call", {"flow": "workflow/check", "args": {}}, parent=root, principal="local")
    book.add(*STARTED, parent=run)
    book.add("flow.result", {"flow": "workflow/check", "result": {}}, parent=run)
    book.add("session.end", {"ok": True, "reason": "done"}, parent=root)
    report = verify_file(book.write(tmp_path), schemas=Schemas.load(data_folder("schemas")))
    assert [each.check for each in report.structure.failures] == ["audit"]
