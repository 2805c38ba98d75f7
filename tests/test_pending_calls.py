"""An approval when it is taken and used: its approver signed it for this request, and one process uses it."""

import os
import threading
import time
from contextlib import ExitStack

import pytest
from persons import approving

from deedbook.approvals.keys import KeyRing
from deedbook.call.queue import open_queue
from deedbook.format.canonical import encode_payload
from deedbook.format.errors import ApprovalError
from deedbook.format.events import Entry, label, timestamp
from deedbook.format.reader import read
from deedbook.policy.requests import sign_answer
from deedbook_approvals.answering import answer


@pytest.fixture
def office(lab):
    """Give a lab in which a person decides each payment, with one request."""
    lab.tool("pay", lambda args, ctx: {}, effects="irreversible", tags=["approval-gate"])
    approving(lab)
    with lab.session() as session:
        session.call("pay", {"to": "bob"})
    return lab


def now():
    return timestamp(time.time())


def record_answer(lab, key, **changed):
    """Write an answer into the workspace ledger, signed with *key*; *changed* are members of the request signed for."""
    with open_queue(lab.state) as queue:
        (pending,) = queue
        ledger = lab.kernel().ledger
        said = {
            "answer": "approve",
            "approver": "ada",
            "ledger": ledger.session_id,
            "at": now(),
            "nonce": "0",
            "note": "",
        }
        payload = sign_answer({**queue.request(pending), **changed}, key, said)
        payload["approval"] = pending.id
        who = label("approval.answered", "user", "ada")
        entry = Entry(who, ledger.span(), pending.requested.span, encode_payload(payload))
        ledger.append([entry], durable=True)


def take(lab, queue):
    (pending,) = queue
    return lab.kernel().pending_calls().take(pending, queue, now())


@pytest.mark.parametrize("forged", ["key", "call", "charter", "shown"])
def test_answer_that_its_approver_did_not_sign_for_this_request_is_not_taken(office, forged):
    office.damaged = True
    ring = KeyRing.of(os.environ)
    key = ring.create("eve", force=True) if forged == "key" else ring.load("ada")
    record_answer(office, key, **({} if forged == "key" else {forged: "f" * 64}))
    with open_queue(office.state) as queue, pytest.raises(ApprovalError) as problem:
        take(office, queue)
    assert problem.value.error.code == "APPROVAL_FORGED"


def test_answer_that_its_approver_signed_is_taken(office):
    record_answer(office, KeyRing.of(os.environ).load("ada"))
    with open_queue(office.state) as queue:
        assert take(office, queue).record["approver"] == "ada"


def test_of_all_who_took_an_approval_one_uses_it(office):
    """Each has read the queue, and found the approval unused, before any of them uses it."""
    with open_queue(office.state) as queue:
        (pending,) = queue
        answer(office.path, pending.id, approve=True, catalogue=office.catalogue())
    takers, ended = [office.kernel().pending_calls() for _ in range(4)], []
    with ExitStack() as held:
        queues = [held.enter_context(open_queue(office.state)) for _ in takers]
        grants = [each.take(next(iter(queue)), queue, now()) for each, queue in zip(takers, queues, strict=True)]
        ready = threading.Barrier(len(takers))

        def use(number):
            ready.wait()
            try:
                takers[number].use(grants[number], f"{number:032x}", now())
                ended.append("used")
            except ApprovalError as problem:
                ended.append(problem.error.code)

        threads = [threading.Thread(target=use, args=[number]) for number in range(len(takers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(ended) == ["APPROVAL_USED"] * 3 + ["used"]
    assert [event.type for event in read(office.state / "workspace")].count("approval.used") == 1
