"""What is wrong with the files of pipelines: one clear error each, with file, line and column, and nothing in force."""

import pytest
from pipelines import registry_of, replace_text

S = ".system/swe"
PIPELINE = f"{S}/pipeline.yaml"
OUTLINE, BUILD, CHECK = (f"{S}/contracts/{name}.yaml" for name in ("outline", "build", "check"))


def changed(path, old, new):
    """Return an edit that replaces a text of a file."""
    return lambda root: replace_text(root, path, old, new)


def added(path, text):
    """Return an edit that writes a file."""

    def edit(root):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    return edit


def both(*edits):
    """Return one edit that makes all *edits*."""

    def edit(root):
        for each in edits:
            each(root)

    return edit


FAULTS = {
    # names
    "unknown phase": (changed(PIPELINE, "build, check]", "biuld, check]"), f"{PIPELINE}:4:19", 'did you mean "build"?'),
    "unknown agent": (changed(BUILD, "agent: builder", "agent: bulider"), f"{BUILD}:4:8", 'did you mean "builder"?'),
    "agent without a card": (
        lambda root: (root / ".system/agents/builder/.agent").unlink(),
        f"{BUILD}:4:8",
        "agent: builder has no card; add agents/builder/.agent",
    ),
    "agent without a persona": (
        lambda root: (root / ".system/agents/builder/persona.md").unlink(),
        f"{BUILD}:4:8",
        "has no persona",
    ),
    "unknown schema": (
        changed(CHECK, "schema: report_v1", "schema: reprot_v1"),
        f"{CHECK}:12:69",
        'did you mean "report_v1"?',
    ),
    "unknown schema of a result": (
        changed(CHECK, "schema: unit_tests_v1", "schema: unit_test_v1"),
        f"{CHECK}:20:15",
        "add swe/schemas/unit_test_v1",
    ),
    "unknown ability of a command": (
        changed(CHECK, "ability: swe/tests", "ability: swe/test"),
        f"{CHECK}:16:16",
        'did you mean "swe/tests"?',
    ),
    "unknown ability of the runner": (
        changed(PIPELINE, "read: swe/read", "read: swe/raed"),
        f"{PIPELINE}:9:19",
        'did you mean "swe/read"?',
    ),
    "unknown policy": (changed(PIPELINE, "sizes:", "human_triggers: review\nsizes:"), f"{PIPELINE}:8:17", "no policy"),
    "unknown routing": (changed(PIPELINE, "sizes:", "routing: default\nsizes:"), f"{PIPELINE}:8:10", "routing/default"),
    "unknown size": (
        both(
            changed(BUILD, "schema_version: v1", "schema_version: v2"),
            changed(BUILD, "tokens: 3000", "tokens: 3000\ntokens_each_unit: {small: 10, lagre: 20}"),
        ),
        f"{BUILD}:8:38",
        'lagre is no size of the pipeline; did you mean "large"?',
    ),
    "newer key in an older form": (
        changed(BUILD, "tokens: 3000", "tokens: 3000\ntokens_request: 10"),
        f"{BUILD}:8:1",
        "tokens_request",
    ),
    "unknown version": (changed(BUILD, "schema_version: v1", "schema_version: v9"), f"{BUILD}:1:17", "v2"),
    "unknown severity": (changed(BUILD, "MAJOR", "MAYOR"), f"{BUILD}:16:15", "no severity of the pipeline"),
    "unknown parser": (changed(CHECK, "reads: json", "reads: jsno"), f"{CHECK}:18:14", 'did you mean "json"?'),
    "unknown key": (changed(BUILD, "objective:", "objectiv:"), f"{BUILD}:5:1", 'did you mean "objective"?'),
    # units
    "unknown list of units": (changed(PIPELINE, "output: work,", "output: wrok,"), f"{PIPELINE}:5:37", "gives no wrok"),
    "list without units": (changed(PIPELINE, "output: work,", "output: spec,"), f"{PIPELINE}:5:37", "no list units"),
    "units before they are listed": (
        changed(
            PIPELINE,
            "listed_by: outline, output: work, worked_by: build",
            "listed_by: outline, output: work, worked_by: outline",
        ),
        f"{PIPELINE}:5:54",
        "does not come after outline",
    ),
    "units that overwrite each other": (
        both(
            changed(BUILD, "units/{unit-id}/note.md", "units/note.md"), changed(BUILD, "units/{unit-id}/*", "units/**")
        ),
        f"{BUILD}:12:24",
        "so that each unit would overwrite it",
    ),
    "a command for units without units": (
        both(
            changed(
                OUTLINE,
                '    cel: "outputs.work.',
                """\
    command:
      ability: swe/tests
      reads: pytest
      writes: "tasks/{task-id}/outline/tests.json"
      schema: unit_tests_v1
      each: unit
    cel: "outputs.work.""",
            )
        ),
        f"{OUTLINE}:24:13",
        "no unit is listed when the phase begins",
    ),
    # paths
    "unknown placeholder": (
        changed(BUILD, '{task-id}/outline/spec.md", schema', '{task_id}/outline/spec.md", schema'),
        f"{BUILD}:9:24",
        'there is no placeholder {task_id}; did you mean "task-id"?',
    ),
    "a unit where there is none": (
        changed(CHECK, 'tasks/{task-id}/check/*"', 'tasks/{task-id}/check/{unit-id}/*"'),
        f"{CHECK}:30:21",
        "the phase works on no unit",
    ),
    "unknown placeholder of an argument": (
        changed(CHECK, "{unit.tests}", "{unit.test}"),
        f"{CHECK}:17:41",
        'did you mean "unit.tests"?',
    ),
    "path above the data folder": (
        changed(OUTLINE, '"world/patterns/"]', '"../world/"]'),
        f"{OUTLINE}:27:99",
        "it leaves the data folder",
    ),
    "absolute path": (
        changed(BUILD, '["tasks/{task-id}/outline/spec.md"', '["/etc/"'),
        f"{BUILD}:24:13",
        "leaves the data",
    ),
    "path with a drive": (
        changed(BUILD, '["tasks/{task-id}/outline/spec.md"', '["c:/x"'),
        f"{BUILD}:24:13",
        "plain path",
    ),
    "path that excludes": (
        changed(CHECK, '"tasks/{task-id}/outline/"', '"!tasks/"'),
        f"{CHECK}:36:13",
        "begins with !",
    ),
    "open brace": (changed(CHECK, '"tasks/{task-id}/outline/"', '"tasks/{task-id/"'), f"{CHECK}:36:13", "a brace"),
    "path with many folders": (
        changed(CHECK, '"tasks/{task-id}/outline/"', '"**/**/**/**/**/**/**/x"'),
        f"{CHECK}:36:13",
        "write a simpler glob",
    ),
    "data folder outside": (
        changed(PIPELINE, "id: small", "id: small\ndata: ../x"),
        f"{PIPELINE}:3:7",
        "no plain folder",
    ),
    # what phases give each other
    "input that nobody gives": (
        changed(CHECK, "outline/spec.md", "outline/plan.md"),
        f"{CHECK}:9:24",
        "no earlier phase gives it",
    ),
    "input of a later phase": (
        changed(BUILD, 'outline/spec.md", schema: spec_v1', 'check/report.md", schema: report_v1'),
        f"{BUILD}:9:24",
        "the later phase check does",
    ),
    "input of the phase itself": (
        changed(CHECK, 'outline/spec.md", schema: spec_v1', 'check/unit-tests.json", schema: unit_tests_v1'),
        f"{CHECK}:9:24",
        "it is of this phase itself",
    ),
    "input with another schema": (
        changed(BUILD, "schema: spec_v1", "schema: work_v1"),
        f"{BUILD}:9:67",
        "but outline gives",
    ),
    "two phases that write one file": (
        both(
            changed(CHECK, '["tasks/{task-id}/check/*"]', '["tasks/{task-id}/check/*", "tasks/{task-id}/log.md"]'),
            changed(CHECK, "check/report.md", "log.md"),
            changed(
                OUTLINE, '["tasks/{task-id}/outline/*"]', '["tasks/{task-id}/outline/*", "tasks/{task-id}/log.md"]'
            ),
            changed(OUTLINE, "outline/work.md", "log.md"),
        ),
        f"{CHECK}:12:26",
        "the phase outline writes it too",
    ),
    "change of an earlier phase's output": (
        changed(CHECK, '["tasks/{task-id}/check/*"]', '["tasks/{task-id}/check/*", "tasks/{task-id}/outline/spec.md"]'),
        f"{CHECK}:30:48",
        "the output spec of the phase outline",
    ),
    "change of everything": (
        changed(OUTLINE, '["tasks/{task-id}/outline/*"]', '["tasks/{task-id}/**"]'),
        f"{OUTLINE}:21:21",
        "a phase changes only its own files",
    ),
    # contradictions
    "output outside of what may be written": (
        changed(CHECK, '["tasks/{task-id}/check/*"]', '["tasks/{task-id}/check/*.json"]'),
        f"{CHECK}:12:26",
        "is outside allowed_mutations",
    ),
    "output that is forbidden": (
        changed(CHECK, 'write: "tasks/{task-id}/build/**"', 'write: "tasks/{task-id}/check/*.md"'),
        f"{CHECK}:12:26",
        "an output cannot be forbidden",
    ),
    "mutation that is forbidden": (
        changed(CHECK, "forbidden_actions:", 'forbidden_actions:\n  - {write: "tasks/{task-id}/check/**"}'),
        f"{CHECK}:12:26",
        "is forbidden by write: tasks/{task-id}/check/**",
    ),
    "input that is forbidden": (
        changed(CHECK, 'write: "tasks/{task-id}/build/**"', 'read: "tasks/{task-id}/outline/**"'),
        f"{CHECK}:9:24",
        "an input has to be readable",
    ),
    "input that is excluded": (
        changed(CHECK, "gate: {", '  exclude: ["tasks/{task-id}/outline/spec.md"]\ngate: {'),
        f"{CHECK}:9:24",
        "is excluded by context_scope",
    ),
    "scope that excludes what it includes": (
        changed(OUTLINE, 'exclude: ["tasks/{task-id}/build/"', 'exclude: ["world/"'),
        f"{OUTLINE}:27:99",
        "include: world/patterns/ is excluded by world/",
    ),
    "ability of the runner that is forbidden": (
        changed(OUTLINE, 'use: "swe/tests"', 'use: "swe/*"'),
        f"{OUTLINE}:24:11",
        "forbids swe/read",
    ),
    # outputs and gate files
    "gate file among the outputs": (
        changed(CHECK, "check/report.md", "check/PASSED.md"),
        f"{CHECK}:12:26",
        "reaches the gate file",
    ),
    "glob that reaches a gate file": (
        changed(CHECK, 'check/report.md", schema: report_v1', 'check/*.md", schema: report_v1, many: true'),
        f"{CHECK}:12:26",
        "reaches the gate file",
    ),
    "output that is the result of a command": (
        changed(CHECK, "check/report.md", "check/unit-tests.json"),
        f"{CHECK}:12:26",
        "reaches the result of unit-tests",
    ),
    "glob without many": (changed(CHECK, "check/report.md", "check/r-*.md"), f"{CHECK}:12:26", "add many: true"),
    "output without a schema": (changed(CHECK, ", schema: report_v1", ""), f"{CHECK}:12:5", "no rule can check it"),
    "signal that is no gate file": (
        changed(CHECK, "check/BLOCKED.md", "check/STOP.md"),
        f"{CHECK}:33:25",
        "but the gate file of a block is",
    ),
    "two gate files with one name": (
        changed(CHECK, "human: HUMAN_REVIEW_REQUIRED.md", "human: PASSED.md"),
        f"{CHECK}:37:7",
        "one name",
    ),
    "first phase that passes on": (
        changed(OUTLINE, "context_scope:", "on_rollback: pass_on\ncontext_scope:"),
        f"{OUTLINE}:26:14",
        "no phase before it",
    ),
    # scope
    "files of another agent": (
        changed(CHECK, "agents/checker/persona.md", "agents/builder/persona.md"),
        f"{CHECK}:36:114",
        "only its own",
    ),
    "rewards of the agent": (
        changed(CHECK, "agents/checker/persona.md", "agents/checker/rewards.md"),
        f"{CHECK}:36:114",
        "only its own",
    ),
    "selection of what is not included": (
        changed(OUTLINE, 'select: {"world/patterns/"', 'select: {"world/"'),
        f"{OUTLINE}:29:22",
        "name a folder of include",
    ),
    # rules
    "rule that is prose": (
        changed(BUILD, "  - id: stays-small", "  - every interface is typed\n  - id: stays-small"),
        f"{BUILD}:14:5",
        "is prose, which no machine checks",
    ),
    "action that is prose": (
        changed(CHECK, "forbidden_actions:", "forbidden_actions:\n  - call external services"),
        f"{CHECK}:32:5",
        "write one of write: GLOB",
    ),
    "condition that is prose": (
        changed(BUILD, "outputs.note.unit == unit.id", "the note names the unit"),
        f"{BUILD}:19:15",
        "a condition in CEL",
    ),
    "misspelt output in a condition": (
        changed(BUILD, "outputs.note.unit ==", "outputs.notes.unit =="),
        f"{BUILD}:19:19",
        'did you mean "note"?',
    ),
    "misspelt member in a condition": (
        changed(OUTLINE, "outputs.spec.open_questions", "outputs.spec.open_qestions"),
        f"{OUTLINE}:15:24",
        'did you mean "open_questions"?',
    ),
    "misspelt member of an item": (
        changed(OUTLINE, "u.criteria.size()", "u.criterias.size()"),
        f"{OUTLINE}:19:39",
        'did you mean "criteria"?',
    ),
    "misspelt value in a condition": (
        changed(CHECK, "f.severity != 'BLOCKER'", "f.severity != 'BLOCKR'"),
        f"{CHECK}:27:56",
        'did you mean "BLOCKER"?',
    ),
    "misspelt member of a result": (
        changed(CHECK, "t.exit_code == 0", "t.exitcode == 0"),
        f"{CHECK}:23:38",
        'did you mean "exit_code"?',
    ),
    "condition over a unit where there is none": (
        changed(CHECK, "outputs.report.findings.all(f, f.severity != 'BLOCKER')", "unit.id == ''"),
        f"{CHECK}:27:16",
        "has no id",
    ),
    "condition that is no condition": (
        changed(BUILD, "outputs.note.unit == unit.id", "outputs.note.unit"),
        f"{BUILD}:19:11",
        "a condition is true or false",
    ),
    "rule without a phase's output": (
        changed(
            BUILD, "  - id: names-its-unit", "  - {id: extra, schema: note_v1, output: nots}\n  - id: names-its-unit"
        ),
        f"{BUILD}:18:42",
        "the phase gives no nots",
    ),
    "schema without an output": (
        changed(BUILD, "  - id: names-its-unit", "  - {id: extra, schema: note_v1}\n  - id: names-its-unit"),
        f"{BUILD}:18:5",
        "needs both schema and output",
    ),
    "rule with two conditions": (
        changed(BUILD, "  - id: names-its-unit", "  - id: names-its-unit\n    schema: note_v1\n    output: note"),
        f"{BUILD}:18:5",
        "has schema and cel",
    ),
    "rule with none": (
        changed(BUILD, '    cel: "outputs.note.unit == unit.id"\n', ""),
        f"{BUILD}:18:5",
        "has none of schema, cel",
    ),
    "two rules with one id": (changed(BUILD, "names-its-unit", "stays-small"), f"{BUILD}:18:9", "appears twice"),
    "two outputs with one name": (changed(BUILD, "{name: note", "{name: patch"), f"{BUILD}:12:12", "appears twice"),
    "two outputs that may be one file": (
        changed(
            CHECK,
            "produced_outputs:",
            'produced_outputs:\n  - {name: any, path: "tasks/{task-id}/check/r*.md", many: true, schema: report_v1}',
        ),
        f"{CHECK}:13:26",
        "may be the output any as well",
    ),
    # files
    "contract in another file": (changed(CHECK, "phase: check", "phase: chekc"), f"{CHECK}:2:8", "the same name"),
    "unknown file": (added(f"{S}/pipelines.yaml", ""), f"{S}/pipelines.yaml", 'did you mean "pipeline.yaml"?'),
    "unknown folder": (added(f"{S}/contract/a.yaml", ""), f"{S}/contract", 'did you mean "contracts"?'),
    "other ending": (added(f"{S}/contracts/a.yml", ""), f"{S}/contracts/a.yml", "end in .yaml"),
    "file that is a list": (added(BUILD, "- a\n"), f"{BUILD}:1:1", "is no mapping"),
    "schema that the lint refuses": (
        changed(f"{S}/schemas/note_v1.json", '"required"', '"requird"'),
        f"{S}/schemas/note_v1.json:5:",
        "requird",
    ),
    "schema of the runner": (added(f"{S}/schemas/gate_v1.json", "{}"), f"{S}/schemas/gate_v1.json", "of the runner"),
    "schema without a version": (added(f"{S}/schemas/note.json", "{}"), f"{S}/schemas/note.json", "name it like"),
    "overrides without a pack": (
        changed(CHECK, "agent:", "overrides: acme\nagent:"),
        f"{CHECK}:4:12",
        "no pack has the file contracts/check",
    ),
    "skill without a name": (
        changed(".system/agents/builder/skills/steps.md", "name: Steps\n", ""),
        ".system/agents/builder/skills/steps.md",
        '"name" is missing',
    ),
}


SEVERAL = (
    "unknown agent", "unknown key", "units before they are listed", "units that overwrite each other",
    "mutation that is forbidden", "input that is forbidden", "glob that reaches a gate file",
    "two outputs with one name",
)  # fmt: skip
"""Edits that make several faults."""


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_one_error_with_its_place(small, name):
    edit, where, why = FAULTS[name]
    edit(small)
    _, faults = registry_of(small)
    assert (len(faults) == 1) == (name not in SEVERAL), faults
    assert next(place for place, message in faults if why in message).startswith(where), faults


def test_all_faults_are_reported_at_once(small):
    for name in ("unknown schema", "unknown severity", "misspelt member of an item", "unknown ability of the runner"):
        FAULTS[name][0](small)
    _, faults = registry_of(small)
    assert sorted(place.rpartition("/")[2].partition(":")[0] for place, _ in faults) == [
        "build.yaml", "check.yaml", "outline.yaml", "pipeline.yaml",
    ]  # fmt: skip


def test_pipeline_with_a_fault_declares_no_ability(small):
    FAULTS["misspelt member of an item"][0](small)
    registry, _ = registry_of(small)
    assert list(registry.abilities()) == []
