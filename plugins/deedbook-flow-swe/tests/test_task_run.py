"""A task goes through the phases of a pipeline: gates, rollbacks, people, and everything that is refused."""

import json
import os

import pytest
from shop import FIRST, PATCHES, SECOND, Shop, answer, build, check, git, outline

from deedbook import Err, Failed, Ok
from deedbook.approvals.keys import KeyRing
from deedbook.format.schema import Schemas, data_folder
from deedbook_approvals.answering import answer as answer_request
from deedbook_flow_swe.running.values import read_value

SPEC = "tasks/task-1/outline/spec.md"
FINDING = ("BLOCKER", "token-in-address", "shop.py:1")


@pytest.fixture
def shop(lab):
    return Shop(lab)


def value(shop, path, schema):
    """Return the value of a file, which fits *schema*."""
    found = read_value(path, shop.text(path))
    assert Schemas.load(data_folder("schemas")).validator(schema).violations(found) == ()
    return found


def test_task_goes_from_the_request_to_a_merged_commit(lab):
    shop = Shop(lab, with_git=True)
    shop.change("contracts/check.yaml", "passed: PASSED.md", "passed: MERGED.md")
    shop.good()
    found = shop.run()
    assert (found.value.state, shop.events("task_ended")[0]["state"]) == ("COMPLETED", "done")
    assert shop.events("task_ended")[0]["commit"] == git(shop.repository, "rev-parse", "HEAD")
    assert git(shop.repository, "log", "--topo-order", "--format=%s", "--no-merges").split("\n") == [
        "feat: unit-002", "feat: unit-001", "first",
    ]  # fmt: skip
    assert "Criteria: AC-001" in git(shop.repository, "log", "--format=%B")
    assert (shop.repository / "shop.py").read_text() == "LIMIT = 2\n"
    completed = [(each["phase"], each["unit"], each["gate"]) for each in shop.events("phase_completed")]
    assert completed == [
        ("outline", None, "APPROVED.md"), ("build", FIRST, None), ("build", SECOND, None),
        ("build", None, "READY.md"), ("check", None, "MERGED.md"),
    ]  # fmt: skip
    assert [each["tests"] for each in shop.tested] == [["tests/test_retry.py"], ["tests/test_auth.py"]]
    facts = {"tests": {"passed": 2, "failed": 0}, "tokens": {"read": 1, "written": 1}}
    assert shop.events("phase_completed")[-1]["facts"] == facts


def test_gates_and_renderings_fit_their_schemas_and_name_what_they_approve(shop):
    shop.good()
    shop.run()
    gate = value(shop, "tasks/task-1/outline/APPROVED.md", "gate_v1")
    assert gate["outputs"] == shop.events("phase_completed")[0]["outputs"]
    assert [*gate["inputs"]] == ["tasks/task-1/META.yaml"]
    state = value(shop, "shared/pipeline-state.yaml", "pipeline_state_v1")
    [row] = state["tasks"]
    assert (row["state"], [each["iterations"] for each in row["phase_history"]]) == ("DONE", [1, 1, 1])
    assert value(shop, "tasks/task-1/META.yaml", "swe_task_v1")["status"] == "DONE"


def test_phase_costs_at_most_twenty_calls_beside_its_commands(lab):
    shop = Shop(lab, with_git=True)
    shop.good()
    shop.run()
    counts, calls = [], 0
    for event in lab.events():
        calls += event.type == "tool.call" and event.payload["tool_name"] != "swe/tests"
        if event.type == "swe.phase_completed":
            counts.append(calls)
            calls = 0
    assert max(counts) <= 20, counts


def test_units_run_in_the_order_of_their_dependencies_and_each_sees_only_itself(shop):
    shop.good()
    shop.run()
    first, second = (each["messages"][-1]["content"] for each in shop.requests if each["role"] == "builder")
    assert SECOND not in first
    assert FIRST not in second


# --- rollbacks --------------------------------------------------------------------------------------------------------


