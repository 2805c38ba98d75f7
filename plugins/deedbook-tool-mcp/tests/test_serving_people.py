"""Calls that wait for a person, in every way that a revision of the protocol has; no client's answer approves one."""

import os
import threading
import time

import anyio
import pytest
from mcp_types import (
    ClientCapabilities,
    ElicitationCapability,
    ElicitResult,
    FormElicitationCapability,
    UrlElicitationCapability,
)

from deedbook import Branch
from deedbook.approvals.keys import KeyRing
from deedbook.call.queue import open_queue
from deedbook.format.errors import DeedbookError
from deedbook_approvals.answering import answer
from deedbook_tool_mcp.serving.people import choose_contact

MODES = ("legacy", "2026-07-28")
ERROR = "deedbook/error"
BOB = {"to": "bob"}


@pytest.fixture
def ran():
    return []


@pytest.fixture
def office(lab, ran, tmp_path_factory, monkeypatch):
    """Give a lab in which `pay` asks, ada approves, and *ran* says what was paid."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    lab.tool(
        "pay",
        lambda args, ctx: ran.append(args) or {"paid": args["to"]},
        effects="write",
        tags=["approval-gate"],
        gives={"type": "object"},
    )
    key = KeyRing.of(os.environ).create("ada").public
    lab.write("ada.pub", f"{key}\n")
    lab.settings(principals={"ada": {"key": "ada.pub", "roles": ["approver"]}})
    return lab


def answered(lab, identity, *, approve=True):
    answer(lab.path, identity, approve=approve, catalogue=lab.catalogue())


def soon(lab, *, approve=True):
    """Answer the next request that is filed, from another thread."""

    def work():
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                with open_queue(lab.state) as waiting:
                    found = [each.id for each in waiting if each.answer is None and each.withdrawn is None]
            except DeedbookError:
                found = []
            if found:
                return answered(lab, found[-1], approve=approve)
            time.sleep(0.02)
        return None

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def person(action, asked):
    """Return a client's own person, who answers every question with *action*."""

    async def ask(_ctx, params):
        asked.append(params.message)
        return ElicitResult(action=action, content={})

    return ask


def parked(result):
    """Return the id of the request of a call that came to nothing since a person has to decide."""
    assert (result.is_error, result.meta[ERROR]["code"]) == (True, "NEEDS_HUMAN")
    return result.meta[ERROR]["approval"]


@pytest.mark.parametrize(
    ("version", "capabilities", "expected"),
    [
        ("2025-03-26", None, "none"),
        ("2025-11-25", ClientCapabilities(), "none"),
        ("2025-06-18", ClientCapabilities(elicitation=ElicitationCapability()), "question"),
        (
            "2025-11-25",
            ClientCapabilities(elicitation=ElicitationCapability(form=FormElicitationCapability())),
            "question",
        ),
        ("2025-11-25", ClientCapabilities(elicitation=ElicitationCapability(url=UrlElicitationCapability())), "none"),
        ("2026-07-28", ClientCapabilities(elicitation=ElicitationCapability()), "round"),
        ("2026-07-28", ClientCapabilities(), "none"),
    ],
)
def test_each_revision_is_told_in_its_own_way(version, capabilities, expected):
    assert choose_contact(version, capabilities) == expected


@pytest.mark.parametrize("mode", MODES)
def test_client_that_offers_nothing_is_told_how_to_approve_and_makes_the_call_again(office, ran, serve, mode):
    served = serve()
    first = served.call("pay", BOB, mode)
    identity = parked(first)
    assert f"deedbook approvals approve {identity}" in first.content[0].text
    assert parked(served.call("pay", BOB, mode)) == identity
    answered(office, identity)
    assert served.call("pay", BOB, mode).structured_content == {"paid": "bob"}
    assert parked(served.call("pay", BOB, mode)) != identity
    assert ran == [BOB]


@pytest.mark.parametrize("mode", MODES)
def test_call_waits_and_says_so_and_goes_on_with_the_answer(office, ran, serve, mode):
    told = []

    async def show(_progress, _total, message):
        told.append(message)

    thread = soon(office)
    served = serve(wait=30)
    result = served.to(lambda client: client.call_tool("pay", BOB, progress_callback=show), mode)
    thread.join()
    assert (result.structured_content, ran) == ({"paid": "bob"}, [BOB])
    assert "deedbook approvals approve" in told[0]
    assert served.types()[1:-1] == ["approval.requested", "approval.granted", "tool.call", "tool.result"]


def test_approver_who_denies_is_heard(office, ran, serve):
    thread = soon(office, approve=False)
    result = serve(wait=30).call("pay", BOB)
    thread.join()
    assert (result.meta[ERROR]["code"], ran) == ("APPROVAL_REFUSED", [])


