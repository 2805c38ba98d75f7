"""Verification of what a record says a person did: every hash is right, and no approver signed it."""

import json

import ledgers
import pytest
from ledgers import Book, start

from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verify import verify_file

SCHEMAS = Schemas.load(data_folder("schemas"))
ABILITY = "swe/human-review"
PAGE = {"task": "t-1", "phase": "build", "issue": "build:tests:u-1", "reason": "it fails", "seen": {}}
SAID = {"task_id": "t-1", "phase": "build", "issue": "build:tests:u-1", "decision": "go-on", "note": ""}
FIRST, SECOND = "a1" * 16, "a2" * 16
EVE = ledgers.verifier_key("eve", bytes(32))


def question(identity=FIRST, name=ABILITY, **args):
    """Return the request for an answer to the question of a pipeline."""
    given = {**PAGE, **args}
    raw = b'{"ability":"%b","args":%b,"principal":"local"}' % (name.encode(), ledgers.canonical(given))
    asked = ledgers.request(identity, name=name, args=given, call=ledgers.digest(raw))
    return {**asked, "shown": ledgers.digest(ledgers.canonical({k: v for k, v in asked.items() if k != "shown"}))}


class Pipeline:
    """A session with one run, in whose branch a pipeline works."""

    def __init__(self):
        self.book = Book()
        self.root = start(self.book)
        self.run = self.book.add("flow.call", {"flow": "swe/small", "args": {}}, parent=self.root, principal="local")
        self.branch = self.book.add("run.branch", {"name": "t-1", "allowed": None}, parent=self.run)

    def ask(self, asked, parent=None):
        who = {"actor": "policy", "principal": "local"}
        return self.book.add("approval.requested", asked, parent=parent or self.branch, **who)

    def grant(self, asked, span, taken=None):
        """Let ada approve, and make the call; return the span of the grant."""
        granted = self.book.add(
            "approval.granted", ledgers.taken(asked) if taken is None else taken, parent=span, principal="local"
        )
        call = {"args": asked["args"], "tool_name": asked["name"]}
        made = self.book.add("tool.call", call, parent=granted, principal="local")
        result = {"result": {"decision": "go-on", "note": ""}, "tool_name": asked["name"]}
        self.book.add("tool.result", result, parent=made, actor="tool")
        return granted

    def refuse(self, asked, span):
        self.book.add("approval.refused", ledgers.taken(asked, "deny"), parent=span, principal="local")
        self.deny(asked)

    def deny(self, asked):
        denied = {"kind": "tool", "name": asked["name"], "code": "APPROVAL_REFUSED", "reason": "ada refused it"}
        self.book.add("tool.denied", denied, parent=self.branch, actor="policy", principal="local")

    def settle(self, asked, span, decision, session=None):
        """Let ada give the result of the call in place of an approval."""
        withdrawn = {"approval": asked["approval"], "reason": "a person gave the result"}
        self.book.add("approval.withdrawn", withdrawn, parent=span, principal="local")
        key = ledgers.verifier_key()
        settled = {"ability": asked["name"], "approver": "ada", "charter": ledgers.HASH}
        result = {"note": ""} if decision is None else {"decision": decision, "note": ""}
        statement = {
            **settled, "result": ledgers.digest(ledgers.canonical({"result": result})), "settles": span,
            "session": session or self.book.session_id, "ledger": ledgers.OWN, "at": "2026-11-21T22:30:00.000Z",
            "nonce": "0e" * 16,
        }  # fmt: skip
        signed = ledgers.signed(f"deedbook result v1\n{ledgers.canonical(statement).decode()}\n")
        payload = {**settled, "result": result, "key": key, "signed": signed}
        self.book.add("call.settled", payload, parent=span, actor="user", principal="ada")

    def answer(self, parent=None, **changed):
        self.book.add("swe.answered", {**SAID, **changed}, parent=parent or self.branch)

    def findings(self, tmp_path, approvers=None):
        """Return what verification finds of approvals, after all hashes were made right."""
        path = tmp_path / ".events.jsonl"
        path.write_bytes(b"".join(ledgers.forge(self.book.lines)))
        report = verify_file(path, schemas=SCHEMAS, approvers=approvers)
        assert report.bytes.failures == ()
        assert {each.check for each in report.structure.failures} <= {"approval"}
        return [each.found for each in report.structure.failures]


