"""A cycle whose process died, or that waits for a person, goes on where it stood and does nothing twice."""

import itertools
import json
import os

import pytest
from cycles import write_cycle, write_persona
from dying import die

from deedbook import ALLOW, Err, Ok, ask
from deedbook.approvals.keys import KeyRing
from deedbook_approvals.answering import answer

FLOW = "workflow/check"
TYPES = ["workflow.started", "workflow.phase_advanced", "workflow.completed"]


@pytest.fixture
def shop(lab, tmp_path):
    """Give a lab with a cycle of two phases and two personas, whose tool adds a line to a file for each effect."""
    effects = tmp_path / "effects"

    def act(args, ctx):
        with effects.open("a") as file:
            file.write(f"{args['by']} {args['in']}\n")
        return {"done": True}

    def examine(args, run):
        phase = args["prompt"].split("\n\n")[1]
        run.call("act", {"by": run.skill.name, "in": phase})
        return json.dumps({"findings": []})

    lab.tool("act", act, effects="write")
    lab.flow("examine", examine)
    for name in ("ada", "ben"):
        write_persona(lab, f"reviewer/{name}", "act")
    both = ["reviewer/ada", "reviewer/ben"]
    write_cycle(lab, {"id": "first", "agents_invoked": both}, {"id": "second", "agents_invoked": both})
    lab.effects = lambda: sorted(effects.read_text().splitlines()) if effects.exists() else []
    return lab


ALL = [f"reviewer-{who} {phase}" for who in ("ada", "ben") for phase in ("first", "second")]


def resume(lab, session, **options):
    with lab.kernel() as kernel, kernel.resume(session, **options) as again:
        got = again.go_on()
        if not again.ended:
            again.end(ok=isinstance(got, Ok), reason="done")
        return got


def run_and_die(lab, at):
    """Run the cycle in a process that dies after its event number *at*; return the session's id."""
    child = os.fork()
    if not child:
        try:
            with lab.session("run") as session:
                count = itertools.count(1)
                session.ledger.subscribe(lambda _: die() if next(count) == at else None)
                session.run("look", FLOW)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    [found] = os.listdir(lab.state / "sessions")
    return found


@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize("at", range(2, 70))
def test_cycle_whose_process_died_goes_on_where_it_stood(shop, at):
    session = run_and_die(shop, at)
    if "agent.reply" in shop.types(session):
        return
    got = resume(shop, session)
    effects = shop.effects()
    assert len(effects) == len({*effects}), "nothing is done twice"
    if isinstance(got, Err):  # an effect was lost: nobody knows whether it happened
        assert got.error.code == "NEEDS_HUMAN", got.error
        return
    assert (got.value.state, effects) == ("COMPLETED", ALL)
    assert [kind for kind in shop.types(session) if kind.startswith("workflow.")] == TYPES


def test_approval_inside_a_fan_out_is_answered_over_a_restart(shop):
    shop.policy("people", lambda call: ask("large") if call.args.get("by") == "reviewer-ben" else ALLOW)
    [key] = [KeyRing.of(os.environ).create("ada", force=True)]
    shop.write("ada.pub", f"{key.public}\n")
    shop.settings(principals={"ada": {"key": "ada.pub", "roles": ["approver"]}})
    with shop.session("run") as session:
        assert session.run("look", FLOW).error.code == "NEEDS_HUMAN"
    assert shop.effects() == ["reviewer-ada first"]
    for _ in range(2):
        identity = shop.all("approval.requested", session)[-1].payload["approval"]
        answer(shop.path, identity, approve=True, catalogue=shop.catalogue())
        got = resume(shop, session.id)
    assert (got.value.state, shop.effects()) == ("COMPLETED", ALL)
    assert [kind for kind in shop.types(session) if kind.startswith("workflow.")] == TYPES
