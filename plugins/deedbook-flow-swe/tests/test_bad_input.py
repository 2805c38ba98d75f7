"""What an agent gives that must not count: each is stopped, attributed, and changes nothing outside the task."""

import json

import pytest
from shop import FIRST, PATCHES, SECOND, Shop, answer, build, check, outline

BASE = f"tasks/task-1/build/units/{FIRST}"
GOOD = PATCHES[FIRST]


@pytest.fixture
def shop(lab):
    made = Shop(lab)
    made.good()
    return made


def run_once(shop, **answers):
    """Run the task with the first answers of some roles replaced; all else outside its folder stays as it is."""
    for role, given in answers.items():
        shop.answers[role] = [given, *shop.answers[role]]
    before = shop.hashes()
    found = shop.run()
    assert shop.hashes("tasks/task-1/", "shared/", "metrics/", "agents/", "world/") == before
    return found


# --- files that the contract does not allow ---------------------------------------------------------------------------


@pytest.mark.campaign(keep=4)
@pytest.mark.parametrize(
    "path",
    [
        "tasks/task-1/check/PASSED.md",
        "tasks/task-1/check/passed.md",
        "tasks/task-1/check/HUMAN_REVIEW_REQUIRED.md",
        "tasks/task-1/outline/spec.md",
        f"{BASE}/patch.diff",
        "tasks/task-2/check/report.md",
        "tasks/task-1/check/../../../shop.py",
        "repos/shop/shop.py",
        ".system/deedbook.yaml",
        "shared/pipeline-state.yaml",
    ],
)
def test_file_outside_the_contract_is_denied_recorded_and_attributed(shop, path):
    bad = answer({"tasks/task-1/check/report.md": json.loads(check())["outputs"][0]["text"], path: "mine"})
    shop.answers["builder"] = [build(FIRST), build(SECOND)] * 2
    assert run_once(shop, checker=bad).value.state == "COMPLETED"
    [denied] = shop.events("denied")
    assert (denied["phase"], denied["agent"], denied["ability"]) == ("check", "checker", "swe/write")
    assert shop.blocks() == [("check", "denied", "write", path)]
    assert not any(path.startswith("tasks/task-1/superseded") for path in shop.events("phase_completed")[0]["outputs"])


def test_denial_of_a_unit_names_the_unit(shop):
    shop.answers["builder"] = [build(FIRST), build(SECOND)]
    bad = build(FIRST, more={f"tasks/task-1/build/units/{SECOND}/patch.diff": GOOD})
    run_once(shop, builder=bad)
    assert [(each["agent"], each["unit"]) for each in shop.events("denied")] == [("builder", FIRST)]


# --- answers that are none --------------------------------------------------------------------------------------------


@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize("bad", ["no JSON", "{", "[]", "{}", answer({}), answer({"tasks/task-1/check/other.md": "x"})])
def test_answer_that_is_none_is_told_once_and_then_blocks(shop, bad):
    shop.answers["checker"] = [bad, bad, check()]
    shop.answers["builder"] = [build(FIRST), build(SECOND)] * 2
    assert shop.run().value.state == "COMPLETED"
    assert [each[:3] for each in shop.blocks()] == [("check", "agent", "malformed_agent_message")]


def test_answer_that_is_corrected_blocks_nothing(shop):
    assert run_once(shop, checker="no JSON").value.state == "COMPLETED"
    assert shop.blocks() == []
    assert "refused" in shop.requests[-1]["messages"][-1]["content"]


@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize(
    ("text", "rule"),
    [("---\nfindings: [\n---\n", "malformed"), ("---\nschema_version: v1\n---\n", "report_v1"), ("", "report_v1")],
)
def test_output_that_does_not_fit_its_schema_blocks(shop, text, rule):
    shop.answers["builder"] = [build(FIRST), build(SECOND)] * 2
    assert run_once(shop, checker=answer({"tasks/task-1/check/report.md": text})).value.state == "COMPLETED"
    assert [each[::2] for each in shop.blocks()] == [("check", rule)]


# --- outputs that lie -------------------------------------------------------------------------------------------------


def test_only_what_the_test_runner_reports_counts(shop):
    """The report finds nothing, and the tests fail."""
    shop.answers["builder"] = [build(FIRST), build(SECOND)] * 2
    shop.results = [{"exit_code": 1, "failed": 3}]
    assert run_once(shop).value.state == "COMPLETED"
    [block] = shop.events("phase_blocked")
    assert (block["rule"], block["severity"], block["place"]) == ("unit-tests", "BLOCKER", FIRST)
    assert [each["facts"]["tests"] for each in shop.events("phase_completed") if each["phase"] == "check"] == [
        {"passed": 2, "failed": 0}
    ]


def test_result_of_a_command_that_does_not_fit_its_schema_blocks(shop):
    shop.answers["builder"] = [build(FIRST), build(SECOND)] * 2
    shop.results = [{"passed": "all of them"}]
    run_once(shop)
    assert shop.blocks()[0][:3] == ("check", "rule", "unit-tests")


# --- patches ----------------------------------------------------------------------------------------------------------


@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize(
    "patch",
    [
        GOOD.replace("shop.py", "../shop.py"),
        GOOD.replace("shop.py", ".git/config"),
        "diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc/passwd\n",
        "diff --git a/x.png b/x.png\nBinary files a/x.png and b/x.png differ\n",
        "--- /dev/null\n+++ b/big.py\n@@ -0,0 +1,6000 @@\n" + "+x = 1\n" * 6000,
        "no patch",
    ],
    ids=["outside", "git", "link", "binary", "huge", "none"],
)
def test_patch_that_is_refused_blocks_its_unit(shop, patch):
    shop.answers["outliner"] = [outline(), outline()]
    shop.answers["builder"] = [build(FIRST), build(SECOND)]
    run_once(shop, builder=build(FIRST, patch))
    assert shop.blocks()[0] == ("build", "rule", "patch", f"{BASE}/patch.diff")
    assert shop.events("phase_blocked")[0]["unit"] == FIRST


@pytest.mark.parametrize(
    ("patch", "rule"),
    [(GOOD.replace("LIMIT = 1", "LIMIT = 7"), "patch-applies"), (PATCHES[SECOND], "patch")],
    ids=["does not apply", "outside its unit"],
)
def test_patch_that_does_not_fit_the_repository_or_the_unit_leaves_it_as_it_is(lab, patch, rule):
    shop = Shop(lab, with_git=True)
    shop.good()
    work = json.loads(outline())["outputs"][1]["text"].replace("size: small,", "size: small, files: [shop.py],", 1)
    shop.change(
        "schemas/work_v1.json", '"tests": {', '"files": {"type": "array", "items": {"type": "string"}}, "tests": {'
    )
    spec = json.loads(outline())["outputs"][0]["text"]
    good = answer({"tasks/task-1/outline/spec.md": spec, "tasks/task-1/outline/work.md": work})
    shop.answers["outliner"] = [good]
    run_once(shop, builder=build(FIRST, patch))
    assert shop.blocks() == [("build", "rule", rule, f"{BASE}/patch.diff")]
    assert shop.events("task_ended")[0]["state"] == "done"
