"""Packs: what wheels bring joins the workspace when YAML names it, is pinned by its wheel, and is never imported."""

import subprocess
import sys
from pathlib import Path

import packing
import pytest
from commandline import Place

POLICY = """\
    schema_version: v1
    id: no-shouting
    kind: rules
    match: {abilities: [echo]}
    rules:
      - {match: {args: {/text: {like: "*!"}}}, then: deny, reason: no shouting}
      - {match: {abilities: ["**"]}, then: allow}
    default: deny
"""
ABILITY = """\
    schema_version: v1
    id: acme/whisper
    summary: Echo quietly.
    handler: {tool: echo}
"""
SKILL = """\
    ---
    name: whisper
    description: Whispers.
    allowed-tools: acme/whisper
    metadata:
      triggers: whisper, murmur
    ---
    Whisper.
"""
FILES = {
    "policies/no-shouting.yaml": POLICY,
    "registry/low-level/whisper.yaml": ABILITY,
    "skills/whisper/SKILL.md": SKILL,
}


@pytest.fixture
def small(tmp_path: Path) -> Place:
    """Give a workspace with one ability."""
    place = Place(tmp_path / "workspace")
    place.system("deedbook.yaml", "schema_version: v1\n")
    place.system(
        "registry/low-level/echo.yaml",
        "schema_version: v1\nid: echo\nsummary: Echo.\nhandler: {tool: echo}\n",
    )
    return place


def activate(place: Place, *entries: str) -> None:
    place.system("deedbook.yaml", f"schema_version: v1\npacks: [{', '.join(entries)}]\n")


def call(place: Place, text: str, ability: str = "echo", **more):
    return place.run("call", ability, "--args", f'{{"text": "{text}"}}', **more)


def test_installing_activates_nothing_and_naming_does(small):
    packing.installed(small, "acme-policies", FILES)
    call(small, "hi!", status=0)
    assert "not used here" in small.run("plugins", "--kind", "pack", status=0).out
    activate(small, "acme-policies")
    assert "used by packs" in small.run("plugins", "--kind", "pack", status=0).out
    denied = call(small, "hi!", status=3)
    assert "no shouting" in denied.err
    assert "pack acme-policies (acme-policies 1.0): policies/no-shouting.yaml:6" in str(
        small.payloads("tool.denied", denied.session)
    )
    call(small, "hi", status=0)
    assert call(small, "psst", "acme/whisper", status=0).json == {"text": "psst"}


def test_a_rule_of_a_pack_may_guard_an_argument_that_no_ability_here_takes(small):
    rule = "{match: {args: {/path: {under: [private]}}}, then: deny}"
    text = f"schema_version: v1\nid: private\nkind: rules\nmatch: {{}}\nrules: [{rule}]\ndefault: allow\n"
    packing.installed(small, "acme-policies", {"policies/private.yaml": text})
    activate(small, "acme-policies")
    call(small, "hi", status=0)
    assert (
        "no argument: no ability that this rule can be about has the argument path" in small.run("lock", status=0).out
    )


def test_what_a_pack_brings_is_told_when_it_is_locked_and_is_pinned_by_its_wheel(small):
    site = packing.installed(small, "acme-policies", FILES)
    small.run("lock", status=0)
    activate(small, "acme-policies")
    told = small.run("lock", status=0).out
    assert "looser  ability acme/whisper is new" in told
    assert "looser  skill whisper is new" in told
    assert "tighter policy no-shouting is new" in told
    small.system("deedbook.yaml", "schema_version: v1\npacks: [acme-policies]\nlock: required\n")
    small.run("lock", "--editable", status=0)
    call(small, "hi", status=0)
    edited = site / "acme_policies/data/policies/no-shouting.yaml"
    edited.write_text(edited.read_text().replace("then: deny", "then: allow"))
    refused = call(small, "hi", status=1)
    assert "acme-policies 1.0 is not the code that is pinned" in refused.err