def test_finding_sends_the_task_past_the_phase_that_passes_on_and_only_the_signal_comes_back(shop):
    shop.script(outliner=outline(), builder=[build(FIRST), build(SECOND)] * 2, checker=[check(FINDING), check()])
    found = shop.run()
    assert found.value.state == "COMPLETED"
    assert shop.blocks() == [("check", "rule", "token-in-address", "shop.py:1")]
    [back] = shop.events("rolled_back")
    assert (back["from_phase"], back["to_phase"], back["count"]) == ("check", "build", 1)
    assert back["issue"] == "check:token-in-address:shop.py:1"
    assert shop.asked() == ["outliner", *["builder"] * 2, "checker", *["builder"] * 2, "checker"]
    again = shop.requests[4]["messages"][-1]["content"]
    assert "token-in-address" in again
    assert "tasks/task-1/check/BLOCKED.md" in again
    assert "report.md" not in again
    signal = value(shop, "tasks/task-1/superseded/3-check/BLOCKED.md", "block_signal_v1")
    assert (signal["to_phase"], signal["severity"]) == ("build", "BLOCKER")
    assert not (shop.lab.path / "tasks/task-1/check/BLOCKED.md").exists()
    assert (shop.lab.path / f"tasks/task-1/superseded/1-build/units/{FIRST}/patch.diff").exists()
    assert (shop.lab.path / "tasks/task-1/superseded/2-check/report.md").exists()
    history = value(shop, "shared/pipeline-state.yaml", "pipeline_state_v1")["tasks"][0]["phase_history"]
    assert [(each["iterations"], each["rollbacks"]) for each in history] == [(1, 0), (2, 1), (2, 0)]
    assert "token-in-address" in history[1]["rollback_reason"]
    assert "check → build" in shop.text("shared/rollback-log.md")


def test_only_the_unit_that_failed_and_those_after_it_are_built_again(lab):
    shop = Shop(lab, with_git=True)
    shop.good()
    shop.answers["builder"] = [build(FIRST), build(SECOND), build(SECOND)]
    shop.results = [{}, {"unit_id": SECOND, "exit_code": 1, "failed": 1}]
    found = shop.run()
    assert found.value.state == "COMPLETED", found
    assert shop.blocks() == [("check", "rule", "unit-tests", SECOND)]
    started = [(each["phase"], each["iteration"], each["unit"]) for each in shop.events("phase_started")]
    assert started == [
        ("outline", 1, None), ("build", 1, FIRST), ("build", 1, SECOND), ("check", 1, None),
        ("build", 2, SECOND), ("check", 2, None),
    ]  # fmt: skip
    worktree = lab.path / "tasks/task-1/worktree"
    assert git(worktree, "log", "--format=%s").split("\n") == ["feat: unit-002", "feat: unit-001", "first"]


def test_rollback_through_phases_that_cannot_mend_it_is_recorded_as_a_cascade(shop):
    """A second phase that passes on stands before the one that is blocked."""
    text = shop.text(".system/swe/contracts/check.yaml").replace("phase: check", "phase: audit")
    text = text.replace("task-id}/check/", "task-id}/audit/").replace("on_rollback: pass_on\n", "")
    shop.lab.write("swe/contracts/audit.yaml", text)
    shop.change("pipeline.yaml", "phases: [outline, build, check]", "phases: [outline, build, check, audit]")
    bad = answer({"tasks/task-1/audit/report.md": json.loads(check(FINDING))["outputs"][0]["text"]})
    good = answer({"tasks/task-1/audit/report.md": json.loads(check())["outputs"][0]["text"]})
    shop.script(outliner=outline(), builder=[build(FIRST), build(SECOND)] * 2, checker=[check(), bad, check(), good])
    assert shop.run().value.state == "COMPLETED"
    moves = [(each["from_phase"], each["to_phase"], each["cascade"]) for each in shop.events("rolled_back")]
    assert moves == [("audit", "check", False), ("check", "build", True)]