@pytest.mark.parametrize("mode", MODES)
def test_person_at_the_client_who_accepts_has_approved_nothing(office, ran, serve, mode):
    asked = []
    result = serve(wait=0.3).call("pay", BOB, mode, elicitation_callback=person("accept", asked))
    identity = parked(result)
    assert ran == []
    assert len(asked) == 1
    assert f"deedbook approvals approve {identity}" in asked[0]
    assert "approves nothing" in asked[0]


@pytest.mark.parametrize("mode", MODES)
def test_person_at_the_client_is_told_while_the_approver_answers(office, ran, serve, mode):
    asked = []
    thread = soon(office)
    result = serve(wait=30).call("pay", BOB, mode, elicitation_callback=person("accept", asked))
    thread.join()
    assert (result.structured_content, ran, len(asked)) == ({"paid": "bob"}, [BOB], 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_person_at_the_client_who_declines_ends_the_waiting(office, ran, serve, mode, action):
    asked = []
    served = serve(wait=30)
    result = served.call("pay", BOB, mode, elicitation_callback=person(action, asked))
    parked(result)
    assert (ran, len(asked)) == ([], 1)
    assert ("approval.withdrawn" in served.types()) == (mode == "legacy")


def test_question_is_taken_back_once_the_approver_has_answered(office, ran, serve):
    """The person at the client never answers, and nobody waits for them."""
    left = []

    async def never(_ctx, _params):
        try:
            await anyio.sleep(60)
        finally:
            left.append(1)

    thread = soon(office)
    result = serve(wait=30).call("pay", BOB, "legacy", elicitation_callback=never)
    thread.join()
    assert (result.structured_content, left) == ({"paid": "bob"}, [1])


def test_client_that_leaves_while_it_waits_withdraws_its_request(office, ran, serve):
    served = serve(wait=30)

    async def leave(client):
        with anyio.move_on_after(0.5):
            await client.call_tool("pay", BOB)

    served.to(leave, "legacy")
    assert "approval.withdrawn" in served.types()
    with open_queue(office.state) as waiting:
        assert all(each.withdrawn for each in waiting)


def test_state_that_a_client_makes_up_changes_nothing(office, ran, serve):
    """It only says that the client has asked its person already."""

    async def forge(client):
        accepted = {"approval": ElicitResult(action="accept", content={})}
        session = client.session
        return await session.call_tool("pay", BOB, input_responses=accepted, request_state="0" * 32)

    result = serve().to(forge, elicitation_callback=person("accept", []))
    parked(result)
    assert ran == []


# --- a call inside a flow ---------------------------------------------------------------------------------------------


@pytest.fixture
def trip(office, ran):
    """Give the office with `trip`, a flow that pays each name of its prompt with `spend`, which asks."""
    spend = {"takes": {}, "gives": {"type": "object"}, "effects": "none", "tags": ["approval-gate"]}
    office.flow("spend", lambda args, run: ran.append(args) or {}, **spend)

    def travel(args, run):
        names = args["prompt"].split()
        run.parallel([Branch(name, lambda own, name=name: own.call("spend", {"to": name})) for name in names])
        return "paid " + args["prompt"]

    office.flow("trip", travel, uses=["spend"])
    return office


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("asks", [False, True])
def test_flow_that_needs_a_person_says_which_requests_wait_and_goes_through_once_they_are_approved(
    trip, ran, serve, mode, asks
):
    served = serve()
    more = {"elicitation_callback": person("accept", [])} if asks else {}
    first = served.call("trip", {"prompt": "bob eve"}, mode, **more)
    waiting = first.meta[ERROR]["approvals"]
    assert (parked(first), len(waiting), ran) == (waiting[-1], 2, [])
    assert all(f"deedbook approvals approve {identity}" in first.content[0].text for identity in waiting)
    assert "begins from the start" in first.content[0].text
    for identity in waiting:
        answered(trip, identity)
    second = served.call("trip", {"prompt": "bob eve"}, mode, **more)
    assert second.structured_content["reply"] == "paid bob eve"
    assert sorted(each["to"] for each in ran) == ["bob", "eve"]


def test_flow_of_a_client_that_can_be_asked_is_performed_once_while_it_waits(trip, ran, serve):
    thread = soon(trip)
    served = serve(wait=30)
    result = served.call("trip", {"prompt": "bob"}, "2026-07-28", elicitation_callback=person("accept", []))
    thread.join()
    assert result.structured_content["reply"] == "paid bob"
    assert (ran, served.types().count("flow.call")) == ([BOB], 2)


def test_request_that_was_answered_is_not_named_by_a_later_failure(trip, serve):
    def stop(args, run):
        run.call("spend", BOB)
        run.context.need_human("no reader agreed")

    trip.flow("trip", stop, uses=["spend"])
    thread = soon(trip)
    result = serve(wait=30).call("trip", {"prompt": "bob"})
    thread.join()
    assert result.meta[ERROR]["code"] == "NEEDS_HUMAN"
    assert "approval" not in result.meta[ERROR]
