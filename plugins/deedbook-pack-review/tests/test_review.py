"""The cycles of the pack review real changes with git, ruff and bandit, and write files that people read."""

import json
from pathlib import Path

from commandline import SCHEMAS

from deedbook.format.reader import read
from deedbook.kernel import open_kernel
from deedbook.plugins.plugins import discover
from deedbook.workspace.documents import parse_front_matter
from deedbook_audit.verify import verify_file
from deedbook_flow_workflow.artifacts import check_file
from deedbook_flow_workflow.definition import Definition
from deedbook_pack.lint import lint_package
from deedbook_pack.packages import open_packs

BEFORE = "import subprocess\n\n\ndef run(command):\n    return subprocess.call(command)\n"
AFTER = (
    "import json\nimport subprocess\n\n\ndef run(command):\n    return subprocess.call(command, shell=True)\n\n\n"
    "def read(path):\n    return opn(path)\n"
)
PROJECT = Path(__file__).parents[1]
CHANGE = ({"tool.py": BEFORE, "page.md": "Hello\n"}, {"tool.py": AFTER, "page.md": "Hello\nTODO: say more\n"})


def run(place, cycle, *options, request="Review what changed since HEAD~1.", status=0):
    """Run a cycle; return the artifacts that it wrote, by id: their values, which fit name, folder and schema."""
    place.here("workflow", "run", cycle, request, *options, status=status)
    session = max(place.path.glob(".deedbook/sessions/*"), key=lambda path: path.stat().st_mtime_ns)
    assert verify_file(session / ".events.jsonl", schemas=SCHEMAS).sound
    events = list(read(session / ".events.jsonl"))
    notes = phase_notes(events)
    with open_kernel(place.path) as kernel:
        settings = kernel.bindings.charter.document["abilities"][f"workflow/{cycle}"]["settings"]
    definition = Definition.parse(settings)
    return {note["phase"]: check(place, definition, note) for note in notes if note["path"]}


def phase_notes(events):
    noted = [event.payload for event in events if event.type == "context.noted"]
    return [payload["data"] for payload in noted if payload["event_type"] == "workflow_phase"]


def check(place, definition, note):
    name = definition.phases[note["phase"]].artifact
    artifact = definition.artifacts[name]
    raw = (place.path / note["path"]).read_bytes()
    assert list(check_file(artifact, definition.schemas[artifact.schema], note["path"], raw)) == []
    document, body = parse_front_matter(raw, note["path"], 10**6)
    return artifact.schema, document.value, body


def test_no_rule_of_the_pack_is_dead_and_each_has_a_test():
    [(title, findings)] = lint_package(str(PROJECT), discover())
    assert title.startswith("review ")
    assert findings == []


def test_pack_has_data_only_and_a_persona_of_each_role():
    from contextlib import ExitStack

    with ExitStack() as held:
        [pack] = open_packs(str(PROJECT), held, discover())
        names = list(pack.folder().all_names())
    assert {name.rpartition(".")[2] for name in names} == {"md", "yaml"}
    roles = {name.split("/")[2] for name in names if name.startswith("workflows/personas/")}
    assert roles == {"reviewer", "researcher", "document-reviewer"}


def test_change_is_planned_reviewed_fixed_and_learned_from(repository):
    place = repository(*CHANGE)
    made = run(place, "review-change")
    assert [(phase, schema) for phase, (schema, _, _) in made.items()] == [
        ("review-plan", "plan_v1"), ("review-findings", "review_aggregate_v1"), ("review-fix", "solution_v1"),
        ("review-learn", "learning_v1"),
    ]  # fmt: skip
    _, found, text = made["review-findings"]
    findings = found["findings"]
    assert {(each.get("rule", ""), each["file"], each["line"], each["route"]) for each in findings} == {
        ("F401", "tool.py", 1, "apply"), ("F821", "tool.py", 10, "manual"), ("B602", "tool.py", 6, "manual"),
        ("", "page.md", 2, "manual"),
    }  # fmt: skip
    assert found["coverage"] == {"asked": 3, "reported": 3, "failed": []}
    assert "- **P1** tool.py:10: Undefined name" in text
    _, fix, _ = made["review-fix"]
    assert "-import json\n" in fix["solution"]
    assert (place.path / "tool.py").read_text() == AFTER
    assert "F401" in made["review-learn"][1]["lesson"]
    assert (
        "through review-plan → review-findings → review-fix → review-learn"
        in place.here("workflow", "status", "last", status=0).out
    )


def test_ideas_and_a_plan_come_before_a_review(repository):
    made = run(repository(*CHANGE), "review-prepare")
    assert [schema for schema, _, _ in made.values()] == ["brainstorm_v1", "plan_v1"]
    assert "tool.py" in made["review-ideas"][1]["ideas"][0]["detail"]


