"""The mode of a session: what hooks, policies and flows see, what is recorded, and what an approval binds."""

import pytest
from persons import approving

from deedbook import ALLOW, Err, Ok, ask, deny
from deedbook.contract.flow import MODES
from deedbook.format.errors import DeedbookError
from deedbook_approvals.answering import answer


@pytest.fixture
def shop(lab):
    lab.tool("pay", lambda args, ctx: {"paid": True}, effects="write")
    return lab


@pytest.mark.parametrize("mode", MODES)
def test_policies_see_the_mode_and_calls_are_judged_again_under_it(shop, mode):
    shop.policy("writers", lambda call: deny("nothing is changed") if call.mode == "report-only" else ALLOW)
    with shop.session(mode=mode) as session:
        result = session.call("pay", {})
    assert isinstance(result, Err) is (mode == "report-only")
    assert shop.payload("session.start").get("mode", "interactive") == mode


def test_conditions_in_yaml_see_the_mode(shop):
    shop.write(
        "policies/reports.yaml",
        "schema_version: v1\nid: reports\nkind: rules\nmatch: {abilities: [pay]}\n"
        "rules:\n  - {match: {abilities: pay}, when: call.mode == 'report-only', then: deny}\ndefault: allow\n",
    )
    with shop.session(mode="report-only") as session:
        assert isinstance(session.call("pay", {}), Err)
    with shop.session() as session:
        assert isinstance(session.call("pay", {}), Ok)


def test_flows_see_the_mode(shop):
    seen = []
    shop.flow("work", lambda args, run: seen.append(run.mode) or "done")
    with shop.session("run", mode="headless") as session:
        assert isinstance(session.run("hello"), Ok)
    assert seen == ["headless"]


def test_approval_binds_the_mode(shop):
    approving(shop)
    shop.policy("people", lambda call: ask("a payment"))
    with shop.session(mode="headless") as session:
        session.call("pay", {})
    request = shop.payload("approval.requested", session)
    assert request["mode"] == "headless"
    answer(shop.path, request["approval"], approve=True, catalogue=shop.catalogue())
    with shop.session() as session:
        assert isinstance(session.call("pay", {}), Err), "the answer was about a headless session"
    with shop.session(mode="headless") as session:
        assert isinstance(session.call("pay", {}), Ok)


def test_unknown_mode_is_refused(shop):
    with pytest.raises(DeedbookError, match="report-only"), shop.session(mode="report"):
        pass