def test_a_file_that_the_record_does_not_list_is_not_there(small):
    site = packing.installed(small, "acme-policies", FILES)
    activate(small, "acme-policies")
    text = (site / "acme_policies/data/policies/no-shouting.yaml").read_text()
    (site / "acme_policies/data/policies/planted.yaml").write_text(text.replace("no-shouting", "planted"))
    assert "planted" not in small.run("lock", status=0).out


def test_a_recorded_file_that_is_gone_is_refused(small):
    site = packing.installed(small, "acme-policies", FILES)
    activate(small, "acme-policies")
    (site / "acme_policies/data/policies/no-shouting.yaml").unlink()
    assert "pack acme-policies (acme-policies 1.0): policies/no-shouting.yaml: " in small.run("lock", status=1).err


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        (
            "registry/low-level/e.yaml", ABILITY.replace("acme/whisper", "echo"),
            'registry/low-level/e.yaml:2:5: "echo" is also in .system/registry/low-level/echo.yaml:1',
        ),
        ("policies/x.yaml", "schema_version: v1\nid: x\nkind: rulez\nrules: []\n", 'did you mean "rules"?'),
        ("policies/x.yaml", "schema_version: v1\nid: [x\n", "policies/x.yaml:"),
        ("deedbook.yaml", "schema_version: v1\n", "deedbook.yaml: a pack has no settings"),
        ("policy/x.yaml", POLICY, 'policy: is not read; did you mean "policies"?'),
        ("workflows/cycles/x.md", "---\nid: x\n---\n", 'workflows/cycles/x.md:1:1: the key "phases" is missing'),
        ("schemas/x.json", "{}", "schemas: is not read; a pack has the folders"),
        ("registry/mid-level/x.yaml", ABILITY, "registry/mid-level: is not read; put abilities into low-level or"),
        ("policies/deep/x.yaml", POLICY, "policies/deep: is a folder, which is not read"),
        (
            "hooks/h.yaml", "schema_version: v1\nid: h\nevent_type: SessionStart\nhandler: {script: run}\n",
            "hooks/h.yaml:4:11: a pack is data",
        ),
    ],
)  # fmt: skip
def test_a_fault_in_a_pack_names_the_pack_its_distribution_and_the_place(small, path, text, said):
    packing.installed(small, "acme-policies", {**FILES, path: text})
    activate(small, "acme-policies")
    refused = small.run("lock", status=1).err
    assert "pack acme-policies (acme-policies 1.0): " in refused
    assert said in refused


def test_a_pack_that_is_not_installed_is_refused_with_its_place_and_a_guess(small):
    packing.installed(small, "acme-policies", FILES)
    activate(small, "acme-polices")
    refused = small.run("lock", status=1).err
    assert ".system/deedbook.yaml:2:9: pack 'acme-polices' is not installed; did you mean \"acme-policies\"?" in refused


def test_a_pack_that_is_named_twice_is_refused(small):
    packing.installed(small, "acme-policies", FILES)
    activate(small, "acme-policies", "acme-policies")
    assert "acme-policies is listed twice" in small.run("lock", status=1).err


def test_two_packs_with_one_id_are_refused(small):
    packing.installed(small, "acme-policies", FILES)
    packing.installed(small, "other-policies", FILES)
    activate(small, "acme-policies", "other-policies")
    refused = small.run("lock", status=1).err
    assert '"no-shouting" is also in pack acme-policies (acme-policies 1.0): policies/no-shouting.yaml:1' in refused


def test_a_skill_of_a_pack_is_listed_with_its_origin(small):
    packing.installed(small, "acme-policies", FILES)
    activate(small, "acme-policies")
    (row,) = small.run("skills", "--json", status=0).fits("output_skills_v1")["skills"]
    assert (row["name"], row["spelling"], row["portable"]) == ("whisper", "open", True)
    assert row["from"] == "pack acme-policies (acme-policies 1.0)"
    assert row["file"] == "pack acme-policies (acme-policies 1.0): skills/whisper/SKILL.md"


