"""Approvals against somebody who writes the ledger: nothing that no approver signed for this very call counts."""

import json

import ledgers
import pytest

from deedbook.format.schema import Schemas, data_folder
from deedbook.policy.requests import answer_faults
from deedbook_audit.approval_rules import ApprovalRules
from deedbook_audit.verify import verify_file

SCHEMAS = Schemas.load(data_folder("schemas"))
KEY = ledgers.verifier_key()


def findings(book, tmp_path, *, genesis="session", approvers=None):
    path = tmp_path / ".events.jsonl"
    path.write_bytes(b"".join(ledgers.forge(book.lines, genesis=genesis)))
    report = verify_file(path, schemas=SCHEMAS, approvers=approvers)
    return [finding.found for finding in report.structure.failures if finding.check == "approval"]


def change(book, event_type, **members):
    """Change payloads of a type, with all hashes made right again."""
    for at, line in enumerate(book.lines):
        if json.loads(line)["event_type"] == event_type:
            head, _, payload = line.partition(b',"payload":')
            changed = {**json.loads(payload[:-2]), **members}
            book.lines[at] = head + b',"payload":' + ledgers.canonical(changed) + b"}\n"
            return book
    raise AssertionError(event_type)


def test_honest_ledgers_are_sound(tmp_path):
    def keys(digest):
        return {"ada": KEY}

    assert findings(ledgers.approved(), tmp_path, approvers=keys) == []
    assert findings(ledgers.queue(), tmp_path, genesis="workspace", approvers=keys) == []


@pytest.mark.parametrize(
    ("event_type", "members", "why"),
    [
        ("tool.call", {"args": {"text": "rm -rf"}}, "not the one that was approved"),
        ("tool.call", {"tool_name": "other"}, "not the one that was approved"),
        ("approval.requested", {"args": {"text": "rm -rf"}}, "its hash shown commits to"),
        ("approval.granted", {"approver": "eve"}, "does not count"),
        ("approval.granted", {"signed": ledgers.taken(ledgers.request("cc" * 16))["signed"]}, "another request"),
        ("approval.granted", {"signed": ledgers.taken(ledgers.request(), "deny")["signed"]}, "its answer is another"),
        ("approval.granted", {"approval": "cc" * 16}, "under no approval.requested"),
        ("approval.granted", {"ledger": "ws-" + "0" * 32}, "its ledger is another"),
    ],
)
def test_changed_event_is_found_however_well_the_chain_was_made_anew(tmp_path, event_type, members, why):
    found = findings(change(ledgers.approved(), event_type, **members), tmp_path)
    assert any(why in each for each in found), found


def test_key_that_the_charter_does_not_declare_is_found(tmp_path):
    other = ledgers.verifier_key(seed=bytes(32))
    found = findings(ledgers.approved(), tmp_path, approvers=lambda digest: {"ada": other})
    assert any("not the one that the charter declares" in each for each in found)


def test_call_under_a_request_that_nobody_granted_is_found(tmp_path):
    book = ledgers.Book("ee" * 16)
    root = ledgers.start(book, "call")
    span = book.add("approval.requested", ledgers.request(), parent=root, actor="policy", principal="local")
    book.add("tool.call", {"args": {"text": "hi"}, "tool_name": "echo"}, parent=span, principal="local")
    assert any("was not granted" in each for each in findings(book, tmp_path))


def test_second_call_under_one_approval_is_found(tmp_path):
    book = ledgers.Book("ee" * 16)
    root = ledgers.start(book, "call")
    span = book.add("approval.requested", ledgers.request(), parent=root, actor="policy", principal="local")
    span = book.add("approval.granted", ledgers.taken(ledgers.request()), parent=span, principal="local")
    for _ in range(2):
        book.add("tool.call", {"args": {"text": "hi"}, "tool_name": "echo"}, parent=span, principal="local")
    book.add("session.end", {"ok": True, "reason": "COMPLETED"}, parent=root)
    assert [each for each in findings(book, tmp_path) if "a second call" in each]


@pytest.mark.parametrize("excised", [(True, True), (False, True), (True, False)])
def test_second_call_under_one_approval_is_found_where_payloads_were_taken_out(excised):
    rules, call = ApprovalRules(), {"args": {"text": "hi"}, "tool_name": "echo"}
    assert list(rules.check("approval.requested", b"asked", b"root", ledgers.request())) == []
    assert list(rules.check("approval.granted", b"granted", b"asked", ledgers.taken(ledgers.request()))) == []
    found = [
        list(rules.check_excised("tool.call", span, b"granted"))
        if is_excised
        else list(rules.check("tool.call", span, b"granted", call))
        for is_excised, span in zip(excised, (b"first", b"second"), strict=True)
    ]
    assert found == [[], ["a second call under one approval"]]


def test_call_under_a_request_that_was_withdrawn_is_found(tmp_path):
    book = ledgers.Book("ee" * 16)
    root = ledgers.start(book, "call")
    asked = book.add("approval.requested", ledgers.request(), parent=root, actor="policy", principal="local")
    withdrawn = {"approval": ledgers.request()["approval"], "reason": "the run that asked has ended without it"}
    book.add("approval.withdrawn", withdrawn, parent=asked, principal="local")
    span = book.add("approval.granted", ledgers.taken(ledgers.request()), parent=asked, principal="local")
    book.add("tool.call", {"args": {"text": "hi"}, "tool_name": "echo"}, parent=span, principal="local")
    assert findings(book, tmp_path) == ["a call was approved under a request that was withdrawn"]


def test_use_of_an_approval_whose_request_was_withdrawn_is_found(tmp_path):
    asked, book = ledgers.request(), ledgers.Book(ledgers.OWN, genesis="workspace")
    root = book.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "w"})
    span = book.add("approval.requested", asked, parent=root, actor="policy", principal="local")
    answered = book.add("approval.answered", ledgers.answer(asked), parent=span, actor="user", principal="ada")
    withdrawn = {"approval": asked["approval"], "reason": "the fork that asked has ended"}
    used = {"approval": asked["approval"], "session": "ab" * 16}
    book.add("approval.withdrawn", withdrawn, parent=root, principal="local")
    book.add("approval.used", used, parent=answered, principal="local")
    assert findings(book, tmp_path, genesis="workspace") == ["an approval was used after its request was withdrawn"]


@pytest.mark.parametrize("member", ["approval", "call", "charter", "shown", "expires"])
def test_statement_about_another_request_is_no_answer(member):
    request = ledgers.request()
    answer = ledgers.answer(request, **{member: "f" * 64})
    (why,) = answer_faults(request, answer, KEY, ledgers.OWN)
    assert why.startswith(f"its {member} is another")


def test_answer_signed_by_another_key_or_by_nobody_is_none():
    request = ledgers.request()
    answer = ledgers.answer(request)
    assert list(answer_faults(request, answer, KEY, ledgers.OWN)) == []
    assert list(answer_faults(request, answer, ledgers.verifier_key(seed=bytes(32)), ledgers.OWN))
    assert list(answer_faults(request, answer, None, ledgers.OWN))
    forged = {**answer, "signed": answer["signed"].replace("approve", "deny")}
    assert list(answer_faults(request, forged, KEY, ledgers.OWN))
