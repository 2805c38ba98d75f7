"""`deedbook registry lint`: everything that is wrong with the abilities at once, in its place; nothing is started."""

import pytest
from commandline import Place

HEAD = "schema_version: v1\n"


@pytest.fixture
def place(tmp_path):
    """Give a workspace that one policy guards, and that has nothing to say against it."""
    made = Place(tmp_path / "workspace")
    made.system("deedbook.yaml", f"{HEAD}policies: {{all: {{kind: rules, rules: [{{match: {{}}, then: allow}}]}}}}\n")
    ability(made, "echo")
    return made


def ability(
    place, name, more="", *, tool="echo", summary="Echo a text back.", intents="routing_hints: {intents: [x]}\n"
):
    head = f"{HEAD}id: {name}\nsummary: {summary}\nhandler: {{tool: {tool}}}\n"
    return place.system(f"registry/low-level/{name}.yaml", head + intents + more)


def lint(place, *files, status):
    return place.here("registry", "lint", *files, "--json", status=status).fits("output_registry_v1")


def errors(place, *files):
    findings = lint(place, *files, status=1)["findings"]
    return [(each["code"], each["place"], each["message"]) for each in findings if each["level"] == "error"]


def at(name, line, column):
    return f".system/registry/low-level/{name}.yaml:{line}:{column}"


def test_workspace_without_faults_is_fine_and_says_what_was_checked(place):
    assert lint(place, status=0) == {"schema_version": "v1", "ok": True, "abilities": ["echo"], "findings": []}
    ran = place.here("registry", "lint", status=0)
    assert (ran.out, ran.err) == ("", "1 ability checked: 0 errors, 0 notes\n")


def test_repository_itself_has_no_errors(request):
    from commandline import ROOT

    assert Place(ROOT).here("registry", "lint", status=0).err.endswith(" notes\n")


def test_nothing_is_started_and_nothing_written(place):
    place.offer(
        "tools",
        "eager",
        """
        from deedbook import HandlerSpec
        class Plugin:
            spec = HandlerSpec(gives={"type": "object"}, effects="read", settings={"required": ["size"]})
            def __init__(self, settings, host):
                raise SystemExit("constructed")
            def __call__(self, args, ctx):
                return {}
        """,
    )
    ability(place, "eager", "with: {size: 1}\n", tool="eager", summary="Do what is asked for.")
    assert lint(place, status=0)["abilities"] == ["eager", "echo"]
    assert not (place.path / ".deedbook").exists()


def test_all_faults_are_told_at_once_each_with_its_place(place):
    ability(place, "missing", tool="ecko")
    ability(place, "settings", "with: {size: 9}\n")
    ability(place, "wider", "schema_in: {properties: {text: {type: integer}}}\n")
    ability(place, "schema", "schema_in: {propertys: {}}\n")
    ability(place, "hooked", "hooks: {pre_call: [nobody]}\n")
    found = {where: (code, message) for code, where, message in errors(place)}
    assert found[at("missing", 4, 1)][0] == "PLUGIN_MISSING"
    assert 'did you mean "echo"?' in found[at("missing", 4, 1)][1]
    assert found[at("settings", 6, 8)] == ("BINDING_INVALID", "settings of tool 'echo': $.size: unknown key")
    assert "allows more than" in found[at("wider", 6, 33)][1]
    assert found[at("schema", 6, 13)][0] == "SCHEMA_REFUSED"
    assert "hook 'nobody' is not declared" in found[at("hooked", 6, 20)][1]
    assert len(found) == 5


def test_faults_of_files_and_of_bindings_are_told_together(place):
    ability(place, "odd", "timeout: 5\n")
    ability(place, "missing", tool="ecko")
    place.system("hooks/late.yaml", f"{HEAD}id: late\nevent_type: Never\nhandler: {{hook: allow}}\n")
    ability(place, "hooked", "hooks: {pre_call: [late]}\n")
    assert {(code, where) for code, where, _ in errors(place)} == {
        ("SOURCE_INVALID", at("odd", 6, 1)),
        ("SOURCE_INVALID", ".system/hooks/late.yaml:3:13"),
        ("PLUGIN_MISSING", at("missing", 4, 1)),
    }


