"""What is wrong with workflow files: one clear error each, with file, line and column, and nothing in force."""

from typing import Any

import pytest

from deedbook.workspace.workspace import survey_workspace

W = ".system/workflows"
CYCLE, LOOK, SETTLE = f"{W}/cycles/check.md", f"{W}/phases/look.md", f"{W}/phases/settle.md"
GATE, STYLE, LESSON = f"{W}/policies/gate.md", f"{W}/personas/reviewer/style.md", f"{W}/artifacts/lesson-template.md"


def replaced(path: str, old: str, new: str) -> Any:
    """Return an edit that replaces a text of a file."""

    def edit(root: Any) -> None:
        text = (root / path).read_text()
        assert old in text
        (root / path).write_text(text.replace(old, new, 1))

    return edit


def added(path: str, text: str) -> Any:
    """Return an edit that adds a file."""

    def edit(root: Any) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    return edit


def linked(path: str, target: str) -> Any:
    """Return an edit that puts a link in the place of a file."""

    def edit(root: Any) -> None:
        (root / path).unlink()
        (root / path).symlink_to(target)

    return edit


PHASE = "---\nschema_version: v1\nid: more\nadvance_signal: 'true'\n---\n"
BOMB = "a: &a [x, x]\n" + "".join(f"{c}: &{c} [*{b}, *{b}]\n" for b, c in zip("abcdefgh", "bcdefghi", strict=True))
DEEP = "review_aggregate.findings.all(a, review_aggregate.findings.all(b, review_aggregate.findings.all(c, true)))"
FAULTS = {
    "unknown phase": (replaced(CYCLE, "[look, settle]", "[look, setle]"), f"{CYCLE}:5:16", 'did you mean "settle"?'),
    "unknown entry": (replaced(CYCLE, "entry_phase: look", "entry_phase: lok"), f"{CYCLE}:6:14", 'mean "look"?'),
    "unknown policy": (replaced(CYCLE, "[gate]", "[gaet]"), f"{CYCLE}:10:12", 'did you mean "gate"?'),
    "unknown persona": (replaced(LOOK, "reviewer/style", "reviewer/stile"), f"{LOOK}:7:18", '"reviewer/style"?'),
    "missing artifact": (
        lambda root: (root / LESSON).unlink(), f"{SETTLE}:7:11", "correct the id, or add artifacts/lesson-template.md",
    ),
    "no ability that writes files": (
        replaced(".system/deedbook.yaml", "  file-write:", "  write-file:"),
        f"{SETTLE}:7:11", "lesson is written with the ability file-write, which is not declared",
    ),
    "an own ability named as the writer of artifacts": (
        replaced(".system/deedbook.yaml", "  file-write:", "  workflow-artifact:\n    summary: Own.\n"
                 "    handler: {tool: file-write}\n  file-write:"),
        ".system/deedbook.yaml:7", f'"workflow-artifact" is also made by {LESSON}:3; choose another',
    ),
    "unknown flow": (
        replaced(LOOK, "advance", "flow: reveiw\nadvance"), f"{LOOK}:5:7", "flow: reveiw is not declared; did you mean",
    ),
    "default flow is missing": (
        lambda root: replaced(".system/deedbook.yaml", "  review:", "  other:")(root)
        or replaced(".system/deedbook.yaml", "flow: review,", "flow: other,")(root),
        f"{LOOK}:3:5", "flow: review is not declared",
    ),
    "a tool as a flow": (
        replaced(LOOK, "advance", "flow: file-read\nadvance"), f"{LOOK}:5:7", "file-read is no flow",
    ),
    "a cycle as a flow": (
        replaced(LOOK, "advance", "flow: workflow/check\nadvance"),
        f"{LOOK}:5:7", "workflow/check is of workflows itself",
    ),
    "unknown schema": (
        replaced(LOOK, "review_aggregate_v1", "review_agregate_v1"), f"{LOOK}:8:16", 'mean "review_aggregate_v1"?',
    ),
    "unknown schema of an artifact": (
        replaced(LESSON, "learning_v1", "lerning_v1"), f"{LESSON}:7:9", 'did you mean "learning_v1"?',
    ),
    "other schema than the artifact": (
        replaced(SETTLE, "artifact", "output_schema: plan_v1\nartifact"),
        f"{SETTLE}:7:16", "has the schema learning_v1",
    ),
    "unknown key": (replaced(LOOK, "halt_signal", "halt_sginal"), f"{LOOK}:6:1", 'did you mean "halt_signal"?'),
    "missing key": (replaced(LOOK, "advance_signal:", "halt_signl:"), f"{LOOK}:1:1", '"advance_signal" is missing'),
    "inlined persona in a phase": (
        replaced(LOOK, "[reviewer/style]", "[{name: style, description: x}]"), f"{LOOK}:7:18", "a file of its own",
    ),
    "inlined personas in a cycle": (
        replaced(CYCLE, "policies", "personas: {style: {role: reviewer}}\npolicies"),
        f"{CYCLE}:10:1", "file of its own",
    ),
    "natural language": (
        replaced(LOOK, 'review_aggregate.verdict == "pass"', "all findings are fixed"),
        f"{LOOK}:5:", "condition in CEL",
    ),
    "misspelt field": (
        replaced(LOOK, "p0_unresolved", "p0_unresolvd"), f"{LOOK}:6:31", 'did you mean "p0_unresolved"?',
    ),
    "misspelt field in a comprehension": (
        replaced(LOOK, "review_aggregate.p0_unresolved > 10", "review_aggregate.findings.exists(f, f.sevrity == 'P0')"),
        f"{LOOK}:6:", 'did you mean "severity"?',
    ),
    "misspelt field in a cycle": (
        replaced(CYCLE, "context.phase", "context.fase"), f"{CYCLE}:8:", 'did you mean "phase"?',
    ),
    "artifact in a cycle": (
        replaced(CYCLE, "context.phase ==", "artifact.title =="), f"{CYCLE}:8:9", "artifact is not known",
    ),
    "a signal that is no condition": (
        replaced(LOOK, 'review_aggregate.verdict == "pass"', "review_aggregate.p0_unresolved"),
        f"{LOOK}:5:", "a condition",
    ),
    "costly signal": (replaced(LOOK, 'review_aggregate.verdict == "pass"', DEEP), f"{LOOK}:5:", "nested more than"),
    "circle": (
        replaced(SETTLE, "advance", "next: look\nadvance"), f"{SETTLE}:5:7", "a circle: look → settle → look",
    ),
    "unreachable": (
        replaced(LOOK, "advance", "next: null\nadvance"), f"{CYCLE}:5:16", "settle is never reached from look",
    ),
    "next outside the cycle": (
        lambda root: added(f"{W}/phases/more.md", PHASE)(root)
        or replaced(LOOK, "advance", "next: more\nadvance")(root),
        f"{LOOK}:5:7", "more is not one of the phases of the cycle check",
    ),
    "duplicate id": (
        added(f"{W}/phases/other.md", PHASE.replace("more", "look")),
        f"{W}/phases/other.md:3:5", "name the file look.md",
    ),
    "an id of a policy is taken": (
        added(".system/policies/gate.yaml", "schema_version: v1\nid: gate\nkind: rules\nrules: []\n"),
        f"{GATE}:3:5", '"gate" is also in .system/policies/gate.yaml',
    ),
    "persona asks for an unknown tool": (
        replaced(STYLE, "[file-read]", "[file-read, file-raed]"), f"{STYLE}:4:28", 'did you mean "file-read"?',
    ),
    "persona asks for a model": (
        replaced(STYLE, "[file-read]", "file-read model/standard"), f"{STYLE}:4:26", "models are for roles",
    ),
    "persona writes outside": (
        replaced(STYLE, "[reports/**]", "[reports/**, ../x]"), f"{STYLE}:7:26", "leads outside the workspace",
    ),
    "persona writes where no path is": (
        replaced(STYLE, "[reports/**]", "[reports/**, docs//*]"), f"{STYLE}:7:26", "fits no path",
    ),
    "persona's writes are no list": (
        replaced(STYLE, "[reports/**]", "everything"), f"{STYLE}:7:13", "expected a list",
    ),
    "persona without description": (
        replaced(STYLE, "description", "descripton"), f"{STYLE}:1:1", '"description" is missing',
    ),
    "persona with an unknown key": (
        replaced(STYLE, "allowed-tools", "tools: []\nallowed-tools"), f"{STYLE}:4:1", "not a key of a skill",
    ),
    "persona in another file": (
        replaced(STYLE, "name: style", "name: stile"),
        f"{STYLE}:2:7", "name the file stile.md",
    ),
    "unknown role": (
        added(f"{W}/personas/reviwer/a.md", ""),
        f"{W}/personas/reviwer", 'is no role of personas; did you mean "reviewer"?',
    ),
    "persona without role": (added(f"{W}/personas/a.md", ""), f"{W}/personas/a.md", "the folder of its role"),
    "unknown folder": (added(f"{W}/cycels/a.md", ""), f"{W}/cycels", 'did you mean "cycles"?'),
    "nested folder": (added(f"{W}/cycles/old/a.md", ""), f"{W}/cycles/old", "move its files up"),
    "other ending": (added(f"{W}/cycles/a.markdown", ""), f"{W}/cycles/a.markdown", 'rename it to "a.md"'),
    "artifact without -template": (
        lambda root: (root / LESSON).rename(root / f"{W}/artifacts/lesson.md"),
        f"{W}/artifacts/lesson.md:3:5", "name the file lesson-template.md",
    ),
    "artifact outside": (replaced(LESSON, "folder: lessons", "folder: ../x"), f"{LESSON}:6:9", "folder"),
    "pattern with a path": (replaced(LESSON, "{slug}.md", "{slug}/a.md"), f"{LESSON}:5:10", "pattern"),
    "pattern with an unknown field": (
        replaced(LESSON, "{slug}", "{slgu}"), f"{LESSON}:5:10", 'there is no field {slgu}; did you mean "slug"?',
    ),
    "template that is none": (replaced(LESSON, "{{ lesson }}", "{{ lesson"), f"{LESSON}:11:1", "not a template"),
    "template with a call": (
        replaced(LESSON, "{{ lesson }}", "{{ lesson() }}"),
        f"{LESSON}:11:1", "call is not allowed",
    ),
    "costly template": (
        replaced(LESSON, "{{ lesson }}", 3 * "{% for a in x %}" + 3 * "{% endfor %}"),
        f"{LESSON}:11:1", "nested more than",
    ),
    "two front matters": (replaced(LOOK, "schema_version: v1", "a: 1\n...\nb: 1"), f"{LOOK}:", ""),
    "no front matter": (added(LOOK, "Look.\n"), f"{LOOK}:1:1", "no front matter"),
    "front matter without end": (added(LOOK, "---\nid: look\n"), f"{LOOK}:1:1", "has no end"),
    "anchors": (added(LOOK, f"---\n{BOMB}---\n"), f"{LOOK}:2:4", "an anchor"),
    "tags": (added(LOOK, "---\nid: !!python/name:os.system look\n---\n"), f"{LOOK}:2:5", "a tag"),
    "a key that appears twice": (replaced(LOOK, "id: look", "id: look\nid: look"), f"{LOOK}:4:1", "appears twice"),
    "controls": (replaced(LOOK, "Look at", "Look \x07at"), f"{LOOK}:10:6", "U+0007"),
    "too long": (replaced(LOOK, "Look at", "x" * 70_000), LOOK, "at most 65536 are read"),
    "a link to a file outside": (linked(LOOK, "/etc/hostname"), LOOK, "is a link"),
    "overrides without a pack": (
        replaced(LOOK, "advance", "overrides: acme\nadvance"), f"{LOOK}:5:12", "no pack has the file phases/look",
    ),
}  # fmt: skip


SEVERAL = ("default flow is missing", "missing key", "anchors", "two front matters")
"""Edits that make several faults."""


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_one_error_with_its_place(place, name):
    edit, where, why = FAULTS[name]
    root = place("two-phases")
    edit(root)
    _, faults = survey_workspace(root)
    assert len(faults) == 1 or name in SEVERAL, [(fault.place, fault.message) for fault in faults]
    assert (faults[0].place or "").startswith(where), (faults[0].place, faults[0].message)
    assert why in faults[0].message