def test_report_about_a_time_says_what_the_review_came_to(repository):
    made = run(repository(*CHANGE), "review-pulse")
    _, report, _ = made["review-report"]
    assert (made["review-report"][0], report["status"]) == ("pulse_report_v1", "at_risk")
    assert report["metrics"] == [{"name": "commits", "value": 1}]


def test_review_that_finds_nothing_about_the_change_is_done(repository):
    """What was there before the change is told, and is no finding about it."""
    files = {"tool.py": "import json\n", "page.md": "TODO\n"}
    made = run(
        repository(files, {"tool.py": "import json\n\nNAME = 'a'\n", "page.md": "TODO\nmore\n"}), "review-change"
    )
    assert list(made) == ["review-plan", "review-findings"]
    _, found, _ = made["review-findings"]
    assert found["findings"] == []
    assert {each["file"] for each in found["pre_existing"]} == {"tool.py", "page.md"}


def test_report_only_session_proposes_no_fixes(repository):
    """Nor does a change without Python files stop the linters."""
    place = repository({"page.md": "a\n"}, {"page.md": "a\nTODO\n"})
    made = run(place, "review-change", "--mode", "report-only")
    assert list(made) == ["review-plan", "review-findings"]
    assert made["review-findings"][1]["coverage"]["reported"] == 3


def test_blocker_halts_the_cycle_with_a_report(repository):
    place = repository({"tool.py": "a = 1\n"}, {"tool.py": "a = = 1\n"})
    made = run(place, "review-change", status=1)
    assert made["review-findings"][1]["p0_unresolved"] == 1
    assert "review-change  halted  in review-findings" in place.here("workflow", "status", "last", status=0).out


def test_request_without_a_revision_is_refused(repository):
    place = repository({"a.py": "a = 1\n"}, {"a.py": "a = 2\n"})
    for request in ("what changed since HEAD~1..HEAD", "what changed since --output=x"):
        place.here("workflow", "run", "review-change", request, status=1)
        assert "NO_RULE" in place.here("workflow", "status", "last", status=0).out
    assert not (place.path / "reports").exists()


PHASE = """\
---
schema_version: v1
id: look
advance_signal: size(review_aggregate.findings) > 0
agents_invoked: [reviewer/python-lint]
---
Find what is wrong.
"""
CYCLE = "---\nschema_version: v1\nid: ask-model\nphases: [look]\nentry_phase: look\n---\nA model reviews.\n"


def test_model_works_under_the_same_persona(repository):
    """The model is told the persona's text, calls the same ability, and its findings count."""
    place = repository(*CHANGE)
    for name, text in {"cycles/ask-model.md": CYCLE, "phases/look.md": PHASE}.items():
        place.write(f".system/workflows/{name}", text)
    finding = {
        "schema_version": "v1", "id": "f1", "reviewer": "reviewer-python-lint", "severity": "P1",
        "title": "No such name",
        "autofix_class": "manual", "confidence": 100, "file": "tool.py", "line": 10,
    }  # fmt: skip
    step = {"id": "s1", "description": "Check the change", "depends_on": []}
    report = {
        "output": json.dumps({"findings": [finding]}),
        "steps_completed": ["s1"],
        "tool_calls_made": ["review-lint:t1"],
    }
    said = [
        ("lead", {"text": {"intent": "review", "constraints": [], "needs_advisor": False}}),
        ("planner", {"text": {"steps": [step], "risks": [], "needs_advisor": False}}),
        ("worker", {"tool_calls": [{"id": "t1", "name": "review-lint", "args": {"base": "HEAD~1"}}]}),
        ("worker", {"text": report}),
        ("reviewer", {"text": {"verdict": "pass", "feedback": "It is."}}),
    ]  # fmt: skip
    lines = []
    for role, response in said:
        if "text" in response:
            response["text"] = json.dumps({**response["text"], "schema_version": "v1"})
        lines.append(json.dumps({"role": role, "response": response}))
    place.write("model.jsonl", "\n".join(lines))
    model = "standard: {provider: transcript, model: demo, with: {path: model.jsonl}}"
    place.configure("standard: {provider: rules, model: rules-1}", model)
    place.here("workflow", "run", "ask-model", "Review what changed since HEAD~1.", status=0)
    [session] = place.path.glob(".deedbook/sessions/*/.events.jsonl")
    events = list(read(session))
    asked = [json.dumps(each.payload) for each in events if each.type == "llm.request"]
    assert all("Call `review-lint` with the revision that the request names" in each for each in asked)
    [note] = phase_notes(events)
    assert [each["title"] for each in note["aggregate"]["findings"]] == ["No such name"]