def test_id_that_stands_twice_is_an_error_with_both_places(place):
    place.system(
        "registry/high-level/other.yaml", f"{HEAD}id: echo\nsummary: Echo once more.\nhandler: {{tool: echo}}\n"
    )
    ((code, where, message), *_) = errors(place)
    assert (code, where) == ("SOURCE_INVALID", ".system/registry/high-level/other.yaml:2:5")
    assert '"echo" is also in .system/registry/low-level/echo.yaml:1' in message


def test_settings_that_cannot_be_read_are_told_alone(place):
    place.system("deedbook.yaml", "schema_version: v9\n")
    ((code, where, _),) = errors(place)
    assert (code, where) == ("SOURCE_INVALID", ".system/deedbook.yaml:1:17")


@pytest.mark.parametrize(
    ("more", "line", "column", "key"),
    [
        ("guardrail: strict\n", 6, 1, "guardrail"),
        ("guardrails: [a, b]\n", 6, 1, "guardrails"),
        ("hooks: {guards: [a]}\n", 6, 9, "guards"),
        ("operations:\n  - read: {guardrail: strict}\n", 7, 12, "guardrail"),
    ],
)
def test_old_guardrail_says_which_hooks_take_its_place(place, more, line, column, key):
    ability(place, "old", more)
    ((code, where, message),) = errors(place)
    assert (code, where) == ("SOURCE_INVALID", at("old", line, column))
    assert message.startswith(f"{key}: ")
    for words in (
        "hooks.pre_create for preflight (PreAbilityCreate)",
        "hooks.pre_call",
        "hooks.post_call for telemetry",
    ):
        assert words in message


def test_old_guardrail_in_a_section_is_found_and_one_in_a_schema_is_not(place):
    place.configure("policies:", "abilities: {a: {summary: Does it all., handler: {tool: echo}, guard: x}}\npolicies:")
    ability(place, "echo", "schema_in: {properties: {text: {description: guardrail}}}\nwith: {}\n")
    ((code, where, _),) = errors(place)
    assert (code, where) == ("SOURCE_INVALID", ".system/deedbook.yaml:2:63")


def test_no_words_are_missed_where_ability_md_has_some(place):
    place.system("deedbook.yaml", HEAD)
    for name in ("silent", "quiet"):
        ability(place, name, summary=f"Say {name} things.", intents="")
    place.system("ABILITY.md", "# Speaking\n\nTriggers: speak\n\nUse `silent`.\n")
    place.system("ROUTING.md", "# Speaking\n\nTriggers: speak\n\nUse `quiet`.\n")
    told = [each["message"] for each in lint(place, status=0)["findings"] if "intents" in each["message"]]
    assert told == ["quiet: routing_hints.intents is empty: no words of a prompt speak for it"]


def test_notes_leave_the_status_at_0(place):
    place.system("deedbook.yaml", HEAD)
    ability(place, "silent", summary="Silent.", intents="")
    ability(place, "again")
    place.system("policies/nowhere.yaml", f"{HEAD}id: nowhere\nkind: rules\nmatch: {{tags: x}}\nrules: []\n")
    hook = f"{HEAD}id: lonely\nevent_type: PreToolUse\nhandler: {{hook: allow}}\nmatch: {{tags: [none]}}\n"
    place.system("hooks/lonely.yaml", hook)
    found = lint(place, status=0)
    assert found["ok"]
    assert {each["level"] for each in found["findings"]} == {"note"}
    told = [each["message"] for each in found["findings"]]
    for words in (
        "silent: routing_hints.intents is empty", "silent: the summary 'Silent.' says too little",
        "echo: the summary is that of again, too", "silent: no policy covers silent",
        "hook lonely matches no ability", "policy nowhere matches no ability",
    ):  # fmt: skip
        assert any(message.startswith(words) for message in told), words
    assert all(each["place"].count(":") == 2 for each in found["findings"])
    ran = place.here("registry", "lint", status=0)
    assert ran.out.count("note: ") == len(told)


def test_files_that_are_given_are_looked_at_alone(place):
    ability(place, "missing", tool="ecko")
    ability(place, "odd", "timeout: 5\n")
    one = ".system/registry/low-level/missing.yaml"
    assert [code for code, *_ in errors(place, one)] == ["PLUGIN_MISSING"]
    assert lint(place, ".system/registry/low-level/echo.yaml", status=0)["abilities"] == ["echo"]
    both = lint(place, one, str(place.path / ".system/registry/low-level/odd.yaml"), status=1)
    assert [each["code"] for each in both["findings"] if each["code"]] == ["SOURCE_INVALID", "PLUGIN_MISSING"]