@pytest.fixture
def made():
    return Pipeline()


# --- honest records ---------------------------------------------------------------------------------------------------


def approve(made):
    asked = question()
    made.grant(asked, made.ask(asked))
    made.answer()


def refuse(made):
    asked = question()
    made.refuse(asked, made.ask(asked))
    made.answer(decision="stop")


def settle(made):
    asked = question()
    made.settle(asked, made.ask(asked), "rework")
    made.answer(decision="rework")


def stop_by_approval(made):
    """Record that the person approves that the task stops."""
    asked = question(approves="stop")
    made.grant(asked, made.ask(asked))
    made.answer(decision="stop")


def ask_twice(made):
    """Ask the same question twice, and use each answer once."""
    for identity in (FIRST, SECOND):
        asked = question(identity)
        made.grant(asked, made.ask(asked))
        made.answer()


def ask_after_a_lost_approval(made):
    """Take an approval whose call does not begin, and get another answer to the second question."""
    asked = question()
    made.book.add("approval.granted", ledgers.taken(asked), parent=made.ask(asked), principal="local")
    asked = question(SECOND)
    made.settle(asked, made.ask(asked), "rework")
    made.answer(decision="rework")


def fork(made):
    """Serve the outcome of the parent, whose ledger has the answer."""
    above = {"session": "5f" * 16, "seq": 7, "hash": ledgers.HASH}
    made.book.add("session.forked", {**above, "goes_on": True}, parent=made.root)
    made.book.lines.insert(1, made.book.lines.pop())
    call = made.book.add("tool.call", {"args": PAGE, "tool_name": ABILITY}, parent=made.branch, principal="local")
    result = {"result": {"decision": "rework", "note": ""}, "tool_name": ABILITY}
    ended = made.book.add("tool.result", result, parent=call, actor="tool")
    made.book.add("call.served", {**above, "seq": 3}, parent=ended)
    made.answer(decision="rework")


HONEST = (approve, refuse, settle, stop_by_approval, ask_twice, ask_after_a_lost_approval)


@pytest.mark.parametrize("record", HONEST, ids=lambda each: each.__name__)
def test_answer_that_an_approver_signed_is_sound(made, tmp_path, record):
    record(made)
    assert made.findings(tmp_path, approvers=lambda digest: {"ada": ledgers.verifier_key()}) == []


# --- forged records ---------------------------------------------------------------------------------------------------


def nobody(made):
    """Run the tool without an approval: what the pipeline of a workspace without the tag recorded."""
    call = made.book.add("tool.call", {"args": PAGE, "tool_name": ABILITY}, parent=made.branch, principal="local")
    result = {"result": {"decision": "go-on", "note": ""}, "tool_name": ABILITY}
    made.book.add("tool.result", result, parent=call, actor="tool")
    made.answer()


def nothing(made):
    made.answer()


def no_grant(made):
    made.ask(question())
    made.answer()


def no_call(made):
    """Leave the approval unused, so that it may still release the call elsewhere."""
    asked = question()
    made.book.add("approval.granted", ledgers.taken(asked), parent=made.ask(asked), principal="local")
    made.answer()


def another_ability(made):
    asked = ledgers.request(FIRST)
    made.grant(asked, made.ask(asked))
    made.answer()


def another_ability_with_the_same_words(made):
    asked = question(name="notes/add", text="x")
    made.grant(asked, made.ask(asked))
    made.answer()


def another_issue(made):
    asked = question(issue="build:lint:u-1")
    made.grant(asked, made.ask(asked))
    made.answer()


def another_task(made):
    asked = question(task="t-2")
    made.grant(asked, made.ask(asked))
    made.answer()


def another_run(made):
    """Let the answer stand under the root, not in the branch that says so."""
    asked = question()
    made.grant(asked, made.ask(asked, parent=made.root))
    made.answer()


def used_twice(made):
    approve(made)
    made.answer()


def granted_twice(made):
    """Release a second question with the same signed answer."""
    approve(made)
    asked = question()
    made.grant(asked, made.ask(asked))
    made.answer()


