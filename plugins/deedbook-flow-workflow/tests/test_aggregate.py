"""The aggregate: what the findings of a phase come to, by arithmetic alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.schema import Schemas, data_folder
from deedbook_flow_workflow.aggregate import (
    Coverage,
    FindingAnswer,
    Report,
    ReportRefused,
    build_aggregate,
    check_report,
    fingerprint,
    merge_findings,
)


def finding(**more):
    """Return a finding with a place."""
    return {
        "id": "f1", "reviewer": "reviewer-a", "severity": "P1", "autofix_class": "manual", "confidence": 50,
        "title": "Open door", "file": "a.py", "line": 3, "schema_version": "v1", **more,
    }  # fmt: skip


def merged(**reviewers):
    """Merge reports: reviewer and its findings, or these with the evidence that is recorded."""
    given = {name: found if isinstance(found, tuple) else (found, "") for name, found in reviewers.items()}
    return merge_findings(
        Report(reviewer=name, findings=found, evidence=frozenset(evidence)) for name, (found, evidence) in given.items()
    )


def aggregate(findings, *, answers=None, asked=1, failed=()):
    said = {fingerprint(each): answers for each in findings} if answers else {}
    return build_aggregate(findings, said, Coverage(asked=asked, failed=failed))


# --- merging ----------------------------------------------------------------------------------------------------------


def test_findings_with_the_same_place_and_title_are_one():
    [found] = merged(a=[finding()], b=[finding(title="  open   DOOR")])
    assert found["file"] == "a.py"
    assert len(merged(a=[finding(), finding(line=4), finding(file="b.py"), finding(title="Other")])) == 4


def test_conservative_choice_wins():
    [found] = merged(
        a=[finding(severity="minor", autofix_class="gated_auto")],
        b=[finding(severity="critical", autofix_class="safe_auto")],
    )
    assert (found["severity"], found["autofix_class"]) == ("P0", "gated_auto")


def test_finding_is_old_only_if_all_say_so():
    old, new = finding(pre_existing=True), finding()
    assert "pre_existing" not in merged(a=[old], b=[new])[0]
    assert merged(a=[old], b=[old])[0]["pre_existing"] is True


@pytest.mark.parametrize(
    ("one", "other", "confidence", "agreed"),
    [
        ("x", "y", 75, ["b"]),
        ("x", "x", 50, None),
        ("xy", "y", 50, None),
        ("x", "", 50, None),
        ("", "y", 50, None),
        ("", "", 50, None),
    ],
    ids=["other evidence", "one tool run", "overlap", "none of b", "none of a", "none"],
)
def test_agreement_raises_confidence_only_on_other_evidence(one, other, confidence, agreed):
    [found] = merged(a=([finding()], one), b=([finding()], other))
    assert (found["confidence"], found.get("agreed")) == (confidence, agreed)


def test_claimed_evidence_counts_for_nothing():
    [found] = merged(
        a=([finding(evidence=["p"])], "x"), b=([finding(evidence=["q"])], "x"), c=[finding(evidence=["r"])]
    )
    assert (found["confidence"], found.get("agreed"), found["evidence"]) == (50, None, ["x"])


def test_reviewer_does_not_agree_with_itself():
    [found] = merged(a=([finding(), finding(id="f2")], "xy"))
    assert (found["confidence"], found.get("agreed")) == (50, None)


def test_evidence_that_a_third_reviewer_shares_joins_two():
    assert merged(a=([finding()], "x"), b=([finding()], "y"), c=([finding()], "xy"))[0]["confidence"] == 50


def test_confidence_is_at_most_100():
    reviewers = {f"r{each}": ([finding(confidence=75)], str(each)) for each in range(4)}
    assert merged(**reviewers)[0]["confidence"] == 100


# --- what must not count ----------------------------------------------------------------------------------------------


def test_finding_without_a_place_is_refused_with_the_report():
    placeless = {key: value for key, value in finding().items() if key != "file"}
    with pytest.raises(ReportRefused, match=r"findings\[1\] \(f1: Open door\) has no place: expected the member file"):
        check_report(Report(reviewer="a", findings=[finding(), placeless]), personas=(), authors=())


def test_reviewer_of_its_own_output_is_refused():
    with pytest.raises(ReportRefused, match="a reviews its own output"):
        check_report(Report(reviewer="a", findings=[]), personas=("a",), authors=("a",))


def test_finding_in_the_name_of_another_persona_is_refused():
    report = Report(reviewer="a", findings=[finding(reviewer="b")])
    with pytest.raises(ReportRefused, match="is said to be of b"):
        check_report(report, personas=("a", "b"), authors=())
    check_report(report, personas=("a",), authors=())  # the name of a tool


# --- the aggregate ----------------------------------------------------------------------------------------------------


def test_unresolved_p0_fails_the_verdict():
    found = aggregate(merged(a=[finding(severity="P0"), finding(severity="P0", line=4, pre_existing=True)]))
    assert (found["verdict"], found["p0_unresolved"], len(found["pre_existing"])) == ("fail", 1, 1)


def test_suppressed_finding_does_not_count():
    found = aggregate(merged(a=[finding(severity="P0")]), answers=[FindingAnswer(outcome="deny", suppresses=True)])
    assert (found["verdict"], found["findings"], len(found["suppressed"])) == ("pass", [], 1)


def test_denial_that_does_not_suppress_leaves_the_finding_to_a_person():
    found = merged(a=[finding(severity="P0", autofix_class="safe_auto")])
    told = aggregate(found, answers=[FindingAnswer(outcome="deny")])
    assert (told["verdict"], told["findings"][0]["autofix_class"]) == ("fail", "manual")


@pytest.mark.parametrize(
    ("answers", "route", "autofix"),
    [
        ([FindingAnswer(outcome="allow", route="apply")], "apply", "manual"),
        (
            [FindingAnswer(outcome="allow", route="apply"), FindingAnswer(outcome="allow", route="gated")],
            "gated",
            "manual",
        ),
        ([FindingAnswer(outcome="advisory")], "advisory", "advisory"),
        ([FindingAnswer(outcome="allow")], None, "manual"),
    ],
)
def test_strictest_route_wins_and_never_loosens_the_class(answers, route, autofix):
    [found] = aggregate(merged(a=[finding()]), answers=answers)["findings"]
    assert (found.get("route"), found["autofix_class"]) == (route, autofix)


def test_silence_of_all_is_no_pass():
    found = aggregate([], asked=2, failed=["a", "b"])
    assert found["verdict"] == "fail"
    assert found["coverage"] == {"asked": 2, "reported": 0, "failed": ["a", "b"]}
    assert aggregate([], asked=2, failed=["a"])["verdict"] == "pass"


# --- laws -------------------------------------------------------------------------------------------------------------

findings = st.fixed_dictionaries(
    {
        "severity": st.sampled_from(["P0", "P1", "P2", "P3", "critical", "info"]),
        "autofix_class": st.sampled_from(["safe_auto", "gated_auto", "manual", "advisory"]),
        "confidence": st.sampled_from([0, 25, 50, 75, 100]),
        "title": st.sampled_from(["One", "one", "Two"]),
        "line": st.sampled_from([1, 2]),
    },
    optional={
        "evidence": st.lists(st.sampled_from("xyz"), min_size=1, max_size=2),
        "pre_existing": st.booleans(),
        "detail": st.sampled_from(["d", "e"]),
    },
).map(lambda made: finding(**made))
evidence = st.text("xyz", max_size=2)
reports = st.dictionaries(st.sampled_from("abcd"), st.tuples(st.lists(findings, max_size=4), evidence), max_size=4)


@given(reports, st.randoms(use_true_random=False))
def test_order_of_arrival_does_not_matter(given_reports, random):
    first = merged(**given_reports)
    again = [(name, (random.sample(found, len(found)), kept)) for name, (found, kept) in given_reports.items()]
    random.shuffle(again)
    assert merged(**dict(again)) == first


@given(reports)
def test_aggregate_fits_its_schema_and_counts_every_finding_once(given_reports):
    found = merged(**given_reports)
    built = aggregate(found, asked=len(given_reports))
    assert list(SCHEMAS.validator("review_aggregate_v1").violations(built)) == []
    kept = [fingerprint(each) for part in ("findings", "suppressed", "pre_existing") for each in built[part]]
    assert sorted(kept) == sorted({fingerprint(each) for given, _ in given_reports.values() for each in given})


SCHEMAS = Schemas.load(data_folder("schemas"))