def test_file_that_nobody_reads_is_called_wrongly(place):
    ran = place.here("registry", "lint", ".system/registry/low-level/eco.yaml", status=2)
    assert 'did you mean ".system/registry/low-level/echo.yaml"?' in ran.err


def test_unknown_subcommand_is_called_wrongly(place):
    assert 'did you mean "lint"?' in place.here("registry", "lnt", status=2).err


PROCESS = """
    effects: read
    with: {argv: [PROGRAM, -n, --, "{path}"]}
    schema_in: {type: object, required: [path], properties: {path: {type: string}}, additionalProperties: false}
    schema_out: true
"""


def process(place, program):
    more = "".join(line.strip() + "\n" for line in PROCESS.replace("PROGRAM", program).strip().splitlines())
    return ability(place, "look", more, tool="process", summary="Look into a file.")


@pytest.mark.parametrize("program", ["grepp", "/usr/bin/grepp", "bin/look"])
def test_program_that_this_machine_lacks_is_a_note_with_its_place(place, program):
    process(place, program)
    (found,) = lint(place, status=0)["findings"]
    assert (found["level"], found["place"]) == ("note", at("look", 7, 15))
    assert f'look: this machine has no program "{program}"' in found["message"]
    checks = place.here("doctor", "--json").fits("output_doctor_v1")["checks"]
    (noted,) = [check for check in checks if check["name"] == "program"]
    assert noted["level"] == "note"
    assert noted["found"].startswith(f'{at("look", 7, 15)}: look: this machine has no program "{program}"')


@pytest.mark.parametrize("program", ["sh", "/bin/sh"])
def test_program_that_this_machine_has_is_no_finding(place, program):
    process(place, program)
    assert lint(place, status=0)["findings"] == []


def test_program_is_looked_for_where_the_ability_says(place):
    (place.path / "bin").mkdir()
    (place.path / "bin/grepp").write_text("#!/bin/sh\n")
    (place.path / "bin/grepp").chmod(0o755)
    process(place, "grepp")
    file = place.path / ".system/registry/low-level/look.yaml"
    file.write_text(file.read_text().replace("with: {", f"with: {{env: {{PATH: {place.path}/bin}}, "))
    assert lint(place, status=0)["findings"] == []


# --- flows ----------------------------------------------------------------------------------------------------------


def flow(place, name, handler, more=""):
    head = f"{HEAD}id: {name}\nsummary: The flow {name} of the workspace.\nhandler: {{flow: {handler}}}\n"
    return place.system(f"registry/high-level/{name}.yaml", f"{head}routing_hints: {{intents: [x]}}\n{more}")


def test_ability_in_the_uses_of_a_flow_that_cannot_call_it_is_noted(place):
    flow(place, "audit", "five-point", "uses: [echo]\n")
    flow(place, "outer", "five-point", "uses: [audit]\n")
    (note,) = lint(place, status=0)["findings"]
    assert (note["level"], note["place"]) == ("note", ".system/registry/high-level/audit.yaml:6:1")
    assert note["message"].startswith("audit: uses has echo, which is no flow")
    locked = place.here("lock", status=0).out.splitlines()
    assert [line for line in locked if "which is no flow" in line] == [f"{note['place']}: {note['message']}"]


def test_flow_that_asks_nobody_is_noted_if_somebody_can_answer(place):
    ability(place, "ask", "tags: [approval-gate]\n", summary="Ask a person about a plan.")
    flow(place, "planned", "plan-and-run")
    flow(place, "asking", "plan-and-run", "with: {approval: ask}\n")
    assert lint(place, status=0)["findings"] == []
    place.here("keys", "new", "approver-of-plans", "--out", ".system/plans.pub", status=0)
    place.system("deedbook.yaml", f"""{HEAD}principals: {{approver-of-plans: {{key: plans.pub, roles: [approver]}}}}
policies: {{all: {{kind: rules, rules: [{{match: {{}}, then: allow}}]}}}}
""")  # fmt: skip
    (note,) = lint(place, status=0)["findings"]
    assert note["message"].startswith("planned: no approval in with")
