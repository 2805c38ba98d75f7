"""One answer to a request, one use of an approval, and what sessions say of answers: all held against the ledgers."""

from pathlib import Path

import ledgers
import pytest
from commandline import SCHEMAS
from faults.judging import Judge
from faults.manipulations import Manipulation, also, hard_linked, linked, piped, raw, told
from faults.states import State, honest

from deedbook_audit.verification.answers import compare_answers
from deedbook_audit.verify import verify_file


def broken(book, tmp_path):
    """Return what is found of approvals in the ledger *book*."""
    report = verify_file(book.write(tmp_path), schemas=SCHEMAS)
    assert {failure.check for failure in report.structure.failures} <= {"approval"}
    return [failure.found for failure in report.structure.failures]


def queue(word="approve"):
    """Begin a workspace ledger with a request and its answer; return it with their spans."""
    book = ledgers.Book(ledgers.OWN, genesis="workspace")
    root = book.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "w"})
    asked = book.add("approval.requested", ledgers.request(), parent=root, actor="policy", principal="local")
    return book, asked, answer(book, asked, word)


def answer(book, asked, word="approve"):
    said = ledgers.answer(ledgers.request(), word)
    return book.add("approval.answered", said, parent=asked, actor="user", principal="ada")


def use(book, under, identity="a9" * 16):
    book.add("approval.used", {"approval": identity, "session": "ab" * 16}, parent=under, principal="local")


def test_approval_is_used_once(tmp_path):
    book, _, answered = queue()
    use(book, answered)
    assert broken(book, tmp_path) == []
    use(book, answered)
    assert broken(book, tmp_path) == ["one approval used twice"]


def test_request_is_answered_once_whatever_the_answers_are(tmp_path):
    book, asked, _ = queue("deny")
    answer(book, asked)
    assert broken(book, tmp_path) == ["a second answer to one request"]


def test_denial_is_not_used(tmp_path):
    book, _, answered = queue("deny")
    use(book, answered)
    assert broken(book, tmp_path) == ["an answer was used that does not approve"]


def test_use_hangs_under_the_answer_to_its_request(tmp_path):
    book, asked, answered = queue()
    use(book, asked)
    use(book, answered, "b1" * 16)
    found = ["approval.used under no approval.answered", "approval.used under the answer to another request"]
    assert broken(book, tmp_path) == found


# --- two ledgers ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    """Give an honest workspace with an approval that was used."""
    return honest(tmp_path_factory.mktemp("honest"), log=False)


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"seq": 0}, "no answer"),
        ({"seq": 99999}, "no answer"),
        ({"seq": lambda seq: seq - 1}, "no answer"),
        ({"ledger": "ws-" + "ab" * 16}, "no answer"),
        ({"hash": "0" * 64}, "one with the hash "),
        ({"signed": ""}, "another signed"),
        ({"approver": "eve"}, "another approver"),
    ],
)
def test_answer_of_a_session_is_the_one_in_the_workspace_ledger(state: State, tmp_path: Path, said: dict, found: str):
    names = [*state.names.values(), "absent"]
    assert list(compare_answers(state.state, names)) == []
    copy = state.copy(tmp_path / "copy")
    told("approved", "approval.granted", **said)(copy)
    (gap,) = compare_answers(copy.state, names)
    assert (gap.session, gap.check) == (state.names["approved"], "approval.granted")
    assert gap.found.startswith(found)


def test_refusal_is_no_grant(state: State, tmp_path: Path):
    copy = state.copy(tmp_path / "copy")
    copy.edit("approved", lambda events: [
        event for event in events
        if event.type != "approval.granted" or not event.header.update(event_type="approval.refused")
    ])  # fmt: skip
    (gap,) = compare_answers(copy.state, [state.names["approved"]])
    assert (gap.check, gap.found) == ("approval.refused", "the answer 'approve'")


def test_without_a_workspace_ledger_no_answer_stands_anywhere(state: State, tmp_path: Path):
    copy = state.copy(tmp_path / "copy")
    copy.file("home").unlink()
    assert [gap.found for gap in compare_answers(copy.state, state.names.values())] == ["no answer"]
    copy.file("home").mkdir()  # its own verification says so
    assert list(compare_answers(copy.state, state.names.values())) == []


def test_verify_finds_it_though_every_ledger_was_made_sound(judge: Judge, state: State, tmp_path: Path):
    change = also(told("approved", "approval.granted", hash="0" * 64), State.heads)
    found = Manipulation(change, "approved", r"approval\.granted")
    assert judge.misses(state, found, tmp_path / "copy") is None


# --- what cannot be read --------------------------------------------------------------------------------------------


def foldered(state: State) -> None:
    state.file("call").unlink()
    state.file("call").mkdir()


@pytest.mark.campaign(keep=5)
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (linked("call"), "a link"),
        (hard_linked("call"), "a path that has 2 names (hard links)"),
        (piped("call"), "a FIFO"),
        (foldered, "a folder"),
    ],
)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_file_that_is_not_read_hides_nothing_of_the_others(state: State, tmp_path: Path, change, found, jobs):
    copy = state.copy(tmp_path / "copy")
    also(change, raw("other", b'"text":"ho"', b'"text":"hu"'))(copy)
    ran = copy.place.here("verify", "--jobs", jobs, "--json", status=4)
    reports = {report["file"].split("/")[-2]: report for report in ran.fits("output_verify_v1")["reports"]}
    assert len(reports) == len(list((copy.state / "sessions").iterdir())) + 1
    assert [each["check"] for each in reports[state.names["call"]]["bytes"]["failures"]] == ["readable"]
    assert "payload_hash" in str(reports[state.names["other"]])
    assert {name for name, report in reports.items() if not report["sound"]} == {
        state.names["call"],
        state.names["other"],
    }
    said = copy.place.here("verify", state.names["call"], status=4).out
    wanted = f"BROKEN: readable: expected a regular file that can be read and has one name, found {found}"
    assert said.splitlines()[0] == wanted


def test_file_outside_that_is_a_link_is_refused(state: State, tmp_path: Path):
    (tmp_path / "link").symlink_to(ledgers.call().write(tmp_path))
    assert "[PATH_REFUSED]" in state.place.here("verify", str(tmp_path / "link"), status=1).err
