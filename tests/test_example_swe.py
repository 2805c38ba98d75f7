"""The example of the pipeline: its page is run once, and each phase once more with a damaged answer of its agent.

While the page runs, the workspace is copied at the beginning of each phase. That is what a killed process would leave
at this moment, so another process goes on in the copy: only the damaged phase runs again. A default run damages the
answers of three phases, a campaign those of all.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree, rmtree, which
from typing import Any

import attrs
import pytest
from commandline import ROOT, SCHEMAS, Place
from dying import die
from test_docs import shell_in

from deedbook.contract import Event, Failed
from deedbook.format.reader import read
from deedbook_audit.verify import verify_file
from deedbook_flow_swe.commands import tasks
from deedbook_testing.pages import blocks, steps
from deedbook_tool_sandbox.bubblewrap import Bubblewrap

EXAMPLE = ROOT / "examples/swe"
TASK = "task-2026-001"
OWN = (".deedbook/", ".config/", "agents/", "answers/", "shared/", "metrics/", "world/", f"tasks/{TASK}/")
"""What a run of the task may change: the record, the task, and the pages that the runner renders."""
STAND_IN = """#!{python}
import sys
sys.path[:0] = [{tests!r}]
sys.dont_write_bytecode = True
if sys.argv[1:3] in (["swe", "run"], ["swe", "resume"]):
    import test_example_swe
    test_example_swe.copy_at_phases({snapshots!r})
    from deedbook.cli.program import main
    sys.exit(main())
