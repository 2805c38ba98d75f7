"""A copied session folder is not resumed: the run would go on in two places, each with its effects."""

import shutil
from contextlib import closing

import pytest
from persons import approving

from deedbook import ALLOW, Ok, ask
from deedbook.format.errors import DeedbookError
from deedbook.format.reader import read
from deedbook_approvals.answering import answer
from deedbook_testing.lab import Lab

COPY = "c0" * 16


@pytest.fixture
def paid():
    """Hold what was paid, in order."""
    return []


def prepare(lab, paid):
    """Give *lab* a flow with a payment that a person decides."""

    def work(args, run):
        run.call("pay", {"sum": 1})
        run.call("pay", {"sum": 2})
        run.answer("paid")

    lab.tool("pay", lambda args, ctx: paid.append(args["sum"]) or {}, effects="irreversible")
    lab.policy("people", lambda call: ask("a large sum") if call.args.get("sum") == 2 else ALLOW)
    lab.skill("clerk", allows="pay", triggers="hello")
    lab.flow("work", work)
    approving(lab)


@pytest.fixture
def waiting(lab, paid):
    """Give a lab whose run waits for an approval, and the run's session."""
    prepare(lab, paid)
    with lab.session("run") as session:
        session.run("hello")
    return lab, session.id


def refused(lab, session):
    """Return the error with which the session is not resumed; its folder stays as it is."""
    place = lab.state / "sessions" / session
    before = {each.name: each.read_bytes() for each in place.iterdir() if each.is_file()}
    with lab.kernel() as kernel, pytest.raises(DeedbookError) as problem:
        kernel.resume(session)
    assert {each.name: each.read_bytes() for each in place.iterdir() if each.is_file()} == before
    assert problem.value.error.code == "SESSION_COPIED"
    return problem.value.error.message


def test_copy_under_another_name_is_not_resumed_and_the_original_is(waiting, paid):
    lab, session = waiting
    shutil.copytree(lab.state / "sessions" / session, lab.state / "sessions" / COPY)
    answer(lab.path, lab.payload("approval.requested", session)["approval"], approve=True, catalogue=lab.catalogue())
    why = refused(lab, COPY)
    assert f"the ledger of session {session}" in why
    assert f"deedbook resume {session}" in why
    shutil.rmtree(lab.state / "sessions" / COPY)
    with lab.kernel() as kernel, kernel.resume(session) as resumed:
        assert isinstance(resumed.go_on(), Ok)
    assert paid == [1, 2]


def test_copy_in_another_state_folder_is_not_resumed(waiting, paid, tmp_path):
    lab, session = waiting
    with closing(Lab(tmp_path / "other")) as other:
        prepare(other, paid)
        other.session().end(ok=True, reason="done")
        shutil.copytree(lab.state / "sessions" / session, other.state / "sessions" / session)
        why = refused(other, session)
        shutil.rmtree(other.state / "sessions" / session)
    assert "the workspace ledger here has no record of it" in why
    assert "deedbook context save" in why
    assert "--hand-over" in why
    assert paid == [1]


def test_copy_that_lacks_what_was_recorded_since_is_not_resumed(waiting, paid):
    lab, session = waiting
    place = lab.state / "sessions" / session
    older = place.with_name("older")
    shutil.copytree(place, older)
    answer(lab.path, lab.payload("approval.requested", session)["approval"], approve=True, catalogue=lab.catalogue())
    with lab.kernel() as kernel, kernel.resume(session) as resumed:
        assert isinstance(resumed.go_on(), Ok)
    whole = list(read(place))
    newer = place.with_name("newer")
    place.rename(newer)
    older.rename(place)
    with lab.kernel() as kernel, pytest.raises(DeedbookError) as problem:
        kernel.resume(session)
    assert problem.value.error.code == "LEDGER_UNSOUND"
    shutil.rmtree(place)
    newer.rename(place)
    assert list(read(place)) == whole
    assert paid == [1, 2]