BAD_REPORT = answer({"tasks/task-1/check/report.md": "---\nfindings: none\n---\n"})


def test_phase_whose_own_file_is_wrong_runs_again_with_its_own_signal(shop):
    shop.script(outliner=outline(), builder=[build(FIRST), build(SECOND)], checker=[BAD_REPORT, check()])
    assert shop.run().value.state == "COMPLETED"
    assert shop.asked() == ["outliner", "builder", "builder", "checker", "checker"]
    again = shop.requests[-1]["messages"][-1]["content"]
    assert "# tasks/task-1/check/BLOCKED.md" in again
    assert "does not fit report_v1" in again
    [back] = shop.events("rolled_back")
    assert (back["from_phase"], back["to_phase"], back["cascade"]) == ("check", "check", False)
    [rewarded] = shop.events("rewarded")
    assert rewarded["reward"]["failure_attribution"]["phase"] == "check"
    assert rewarded["reward"]["phases_rolled_back"] == ["check"]
    last = json.loads(shop.text("metrics/pipeline.jsonl").splitlines()[-1])["metrics"]
    assert last["phase_rollback_rate"] == {"outline": 0.0, "build": 0.0, "check": 0.5}
    assert (shop.lab.path / "tasks/task-1/superseded/1-check/report.md").exists()


def test_third_own_fault_waits_for_a_person(shop):
    shop.script(outliner=outline(), builder=[build(FIRST), build(SECOND)], checker=BAD_REPORT)
    assert shop.run().error.code == "NEEDS_HUMAN"
    assert shop.asked() == ["outliner", "builder", "builder", *["checker"] * 3]


def test_unit_whose_own_file_is_wrong_is_built_again_and_no_other(lab):
    shop = Shop(lab, with_git=True)
    wrong = build(SECOND).replace(f"unit: {SECOND}", f"unit: {FIRST}")
    shop.script(outliner=outline(), builder=[build(FIRST), wrong, build(SECOND)], checker=check())
    assert shop.run().value.state == "COMPLETED"
    assert shop.blocks() == [("build", "rule", "names-its-unit", "note")]
    assert shop.asked() == ["outliner", *["builder"] * 3, "checker"]
    assert "does not hold: the note names another unit" in shop.requests[3]["messages"][-1]["content"]
    assert git(lab.path / "tasks/task-1/worktree", "log", "--format=%s").split("\n") == [
        "feat: unit-002", "feat: unit-001", "first",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mends", "asked"),
    [("earlier", ["builder", "outliner", "builder"]), ("own", ["builder", "builder", "builder"])],
)
def test_contract_says_which_phase_mends_a_broken_rule(shop, mends, asked):
    shop.change("contracts/build.yaml", "schema_version: v1", "schema_version: v2")
    shop.change("contracts/build.yaml", "message: the note", f"mends: {mends}\n    message: the note")
    wrong = build(FIRST).replace(f"unit: {FIRST}", f"unit: {SECOND}")
    shop.script(outliner=outline(), builder=[wrong, build(FIRST), build(SECOND)], checker=check())
    shop.run()
    assert shop.asked()[1:4] == asked


# --- people -----------------------------------------------------------------------------------------------------------


def approver(shop):
    """Declare an approver with a key."""
    [key] = [KeyRing.of(os.environ).create("ada", force=True)]
    shop.lab.write("ada.pub", f"{key.public}\n")
    shop.lab.settings(principals={"ada": {"key": "ada.pub", "roles": ["approver"]}})


def approve(shop, session, *, yes=True):
    """Answer the request that the run waits at, and go on with the run in a new kernel."""
    identity = shop.lab.all("approval.requested", session)[-1].payload["approval"]
    answer_request(shop.lab.path, identity, approve=yes, catalogue=shop.lab.catalogue())
    with shop.lab.kernel() as kernel, kernel.resume(session) as again:
        found = again.go_on()
        if not again.ended:
            again.end(ok=isinstance(found, Ok), reason="done")
        return found