import os
os.execv({command!r}, ["deedbook", *sys.argv[1:]])
"""


def has_bubblewrap() -> bool:
    """Return whether the sandbox finds bubblewrap: that of the system, or that of the extra `test`."""
    try:
        Bubblewrap.find(None)
    except Failed:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_bubblewrap(), reason="there is no bubblewrap")


def copy_at_phases(snapshots: str) -> None:
    """Copy the workspace whenever a phase begins; the last run of a phase counts."""
    tell = tasks._tell

    def copy(task: str, event: Event) -> None:
        if event.type == "swe.phase_started" and event.payload["unit"] in (None, "unit-002"):
            target = Path(snapshots, str(event.payload["phase"]))
            rmtree(target, ignore_errors=True)
            copytree(".", target, symlinks=True)
        tell(task, event)

    tasks._tell = copy


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the page once, for all processes of this test run; return the folder with the project and its copies."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "swe-example"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            play(folder)
            (folder / "played").touch()
    assert (folder / "played").exists(), "the page failed in another process"
    return folder


def play(folder: Path) -> None:
    project, snapshots, commands = folder / "project", folder / "snapshots", folder / "bin"
    copytree(EXAMPLE, project)
    snapshots.mkdir()
    commands.mkdir()
    with shell_in(project) as shell:
        given = {
            "python": sys.executable, "tests": str(Path(__file__).parent), "snapshots": str(snapshots),
            "command": which("deedbook", path=shell.env["PATH"]),
        }  # fmt: skip
        (commands / "deedbook").write_text(STAND_IN.format(**given))
        (commands / "deedbook").chmod(0o755)
        shell.env |= {"PATH": f"{commands}:{shell.env['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
        for command, shown in [
            step for block in blocks(EXAMPLE / "README.md") if block.language == "console" for step in steps(block)
        ]:
            shell.run(command, shown)


def events(project: Path) -> list[Event]:
    """Return the events of the session in which the task runs."""
    return list(read(ledger(project)))


def ledger(project: Path) -> Path:
    """Return the ledger of the session in which the task runs."""
    [found] = [
        path for path in project.glob(".deedbook/sessions/*/.events.jsonl") if b"swe.task_started" in path.read_bytes()
    ]
    return found


def payloads(project: Path, kind: str) -> list[Any]:
    return [each.payload for each in events(project) if each.type == f"swe.{kind}"]


def test_page_takes_the_task_from_the_queue_to_a_merged_commit(played: Path):
    project = played / "project"
    ledgers = list(project.glob(".deedbook/*/**/.events.jsonl"))
    assert len(ledgers) > 1
    assert all(verify_file(path, schemas=SCHEMAS).sound for path in ledgers)
    [ended] = payloads(project, "task_ended")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project / "repos/textkit", capture_output=True, check=True)
    assert (ended["state"], ended["commit"]) == ("done", head.stdout.decode().strip())
    assert [(each["from_phase"], each["to_phase"]) for each in payloads(project, "rolled_back")] == [
        ("architecture", "requirements"), ("implementation", "planning"), ("verification", "implementation"),
    ]  # fmt: skip
    [denied] = payloads(project, "denied")
    assert (denied["phase"], denied["agent"], denied["unit"]) == ("implementation", "builder-agent", "unit-001")
    assert [(each["phase"], each["decision"]) for each in payloads(project, "answered")] == [("security", "go-on")]


def test_each_file_of_answers_says_who_made_it():
    for path in EXAMPLE.glob("answers/*.yaml"):
        assert path.read_text(encoding="utf-8").startswith("made_by: written by hand"), path.name


def test_builder_gets_the_signal_and_not_the_report(played: Path):
    prompts = [
        each.payload["request"]["messages"][-1]["content"]
        for each in events(played / "project")
        if each.type == "llm.request" and each.payload["request"]["role"] == "builder-agent"
    ]
    assert f"# tasks/{TASK}/verification/BLOCKED.md" in prompts[-1]
    assert "Hello becomes hel-2" not in prompts[-1]  # what the reviewer noted
    assert "Cut only what is over the limit" not in prompts[-1]  # what the reviewer suggested
    assert all("slugify" not in each.partition("# repos/")[2] for each in prompts)


def test_retrospective_of_a_task_with_the_same_tags_sees_the_evidence(played: Path):
    """The prompt is that of the task itself, made again after its end."""
    found = Place(played / "project").here("swe", "context", TASK, "retrospective", "--json", status=0)
    parts = {part["path"] for part in found.fits("output_swe_context_v1")["parts"]}
    assert "world/reward-evidence/number-behind-the-shortened-text-pattern.yaml" in parts


FACTS = {
    "requirements": ["META.yaml", "spec-driven-development.md"],
    "architecture": ["spec.md", "acceptance-criteria.md", "constraints.md"],
    "planning": ["acceptance-criteria.md", "interfaces.md", "adr-001.md", "risk-analysis.md"],
    "implementation": ["criteria", "interfaces.md", "adr-001.md", "BLOCKED.md", "unique.py", "test_unique.py"],
    "verification": ["acceptance-criteria.md", "work-breakdown.md", "patch.diff", "self-check.md", "unit-tests.json",
                     "integration-tests.json", "lint.json"],
    "security": ["work-breakdown.md", "patch.diff", "risk-analysis.md", "secrets-scan.json"],
    "integration": ["PASSED.md", "CLEARED.md", "execution-plan.md", "regression-results.json", "repository-head.json"],
    "retrospective": ["rollback-log.md", "BLOCKED.md", "HUMAN_REVIEW_REQUIRED.md", "reviewer-report.md", "APPROVED.md",
                      "READY_FOR_VERIFICATION.md", "PASSED.md", "CLEARED.md", "MERGED.md"],
}  # fmt: skip
"""What the agent of each phase has to know for its answer, in the last prompt of the phase."""


def test_each_prompt_has_every_fact_that_its_rules_compare(played: Path):
    made = payloads(played / "project", "context_assembled")
    assert [each for each in made if each["tokens"] > each["budget"]] == []
    last = {each["phase"]: {part["path"].rpartition("/")[2] for part in each["parts"]} for each in made}
    assert [(phase, name) for phase, names in FACTS.items() for name in names if name not in last[phase]] == []
    full = {each["phase"] for each in made for left in each["left_out"] if left.endswith(" (budget)")}
    assert full == {"retrospective"}  # which has all files of the task in its scope


def test_prompts_say_what_tools_and_gates_say(played: Path):
    said: dict[str, str] = {}
    for each in events(played / "project"):
        if each.type == "llm.request":
            said[each.payload["request"]["role"]] = each.payload["request"]["messages"][-1]["content"]
    assert '"acceptance_criteria_verified": ["AC-001", "AC-002", "AC-003"]' in said["verifier-agent"]
    assert "tests/test_unique.py::test_number_is_within_the_limit" in said["builder-agent"]
    assert "touches: []" in said["security-agent"]
    assert '"runner": "detect-secrets", "exit_code": 0' in said["security-agent"]
    assert '"before": {"passed": 4, "failed": 0}' in said["integration-agent"]
    assert '"moved": false' in said["integration-agent"]
    assert said["retrospective-agent"].count("iteration: 2") >= 4  # three gates, and a signal
    assert 'phase: "implementation"\niteration: 3' in said["retrospective-agent"]
    assert "verification:F-001:textkit/unique.py:14" in said["retrospective-agent"]
    assert all("inputs: {" not in each for each in said.values())  # the digests of gate files


# --- damaged answers --------------------------------------------------------------------------------------------------


@attrs.frozen
class Damage:
    """A change of one answer, and where it has to be stopped: the rule and the place."""

    phase: str
    file: str
    old: str
    new: str
    rule: str
    place: str


UNIT = f"tasks/{TASK}/implementation/units/unit-002/patch.diff"
PATCH = """\
        --- a/pyproject.toml
        +++ b/pyproject.toml
        @@ -1,3 +1,3 @@
         [project]
         name = "textkit"
        -version = "1.4.0"
        +version = "1.5.0"