def test_a_pack_installed_in_place_is_read_where_it_is_written(small):
    folder = packing.project(small.path.parent / "projects/acme", "acme-policies", FILES)
    build = "from flit_core.buildapi import build_editable; print(build_editable('.'))"
    made = subprocess.run([sys.executable, "-c", build], cwd=folder, check=True, capture_output=True, text=True)
    site = packing.install(small, folder / made.stdout.strip())
    told = site / "acme_policies-1.0.dist-info"
    (told / "direct_url.json").write_text(f'{{"url": "file://{folder}", "dir_info": {{"editable": true}}}}')
    activate(small, "acme-policies")
    call(small, "hi!", status=3)
    policy = folder / "acme_policies/data/policies/no-shouting.yaml"
    policy.write_text(policy.read_text().replace("no shouting", "be quiet"))
    assert "be quiet" in call(small, "hi!", status=3).err


def test_a_pack_that_pip_installed_works(small, tmp_path):
    built = packing.wheel(packing.project(tmp_path / "projects/acme", "acme-policies", FILES))
    site = tmp_path / "site-packages"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(site), str(built)]
    subprocess.run(pip, check=True, capture_output=True)
    small.env["PYTHONPATH"] = str(site)
    activate(small, "acme-policies")
    call(small, "hi!", status=3)


# --- Agent Plugins ----------------------------------------------------------------------------------------------------


def agent_plugin(
    place: Place, *, marker: str | None = None, skill: str = SKILL, more: dict[str, str] | None = None
) -> Path:
    """Install a distribution that brings an Agent Plugin, laid out as agent-plugins 0.2 lays wheels out."""
    site = packing.installed(place, "acme-tools", {})
    root = site / "acme_tools-1.0.agent-plugin"
    files = {"plugin.json": '{"name": "acme"}', "skills/whisper/SKILL.md": skill, **(more or {})}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(packing.dedent(text))
    told = site / "acme_tools-1.0.dist-info"
    listed = ", ".join(f'"{path}"' for path in files)
    (told / "agent_plugins.json").write_text(marker or f'{{"root": "{root.name}", "files": [{listed}]}}')
    with (told / "RECORD").open("a") as record:
        record.writelines(f"{root.name}/{path},,\n" for path in files)
        record.write(f"{told.name}/agent_plugins.json,,\n")
    return site


def test_skills_of_an_agent_plugin_are_used_and_nothing_else_of_it(small):
    small.system("registry/low-level/whisper.yaml", ABILITY)
    agent_plugin(small, more={"mcp.json": "{}", "policies/no-shouting.yaml": POLICY})
    activate(small, "{plugin: acme_tools}")
    listed = small.run("skills", status=0)
    assert "whisper" in listed.out
    assert "agent plugin (acme-tools 1.0): mcp.json is not used" in listed.err
    call(small, "hi!", status=0)


def test_an_agent_plugin_is_pinned_by_its_wheel(small):
    small.system("registry/low-level/whisper.yaml", ABILITY)
    site = agent_plugin(small)
    small.system("deedbook.yaml", "schema_version: v1\npacks: [{plugin: acme-tools}]\nlock: required\n")
    small.run("lock", "--editable", status=0)
    call(small, "hi", status=0)
    skill = site / "acme_tools-1.0.agent-plugin/skills/whisper/SKILL.md"
    skill.write_text(skill.read_text().replace("Whisper.", "Shout."))
    assert "not the code that is pinned" in call(small, "hi", status=1).err


