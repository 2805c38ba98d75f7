"""Limits in the record: a resumed run and a request keep them, and verification derives decisions with them again."""

import pytest
from persons import approving
from test_resume import answered, resume

from deedbook import ALLOW, Branch, Err, Failed, Limits, Ok, ask
from deedbook.call.pending_calls import caller_of
from deedbook.policy import limits as rules
from deedbook_approvals.commands.approvals import _lines
from deedbook_audit.rederive import rejudge

LIMITS = Limits(reads=["src/**"], writes=["src/**", "!src/ro/**"], forbidden=["echo"])
WRITE = {"text": "x", "who": "a test", "why": "to see", "expected_hash": ""}


@pytest.fixture
def office(lab):
    """Give a lab with a flow whose branch has limits; the write of ``src/ask`` needs a person."""
    for name in ("read", "write"):
        lab.settings(abilities={name: {"summary": f"{name}.", "handler": {"tool": f"file-{name}"}}})
    lab.tool("echo", lambda args, ctx: args, files="none")
    lab.skill("clerk", allows="read write echo", triggers="hello")
    lab.policy("people", lambda call: ask("look first") if call.args.get("path") == "src/ask" else ALLOW)
    approving(lab)
    return lab


def code(run, ability, args):
    """Make a call, and return the code of its failure or an empty text."""
    try:
        run.call(ability, args)
    except Failed as problem:
        return problem.code
    return ""


def declare(lab, limits=(LIMITS,)):
    """Declare a flow whose branch tries to write inside and outside its limits, before and after a person decided."""
    found = []

    def work(run):
        first = code(run, "write", {"path": "docs/a", **WRITE})
        run.call("write", {"path": "src/ask", **WRITE})
        found[:] = [first, *(code(run, "write", {"path": path, **WRITE}) for path in ("docs/b", "src/ro/c", "src/d"))]
        found.extend([code(run, "echo", {}), code(run, "read", {"path": "docs/b"})])

    def main(args, run):
        run.parallel([Branch("desk", work, limits=limits[0])])
        return "done"

    lab.flow("main", main)
    return found


def suspended(lab):
    with lab.session("run") as session:
        assert isinstance(session.run("hello"), Err)
    return session.id


def test_resumed_run_has_the_same_limits(office):
    found = declare(office)
    session = suspended(office)
    answered(office, session)
    assert isinstance(resume(office, session), Ok)
    assert found == ["TOOL_NOT_ALLOWED"] * 3 + ["", "TOOL_NOT_ALLOWED", "TOOL_NOT_ALLOWED"]
    assert office.verify(session).sound
    assert sorted(path.name for path in (office.path / "src").iterdir()) == ["ask", "d"]


@pytest.mark.parametrize("other", [None, Limits(), Limits(reads=["**"], writes=["**"])])
def test_run_that_is_resumed_with_other_limits_diverges(office, other):
    limits = [LIMITS]
    declare(office, limits)
    session = suspended(office)
    answered(office, session)
    limits[0] = other
    problem = resume(office, session).error
    assert problem.code == "RESUME_DIVERGED"
    assert "run.branch was asked for otherwise" in problem.message


def test_approver_is_shown_the_limits(office):
    """All that a person decides about is displayed."""
    declare(office)
    session = suspended(office)
    lines = dict(_lines(office.payload("approval.requested", session), "waiting", None))
    assert lines["limits"] == "desk: forbidden echo; reads src/**; writes !src/ro/**, src/**"


def test_request_for_approval_keeps_the_limits(office):
    """Who performs the call in another session has the limits of the branch that asked."""
    declare(office)
    session = suspended(office)
    request = office.payload("approval.requested", session)
    assert request["schema_version"] == "v3"
    (kept,) = caller_of(request).limits
    assert (kept.branch, kept.document) == ("desk", rules.limits_document(LIMITS))
    assert not kept.writes.fits("docs/a")
    assert kept.writes.fits("src/a")


@pytest.mark.parametrize("path", ["docs/a", "src/ro/a"])
def test_verification_finds_a_call_that_was_outside_the_limits(office, monkeypatch, path):
    """A program that ignores limits records calls that the limits in the record deny."""

    def main(args, run):
        run.parallel([Branch("desk", lambda run: run.call("echo", {"path": path}), limits=LIMITS)])
        return "done"

    office.flow("main", main)
    with monkeypatch.context() as changed:
        changed.setattr(rules, "ability_violation", lambda *_: None)
        changed.setattr(rules, "path_violation", lambda *_: None)
        with office.session("run") as session:
            assert isinstance(session.run("hello"), Ok)
    (found,) = [each for each in rejudge(office.ledger(session), session.bindings) if each.call.ability == "echo"]
    assert (found.change, found.verdict.code) == ("denied", "TOOL_NOT_ALLOWED")
    assert found.verdict.reason == "'echo' is outside the limits of branch 'desk': it may not use echo"
    office.damaged = True


def test_branch_without_limits_is_recorded_as_before(office):
    office.flow("main", lambda args, run: run.parallel([Branch("plain", lambda run: None)]) and "done")
    with office.session("run") as session:
        session.run("hello")
    assert office.payload("run.branch") == {"name": "plain", "allowed": None}
