"""`explain`, `whatif`, figures, spans and pages show decisions about subjects."""

import json

import pytest
from test_subjects import Severity, kind
from test_subjects_audit import BODY, ask_about

from deedbook import allow
from deedbook.cli.common import GlobalOptions
from deedbook.format.folds import fold
from deedbook.format.reader import read
from deedbook.format.schema import Schemas, data_folder
from deedbook.policy.callers import LOCAL, session_caller
from deedbook_audit.calls import read_decisions
from deedbook_audit.recorded import RecordedSubject
from deedbook_audit.subjects import rejudge_decisions
from deedbook_inspect.commands.explain_subject import explain_recorded, explain_value
from deedbook_inspect.commands.whatif import print_result
from deedbook_inspect.event_tree import transcript
from deedbook_inspect.observing.figures import FiguresFold
from deedbook_inspect.rejudging.whatif import WhatIf
from deedbook_inspect.replaying.account import AccountFold
from deedbook_inspect.replaying.uses import build_round

SCHEMAS = Schemas.load(data_folder("schemas"))
NOW = "2026-01-01T00:00:00.000Z"
JSON = GlobalOptions(json=True)
TEXT = GlobalOptions()


@pytest.fixture
def reviewed(lab):
    lab.offer("policy", "severity", Severity)
    lab.settings(policies={"routing": BODY})
    return lab, ask_about(lab, "P0", "P1", "P2")


def fitting(capsys, schema):
    told = json.loads(capsys.readouterr().out)
    assert SCHEMAS.validator(schema).violations(told) == ()
    return told


# --- explain ----------------------------------------------------------------------------------------------------------


def explain(lab, severity, options=JSON):
    with lab.kernel() as kernel:
        caller = session_caller(LOCAL, kernel.bindings)
        names, value = ("routing", "finding"), {"severity": severity}
        return explain_value(options, kernel.bindings, caller, names, value, (NOW, {}))


def test_explain_says_what_a_policy_would_decide_about_a_subject(reviewed, capsys):
    lab, _ = reviewed
    assert explain(lab, "P0") == 3
    told = fitting(capsys, "output_explain_subject_v1")
    assert (told["answer"]["decision"], told["answer"]["reason"], told["recorded"]) == ("deny", "fix it first", None)
    assert explain(lab, "P1", TEXT) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "outcome    finding by routing: advisory (look at it)"


def test_explain_of_a_kind_that_is_not_pure_is_undetermined(lab, capsys):
    lab.offer("policy", "own", kind(lambda case: allow()))
    lab.settings(policies={"routing": {"kind": "own"}})
    assert explain(lab, "P0") == 1
    assert "is not pure" in fitting(capsys, "output_explain_subject_v1")["why"]


def recorded(lab, session):
    from deedbook.format.files import Folder

    place = lab.ledger(session)
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        found = list(read_decisions(file, str(place), folder))
    return [each for each in found if isinstance(each, RecordedSubject)]


def test_explain_compares_a_recorded_decision_with_the_current_charter(reviewed, capsys):
    lab, session = reviewed
    worst = recorded(lab, session)[0]
    assert explain_recorded(JSON, session.bindings, worst) == 3
    told = fitting(capsys, "output_explain_subject_v1")
    assert (told["recorded"]["seq"], told["recorded"]["today"]) == (worst.seq, "same")
    assert told["recorded"]["answer"] == told["answer"]
    changed(lab)
    with lab.kernel() as kernel:
        assert explain_recorded(TEXT, kernel.bindings, worst) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "today      looser" in lines
    assert lines[-1] == "outcome    finding by routing: advisory (fix it first)"


def changed(lab):
    """Loosen the first rule, and let the second one deny."""
    first, second = BODY["rules"]
    rules = [{**first, "then": "advisory"}, {**second, "then": "deny"}]
    lab.settings(policies={"routing": {"kind": "severity", "rules": rules}})


# --- whatif -----------------------------------------------------------------------------------------------------------


def whatif(lab, session, limit=0):
    found = WhatIf(limit)
    with lab.kernel() as kernel:
        found.add(rejudge_decisions(lab.ledger(session), kernel.bindings))
    return found


def document(found):
    told = {"schema_version": "v1", "charter": "0" * 64, "sessions": 1, **found.as_json()}
    assert SCHEMAS.validator("output_whatif_v1").violations(told) == ()
    return told.get("subjects")


def test_whatif_under_the_same_rules_changes_nothing(reviewed):
    found = whatif(*reviewed)
    assert (found.totals["same"], found.changed_count, found.subjects.changed_count) == (1, 0, 0)
    assert document(found)["totals"]["same"] == 3


def test_whatif_names_each_decision_that_is_looser_or_tighter(reviewed, capsys):
    lab, session = reviewed
    changed(lab)
    found = whatif(lab, session)
    told = document(found)
    assert [(each["change"], each["was"]["decision"], each["now"]["decision"]) for each in told["changes"]] == [
        ("looser", "deny", "advisory"),
        ("tighter", "advisory", "deny"),
    ]
    print_result(found, 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith("looser  finding by routing: deny → advisory (")
    assert lines[-1] == "3 decisions about subjects judged again: 1 same, 1 looser, 1 tighter"


def test_whatif_lists_at_most_as_many_as_asked(reviewed, capsys):
    lab, session = reviewed
    changed(lab)
    found = whatif(lab, session, 1)
    assert len(found.subjects.changes) == 1
    print_result(found, 1)
    assert "and 1 more; --limit 0 lists all" in capsys.readouterr().out


def test_whatif_counts_decisions_of_a_policy_that_is_gone(reviewed):
    lab, _ = reviewed
    lab.settings(policies={"routing": {"kind": "rules", "rules": [], "default": "allow"}})  # it judges calls now
    found = whatif(*reviewed)
    assert found.subjects.totals["missing"] == 3
    assert "no policy routing judges finding" in document(found)["changes"][0]["why"]


def test_whatif_without_subjects_prints_nothing_about_them(lab):
    lab.tool("echo", lambda args, ctx: args)
    with lab.session() as session:
        session.call("echo", {})
    assert document(whatif(lab, session)) is None


# --- figures and pages ------------------------------------------------------------------------------------------------


def test_replay_shows_a_decision_about_a_subject_by_itself_and_not_with_the_next_call(reviewed):
    lab, session = reviewed
    account = fold(AccountFold(), read(lab.ledger(session)))
    rows = [build_round(event) for event in account.rounds]
    assert [(row.about, row.word) for row in rows] == [
        ("finding", "deny"),
        ("finding", "advisory"),
        ("finding", "allow"),
    ]
    assert rows[0].statements[0].text == "policy routing answered deny: fix it first"
    assert [use.gate_events for use in account.uses] == [[]]


def test_figures_count_the_answers_of_a_policy_about_subjects(reviewed):
    lab, session = reviewed
    figures = FiguresFold()
    state = figures.start()
    for event in read(lab.ledger(session)):
        state = figures.step(state, event)
    assert state.policies.get("routing", "enforce") == {"deny": 1, "advisory": 1, "allow": 1}


def test_transcript_has_the_decisions_that_do_not_allow(reviewed):
    lab, session = reviewed
    lines = [line for line in transcript(read(lab.ledger(session))) if "policy.check" in line]
    assert [line.partition(" ")[2] for line in lines] == [
        'policy.check: finding {"severity":"P0"}: deny [routing deny (fix it first)]',
        'policy.check: finding {"severity":"P1"}: advisory [routing advisory (look at it)]',
    ]