def test_chosen_skills_of_an_agent_plugin_are_used_and_the_others_are_not(small):
    other = SKILL.replace("whisper", "shout").replace("description: Whispers.\n", "argument-hin: x\n")
    small.system("registry/low-level/whisper.yaml", ABILITY)
    agent_plugin(small, more={"skills/shout/SKILL.md": other})
    activate(small, "{plugin: acme-tools}")
    aside = "skill set aside: agent plugin (acme-tools 1.0): skills/shout/SKILL.md:3"
    assert aside in small.run("lock", status=0).err
    activate(small, "{plugin: acme-tools, skills: [shout]}")
    assert "agent plugin (acme-tools 1.0): skills/shout/SKILL.md:3" in small.run("lock", status=1).err
    activate(small, "{plugin: acme-tools, skills: [whisper]}")
    small.run("lock", status=0)
    activate(small, "{plugin: acme-tools, skills: [wisper]}")
    assert "has no skill 'wisper'; did you mean \"whisper\"?" in small.run("lock", status=1).err


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("{", "agent_plugins.json cannot be read"),
        ('{"root": "acme_tools-1.0.agent-plugin"}', "has no root and files"),
        ('{"root": "/etc", "files": ["plugin.json", "passwd"]}', "not in the record"),
        ('{"root": "..", "files": ["plugin.json"]}', "not in the record"),
        ('{"root": "acme_tools", "files": ["__init__.py"]}', "has no plugin.json"),
        (
            '{"root": "acme_tools-1.0.agent-plugin", "files": ["plugin.json", "../acme_tools/__init__.py"]}',
            "not in the",
        ),
    ],
)
def test_a_marker_that_leads_elsewhere_is_refused(small, marker, said):
    agent_plugin(small, marker=marker)
    activate(small, "{plugin: acme-tools}")
    refused = small.run("lock", status=1).err
    assert ".system/deedbook.yaml:2:9: agent plugin (acme-tools 1.0): " in refused
    assert said in refused


def test_a_distribution_without_an_agent_plugin_is_refused(small):
    activate(small, "{plugin: click}")
    assert "distribution 'click' brings no Agent Plugin" in small.run("lock", status=1).err
    activate(small, "{plugin: no-such-thing-here}")
    assert "distribution 'no-such-thing-here' is not installed" in small.run("lock", status=1).err


# --- tests inside a pack ----------------------------------------------------------------------------------------------

CASES = """\
    schema_version: v1
    cases:
      - {name: shouting, ability: echo, args: {text: "hi!"}, expect: deny, rule: "no-shouting.yaml:6"}
      - {name: talking, ability: echo, args: {text: hi}, expect: allow}
"""
HOOK = "schema_version: v1\nid: bouncer\nevent_type: PreToolUse\nhandler: {hook: allow}\nmatch: {abilities: [echo]}\n"
TRIALS = """\
    schema_version: v1
    cases:
      - {name: lets in, hook: bouncer, event: {ability: echo, args: {text: hi}}, expect: {decision: allow}}
"""


def test_policy_tests_of_a_pack_run_in_the_workspace_that_installs_it(small):
    packing.installed(small, "acme-policies", {**FILES, "policies/loud.test.yaml": CASES})
    activate(small, "acme-policies")
    assert small.run("policy", "test", status=0).out.startswith("2 of 2 cases passed")
    small.system(
        "policies/own.yaml",
        "schema_version: v1\nid: own\nkind: rules\nmatch: {abilities: [echo]}\nrules: []\ndefault: deny\n",
    )
    failed = small.run("policy", "test", status=1).out
    assert (
        "FAILED talking (pack acme-policies (acme-policies 1.0): policies/loud.test.yaml:4): expected allow" in failed
    )


def test_a_fault_in_a_test_of_a_pack_names_the_pack_and_the_place(small):
    wrong = CASES.replace("expect: allow", "expcet: allow")
    packing.installed(small, "acme-policies", {**FILES, "policies/loud.test.yaml": wrong})
    activate(small, "acme-policies")
    small.run("lock", status=0)
    refused = small.run("policy", "test", status=1).err
    assert "pack acme-policies (acme-policies 1.0): policies/loud.test.yaml:4:" in refused
    assert 'did you mean "expect"?' in refused


def test_hook_tests_of_a_pack_run_in_the_workspace_that_installs_it(small):
    packing.installed(small, "acme-policies", {**FILES, "hooks/b.yaml": HOOK, "hooks/b.test.yaml": TRIALS})
    activate(small, "acme-policies")
    assert small.run("hooks", "test", status=0).out == "1 of 1 case passed\n"