"""
DAMAGES = [
    Damage("requirements", "requirements-second", 'answer: "Only those of titles with digits."', "answer: null",
           "no-open-questions", "spec"),
    Damage("architecture", "architecture-second", "{name: text, type: str}", "{name: text, type: Any}",
           "values-are-typed", "interfaces"),
    Damage("planning", "planning-second", "criteria: [AC-001, AC-002]", "criteria: [AC-001, AC-002, AC-003, AC-004]",
           "three-criteria-at-most", "work_breakdown"),
    Damage("implementation", "implementation-unit-002-second", "        --- a/tests/test_unique.py\n",
           f"{PATCH}        --- a/tests/test_unique.py\n", "patch", UNIT),
    Damage("verification", "verification-second", "{id: AC-003, verdict: met", "{id: AC-003, verdict: not_met",
           "verdicts-are-those-of-the-tools", "fidelity"),
    Damage("security", "security", "measure: Each number gives another slug.", "measure: It is fixed in a follow-up.",
           "nothing-is-put-off", "threats"),
    Damage("integration", "integration", "          - {id: unit-002, verification: PASSED, security: CLEARED}\n", "",
           "nothing-partial", "merge"),
    Damage("retrospective", "retrospective",
           f"evidence: [tasks/{TASK}/architecture/adr-001.md, tasks/{TASK}/verification/unit-tests.json]",
           "evidence: []", "lessons_v1", f"tasks/{TASK}/retrospective/lessons.md"),
]  # fmt: skip


def hashes(project: Path) -> dict[str, str]:
    """Return the digest of each file of the workspace that no run may change."""
    files = (each for each in project.rglob("*") if each.is_file() and not each.is_symlink())
    names = {str(each.relative_to(project)): each for each in files}
    return {
        name: hashlib.sha256(each.read_bytes()).hexdigest() for name, each in names.items() if not name.startswith(OWN)
    }


def go_on(project: Path) -> None:
    """Go on with the task in another process, until its next phase begins or a person is asked."""
    child = os.fork()
    if not child:
        try:
            tasks._tell = lambda _, event: die() if event.type == "swe.phase_started" else None
            Place(project).here("swe", "run", TASK)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 9)


@pytest.mark.campaign(keep=3)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.phase)
def test_gate_of_each_phase_stops_its_damaged_answer(played: Path, tmp_path: Path, damage: Damage):
    project = tmp_path / "project"
    copytree(played / "snapshots" / damage.phase, project, symlinks=True)
    answer = project / f"answers/{damage.file}.yaml"
    text = answer.read_text(encoding="utf-8")
    assert damage.old in text
    answer.write_text(text.replace(damage.old, damage.new, 1), encoding="utf-8")
    before, known = hashes(project), len(payloads(project, "phase_blocked"))
    completed = payloads(project, "phase_completed")
    go_on(project)
    assert hashes(project) == before
    stopped = payloads(project, "phase_blocked")[known:]
    found = [(each["phase"], each["by"], each["rule"], each["place"]) for each in stopped]
    assert found == [(damage.phase, "rule", damage.rule, damage.place)]
    assert payloads(project, "phase_completed") == completed
    assert verify_file(ledger(project), schemas=SCHEMAS).sound