def test_third_block_on_the_same_issue_waits_for_a_person_and_goes_on_days_later(shop):
    approver(shop)
    shop.script(outliner=outline(), builder=[build(FIRST), build(SECOND)] * 3, checker=[*[check(FINDING)] * 3, check()])
    found = shop.run()
    session = shop.lab.ledger().parent.name
    assert isinstance(found, Err)
    assert found.error.code == "NEEDS_HUMAN"
    assert [each["count"] for each in shop.events("rolled_back")] == [1, 2]
    assert shop.events("escalated")[0]["issue"] == "check:token-in-address:shop.py:1"
    assert "BLOCKED_AWAITING_HUMAN" in shop.text("shared/pipeline-state.yaml")
    assert "token-in-address" in shop.text("shared/human-review-queue.md")
    found = approve(shop, session)
    assert found.value.state == "COMPLETED"
    assert [each["decision"] for each in shop.events("answered")] == ["go-on"]
    assert "task-1" not in shop.text("shared/human-review-queue.md")


def test_first_phase_has_none_before_it_and_waits_for_a_person(shop):
    approver(shop)
    question = {"reason": "which limit?", "missing": ["the limit"]}
    shop.good()
    shop.answers["outliner"] = [answer({}, blocked=question), outline()]
    assert shop.run().error.code == "NEEDS_HUMAN"
    session = shop.lab.ledger().parent.name
    assert shop.blocks() == [("outline", "agent", None, None)]
    assert shop.events("rolled_back") == []
    assert "which limit?" in shop.text("tasks/task-1/outline/BLOCKED.md")
    assert approve(shop, session).value.state == "COMPLETED"
    assert shop.events("phase_completed")[0]["iteration"] == 2


def test_model_that_cannot_be_reached_waits_for_a_person_and_sends_nothing_back(shop):
    """The work of the phases before is not lost, and no agent is blamed."""
    approver(shop)
    shop.good()
    left = [Failed("PROVIDER_ERROR", "the endpoint is down", retryable=True)]

    def fail_once(request):
        if left:
            raise left.pop()
        return check()

    shop.answers["checker"] = [fail_once]
    assert shop.run().error.code == "NEEDS_HUMAN"
    session = shop.lab.ledger().parent.name
    assert shop.blocks() == [("check", "model", "provider_error", None)]
    assert shop.events("rolled_back") == []
    assert approve(shop, session).value.state == "COMPLETED"
    assert [each["phase"] for each in shop.events("phase_completed") if each["iteration"] == 2] == ["check"]


def test_prompt_over_its_budget_waits_for_a_person_and_no_phase_works_again(shop):
    """No earlier phase can mend it, so nothing is sent back; go-on asks the same question again."""
    approver(shop)
    shop.change("contracts/check.yaml", "tokens: 2500", "tokens: 150")
    shop.good()
    assert shop.run().error.code == "NEEDS_HUMAN"
    session = shop.lab.ledger().parent.name
    assert shop.blocks() == [("check", "input", "budget", None)]
    assert (shop.events("rolled_back"), shop.asked()) == ([], ["outliner", "builder", "builder"])
    reason = shop.events("escalated")[0]["reason"]
    assert "the budget is 150" in reason
    assert "go-on cannot help" in reason
    assert "its largest parts are check (" in reason
    assert approve(shop, session).error.code == "NEEDS_HUMAN"
    assert [each[1:3] for each in shop.blocks()] == [("input", "budget")] * 2
    assert (shop.events("rolled_back"), shop.asked()) == ([], ["outliner", "builder", "builder"])


def test_person_who_refuses_stops_the_task(shop):
    approver(shop)
    shop.good()
    shop.answers["outliner"] = [answer({}, blocked={"reason": "which limit?", "missing": []})]
    shop.run()
    session = shop.lab.ledger().parent.name
    assert approve(shop, session, yes=False).value.state == "HALTED"
    assert shop.events("task_ended") == [{"task_id": "task-1", "state": "halted", "commit": None}]


