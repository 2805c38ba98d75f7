"""`deedbook workflow run|status|resume`, and the cycles in `deedbook replay`."""

import json
from typing import Any

import pytest
from commandline import Place
from cycles import finding, write_cycle, write_persona

from deedbook_flow_workflow.progress import CycleProgress


@pytest.fixture
def shop(place: Any) -> Place:
    """Return the example workspace; its second phase cannot give the artifact that it promises."""
    return Place(place("two-phases"))


def test_run_ends_with_the_verdict_and_status_shows_how_it_got_there(shop):
    (shop.path / "page.md").write_text("hello\n")
    told = shop.here("workflow", "run", "check", "check page.md", status=1)
    assert told.out.startswith("halted: settle ran 2 times in a row")
    [cycle] = shop.here("workflow", "status", "last", "--json", status=0).fits("output_workflow_status_v1")["cycles"]
    assert (cycle["cycle"], cycle["verdict"], cycle["phase"]) == ("check", "halted", "settle")
    assert cycle["visited"] == ["look", "settle"]
    assert [(each["phase"], each["generation"]) for each in cycle["runs"]] == [
        ("look", 1), ("settle", 1), ("settle", 2),
    ]  # fmt: skip
    shown = shop.here("workflow", "status", "last", status=0).out.splitlines()
    assert shown[0] == "check  halted  in settle, through look → settle"
    assert "reviewer-style: reported" in shown[1]
    state = shop.here("replay", "last", "--json", status=0).fits("output_replay_v1")
    assert state["workflows"] == [{key: cycle[key] for key in state["workflows"][0]}]
    assert "check begins with look" in shop.here("replay", "last", status=0).out


@pytest.mark.parametrize(
    ("edits", "state", "status"),
    [
        ([], "HALTED", 1),
        ([("phases/settle.md", "artifact: lesson\n", "")], "COMPLETED", 0),
        ([("phases/look.md", "p0_unresolved > 10", "p0_unresolved == 0")], "FAILED", 1),
    ],
    ids=["halted", "done", "abort"],
)
def test_exit_status_tells_done_from_the_other_verdicts(shop, edits, state, status):
    """It is the same for `workflow run`, `run --flow` and `call`."""
    (shop.path / "page.md").write_text("hello\n")
    for name, old, new in edits:
        file = shop.path / ".system/workflows" / name
        file.write_text(file.read_text().replace(old, new))
    for words in (
        ("workflow", "run", "check", "check page.md"),
        ("run", "--flow", "workflow/check", "check page.md"),
        ("call", "workflow/check", "request=check page.md"),
    ):
        told = shop.here(*words, "--json", status=status).json
        assert (told["state"], told["ok"]) == (state, status == 0), words


def test_run_refuses_a_flow_that_cannot_answer(shop):
    assert "'file-read' is no flow that keeps a context" in shop.here("run", "--flow", "file-read", "x", status=1).err


def test_sealed_parts_are_shown_by_their_size(shop):
    """A reason with a card number is sealed in the ledger, and the status shows that."""
    shop.configure("profile: local\n", "profile: local\nseal: [{detect: card}]\n")
    told = shop.here("workflow", "run", "check", "check 4111111111111111.md", status=1)
    assert told.out
    [cycle] = shop.here("workflow", "status", "last", "--json", status=0).fits("output_workflow_status_v1")["cycles"]
    reasons = [row["reason"] for each in cycle["runs"] for row in each["personas"]]
    assert any(each.startswith("[sealed, ") for each in reasons)
    assert "[sealed, " in shop.here("workflow", "status", "last", status=0).out


def test_unknown_cycle_and_empty_request_are_refused(shop):
    assert (
        "there is no cycle 'chek'; did you mean \"check\"?" in shop.here("workflow", "run", "chek", "x", status=2).err
    )
    assert "the request is empty" in shop.here("workflow", "run", "check", " ", status=2).err


def test_ended_cycle_is_not_resumed(shop):
    shop.here("workflow", "run", "check", "check page.md", status=1)
    assert "SESSION_ENDED" in shop.here("workflow", "resume", "last", status=1).err
    assert shop.here("run", "nothing", status=1).err
    assert shop.here("workflow", "status", "last", status=0).out == "this session ran no cycle\n"


def test_progress_names_each_phase_and_each_persona(lab):
    def examine(args, run):
        if run.skill.name == "reviewer-ben":
            raise ValueError("no idea")
        return json.dumps({"findings": [finding()]})

    lab.flow("examine", examine)
    for name in ("reviewer/ada", "reviewer/ben"):
        write_persona(lab, name)
    write_cycle(lab, {"id": "first", "agents_invoked": ["reviewer/ada", "reviewer/ben"]},
                loop_bounds={"max_generations": 1})  # fmt: skip
    lines = []
    with lab.session() as session:
        session.ledger.subscribe(CycleProgress(lines.append))
        session.call("workflow/check", {"request": "look"})
    assert lines[:3] == ["· phase    first", "· asks     reviewer-ada", "· asks     reviewer-ben"]
    assert min(lines[3:5]) == "· answers  reviewer-ada"
    assert max(lines[3:5]).startswith("· fails    reviewer-ben: ")
    assert lines[5:] == [
        "· came to  first (1): pass, 1 findings, 0 suppressed, 0 P0",
        "· held     no answer counts of reviewer-ben, and no policy allows that",
        "· verdict  halted",
    ]