def denied(made):
    asked = question()
    made.refuse(asked, made.ask(asked))
    made.answer()


def grant_from_a_denial(made):
    asked = question()
    made.grant(asked, made.ask(asked), ledgers.taken(asked, "deny"))
    made.answer()


def other_decision(made):
    asked = question()
    made.settle(asked, made.ask(asked), "rework")
    made.answer()


def no_decision(made):
    asked = question()
    made.settle(asked, made.ask(asked), None)
    made.answer()


def stop_without_a_refusal(made):
    asked = question()
    made.grant(asked, made.ask(asked))
    made.answer(decision="stop")


def result_of_another_session(made):
    asked = question()
    made.settle(asked, made.ask(asked), "go-on", session="5f" * 16)
    made.answer()


def no_approver(made):
    """Eve signs with her own key, and the record says that it is the key of an approver."""
    asked = question()
    taken = ledgers.taken(asked)
    text = taken["signed"].partition("\n\n")[0] + "\n"
    forged = ledgers.signed(text.replace('"approver":"ada"', '"approver":"eve"'), "eve", bytes(32))
    made.grant(asked, made.ask(asked), {**taken, "approver": "eve", "key": EVE, "signed": forged})
    made.answer()


def refusal_of_nobody(made):
    asked = question()
    made.ask(asked)
    made.deny(asked)


def refusal_twice(made):
    asked = question()
    made.refuse(asked, made.ask(asked))
    made.deny(asked)


FORGED = {
    nobody: "is not in this run",
    nothing: "is not in this run",
    no_grant: "has no answer",
    no_call: "has no answer",
    another_ability: "is not in this run",
    another_ability_with_the_same_words: "is not in this run",
    another_issue: "is not in this run",
    another_task: "is not in this run",
    another_run: "is not in this run",
    used_twice: "rests on an answer that an event before it rests on",
    granted_twice: "a second call under one approval",
    denied: "says 'go-on', and the person answered 'stop'",
    grant_from_a_denial: "its answer is another",
    other_decision: "says 'go-on', and the person answered 'rework'",
    no_decision: "says 'go-on', and the person answered ''",
    stop_without_a_refusal: "says 'stop', and the person answered 'go-on'",
    result_of_another_session: "its session is another",
    no_approver: "is not signed with the declared key of 'eve'",
    refusal_of_nobody: "no approval.refused of a person",
    refusal_twice: "no approval.refused of a person",
}


@pytest.mark.parametrize("record", FORGED, ids=lambda each: each.__name__)
def test_decision_that_no_approver_signed_fails_however_well_the_chain_was_made(made, tmp_path, record):
    record(made)
    found = made.findings(tmp_path, approvers=lambda digest: {"ada": ledgers.verifier_key()})
    assert any(FORGED[record] in each for each in found), found


def test_served_answer_of_a_fork_is_that_of_its_parent(made, tmp_path):
    fork(made)
    path = tmp_path / ".events.jsonl"
    path.write_bytes(b"".join(ledgers.forge(made.book.lines)))
    found = verify_file(path, schemas=SCHEMAS).structure.failures
    assert [each.found for each in found if each.check == "approval"] == []


def test_fork_that_was_served_nothing_has_no_answer(made, tmp_path):
    fork(made)
    del made.book.lines[-2]
    path = tmp_path / ".events.jsonl"
    path.write_bytes(b"".join(ledgers.forge(made.book.lines)))
    found = verify_file(path, schemas=SCHEMAS).structure.failures
    assert [each.found for each in found if "has no answer" in each.found]


@pytest.mark.parametrize("record", HONEST, ids=lambda each: each.__name__)
def test_payload_that_was_taken_out_makes_no_honest_record_unsound(tmp_path, record):
    whole = Pipeline()
    record(whole)
    for seq, line in enumerate(whole.book.lines):
        if json.loads(line)["event_type"] in ("session.start", "approval.granted"):
            continue  # these are never taken out
        made = Pipeline()
        record(made)
        ledgers.excise(made.book, seq, made.root)
        place = tmp_path / str(seq)
        place.mkdir()
        found = verify_file(made.book.write(place), schemas=SCHEMAS).structure.failures
        assert not found, (json.loads(line)["event_type"], found)