# --- inputs -----------------------------------------------------------------------------------------------------------


def edit(shop, path, text, given):
    """Return an answer of an agent that also changes a file behind the runner's back."""

    def respond(request):
        place = shop.lab.path / path
        place.unlink() if text is None else place.write_text(text)
        return given

    return respond


@pytest.mark.parametrize(
    ("text", "rule"),
    [(None, None), ("---\nintent: other\n---\n", "digest")],
    ids=["missing", "changed after its gate"],
)
def test_input_that_no_gate_approved_blocks_and_no_model_is_asked(shop, text, rule):
    shop.script(
        outliner=[outline(), outline()],
        builder=[build(FIRST), edit(shop, SPEC, text, build(SECOND)), build(FIRST), build(SECOND)],
        checker=check(),
    )
    assert shop.run().value.state == "COMPLETED"
    assert shop.blocks() == [("check", "input", rule, SPEC), ("build", "input", rule, SPEC)]
    assert shop.asked()[:4] == ["outliner", "builder", "builder", "outliner"]


def test_link_out_of_the_tree_is_no_input(shop, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")

    def respond(request):
        place = shop.lab.path / SPEC
        place.unlink()
        place.symlink_to(secret)
        return build(SECOND)

    shop.good()
    shop.answers["builder"] = [build(FIRST), respond]
    shop.run()
    assert shop.blocks()[0][:2] == ("check", "input")
    assert all("secret" not in each["messages"][-1]["content"] for each in shop.requests)


def test_block_after_the_merge_goes_to_a_person_and_not_back(lab):
    shop = Shop(lab, with_git=True)
    approver(shop)
    shop.change("contracts/build.yaml", "passed: READY.md", "passed: MERGED.md")
    shop.good()
    shop.script(**{**shop.answers, "checker": [check(FINDING), check()]})
    found = shop.run()
    assert (found.error.code, shop.events("rolled_back")) == ("NEEDS_HUMAN", [])
    merged = git(shop.repository, "rev-parse", "HEAD")
    assert git(shop.repository, "log", "-1", "--format=%s") == "merge: Raise the limit"
    assert approve(shop, lab.ledger().parent.name).value.state == "COMPLETED"
    assert shop.asked() == ["outliner", "builder", "builder", "checker", "checker"]
    assert shop.events("task_ended")[0]["state"] == "done"
    assert git(shop.repository, "rev-parse", "HEAD") == merged


# --- a repository that moves on ---------------------------------------------------------------------------------------


@pytest.fixture
def merging(lab):
    """Return a shop with a repository, whose last phase merges; every agent gives a good answer."""
    made = Shop(lab, with_git=True)
    made.change("contracts/check.yaml", "passed: PASSED.md", "passed: MERGED.md")
    made.good()
    return made


def commit_of_others(shop, path, text):
    """Commit a file in the repository, as a person or another task would."""
    (shop.repository / path).write_text(text)
    git(shop.repository, "add", "-A")
    git(shop.repository, "commit", "-q", "-m", f"change {path}")


def meanwhile(shop, path, text, given):
    """Return an answer of an agent; others commit a file before it is given for the first time."""
    left = [1]

    def respond(request):
        if left:
            left.clear()
            commit_of_others(shop, path, text)
        return given

    return respond


def test_change_is_built_on_the_commit_that_the_repository_has_then(merging):
    merging.answers["outliner"] = [meanwhile(merging, "news.txt", "new\n", outline())]
    assert merging.run().value.state == "COMPLETED"
    assert merging.blocks() == []
    subjects = git(merging.repository, "log", "--topo-order", "--format=%s").split("\n")
    assert subjects == ["merge: Raise the limit", "feat: unit-002", "feat: unit-001", "change news.txt", "first"]


def test_phase_that_merges_checks_the_change_with_the_commits_of_others(merging):
    merging.answers["builder"] = [build(FIRST), meanwhile(merging, "news.txt", "new\n", build(SECOND))]
    assert merging.run().value.state == "COMPLETED"
    assert (merging.blocks(), merging.asked()) == ([], ["outliner", "builder", "builder", "checker"])
    subjects = git(merging.repository, "log", "--topo-order", "--format=%s").split("\n")
    assert subjects[:2] == ["merge: Raise the limit", "merge: the last commit of repos/shop"]
    assert (merging.repository / "shop.py").read_text() == "LIMIT = 2\n"
    assert (merging.repository / "news.txt").read_text() == "new\n"
    assert (merging.lab.path / "tasks/task-1/worktree/news.txt").exists()


def test_change_in_conflict_is_built_again_on_the_commits_of_others(merging):
    other = PATCHES[FIRST].replace("LIMIT = 1", "LIMIT = 7")
    second = meanwhile(merging, "shop.py", "LIMIT = 7\n", build(SECOND))
    merging.answers["builder"] = [build(FIRST), second, build(FIRST, other), build(SECOND)]
    assert merging.run().value.state == "COMPLETED"
    assert merging.blocks() == [("check", "input", "merge-conflict", "shop.py")]
    assert merging.asked() == ["outliner", *["builder"] * 4, "checker"]
    assert "others have committed changes of shop.py" in merging.requests[3]["messages"][-1]["content"]
    assert (merging.repository / "shop.py").read_text() == "LIMIT = 2\n"
    reward = merging.events("rewarded")[0]["reward"]
    assert (reward["phases_rolled_back"], reward["failure_verified"]) == ([], False), "nobody is at fault"


def test_repository_that_moves_on_during_the_merging_phase_lets_only_that_phase_run_again(merging):
    merging.answers["checker"] = [meanwhile(merging, "news.txt", "new\n", check())]
    assert merging.run().value.state == "COMPLETED"
    assert merging.blocks() == [("check", "input", "repository", None)]
    assert merging.asked() == ["outliner", "builder", "builder", "checker", "checker"]
    assert (merging.repository / "news.txt").exists()


def test_repository_with_work_of_others_in_its_files_waits_for_a_person_who_takes_it_away(merging):
    approver(merging)
    note = merging.repository / "note.txt"
    note.write_text("in work\n")
    assert merging.run().error.code == "NEEDS_HUMAN"
    assert merging.blocks() == [("check", "input", "repository", None)]
    assert "note.txt differs from the last commit" in merging.events("escalated")[0]["reason"]
    assert merging.events("rolled_back") == []
    note.unlink()
    assert approve(merging, merging.lab.ledger().parent.name).value.state == "COMPLETED"
    assert merging.asked() == ["outliner", "builder", "builder", "checker", "checker"]


def test_signal_to_mend_comes_before_what_a_budget_leaves_out_also_if_the_scope_names_it(shop):
    shop.change("contracts/outline.yaml", 'exclude: ["tasks/{task-id}/build/", ', "exclude: [")
    shop.change("contracts/outline.yaml", "include: [", 'include: ["tasks/{task-id}/build/BLOCKED.md", ')
    shop.good()
    shop.script(
        **{**shop.answers, "builder": [build(FIRST, more={"shop.py": "LIMIT = 3"}), build(FIRST), build(SECOND)]}
    )
    shop.run()
    prompt = [each["messages"][-1]["content"] for each in shop.requests if each["role"] == "outliner"][-1]
    assert prompt.count("# tasks/task-1/build/BLOCKED.md") == 1
    assert prompt.index("# tasks/task-1/build/BLOCKED.md") < prompt.index("# Skill: ")
    [denied] = shop.events("phase_blocked")
    assert denied["reason"] == "TOOL_NOT_ALLOWED: the contract does not let builder write shop.py"
