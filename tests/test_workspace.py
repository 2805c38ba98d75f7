"""A workspace, read whole: sections and folders say the same, faults come together and each with its place."""

import json
import os
import re
from hashlib import sha256
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.errors import SourceError
from deedbook.format.notes import SigningKey
from deedbook.format.schema import Schemas, data_folder, lint
from deedbook.policy import match
from deedbook.workspace.documents import parse_yaml
from deedbook.workspace.workspace import load_workspace
from deedbook_policy_standard import ruleset as rules

CHECKOUT = Path(__file__).parent.parent
SOURCE_SCHEMAS = ("deedbook_v1", "policy_v1", "hook_v1", "ability_v1", "skill_frontmatter_v1")
HEAD = "schema_version: v1\n"
POLICY = """\
schema_version: v1
id: baseline
kind: rules
rules:
  - match: {effects: [none]}
    then: allow
  -
    match: {}
    then: ask
default: deny
"""
HOOK = "schema_version: v1\nid: guard\nevent_type: PreAbilityCall\nhandler: {hook: deny-tools}\nwith: {tools: [rm]}\n"
ABILITY = "schema_version: v1\nid: echo\nsummary: Echo.\nhandler: {tool: echo}\n"


@pytest.fixture(scope="module")
def schemas():
    return Schemas.load(data_folder("schemas"))


@pytest.fixture
def workspace(tmp_path, schemas):
    """Write files (paths relative to .system, contents) and load them."""

    def load(said=HEAD, /, **files):
        put(tmp_path, ".system/deedbook.yaml", said)
        for path, text in files.items():
            put(tmp_path, f".system/{path}", text)
        return load_workspace(tmp_path, schemas)

    return load


def put(root, path, text):
    where = root / path
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(text)


def faults(load, *args, **files):
    with pytest.raises(SourceError) as caught:
        load(*args, **files)
    return [str(error) for error in caught.value.errors]


# --- what is read ---------------------------------------------------------------------------------------------------


def test_the_least_workspace_has_the_defaults(workspace, tmp_path):
    found = workspace()
    assert (found.profile, found.enforcement, found.lock) == ("local", "enforce", "auto")
    assert (found.root, found.system, found.state) == (tmp_path, tmp_path / ".system", tmp_path / ".deedbook")
    assert (found.file_roots, found.skill_roots, found.seal) == ((".",), (), ())
    sections = (found.profiles, found.abilities, found.hooks, found.policies, found.roles, found.principals)
    assert not any(sections)


def test_the_repository_is_a_workspace_and_the_starter(schemas):
    found = load_workspace(CHECKOUT, schemas)
    assert "echo" in found.abilities
    assert {"lead", "planner", "worker", "reviewer"} <= set(found.roles)
    assert found.profiles[found.profile].models


def test_schemas_need_not_be_given(tmp_path):
    put(tmp_path, ".system/deedbook.yaml", HEAD)
    assert load_workspace(tmp_path).lock == "auto"


def test_an_ability_keeps_everything_that_its_file_says(workspace):
    text = ABILITY + (
        "kind: memory\nwith: {loud: true}\neffects: read\ntags: [a, b]\n"
        "hooks: {pre_call: [guard], post_call: [watch]}\n"
        "policies: [baseline]\nrouting_hints: {intents: [hello], scopes: [text]}\ntimeout_ms: 5000\n"
        "schema_in: {type: object}\nschema_out: {type: string}\nuses: [file-*]\nbig_integers: string\npaths: [/path]\n"
    )
    found = workspace(**{"registry/low-level/echo.yaml": text}).abilities["echo"]
    assert (found.id, found.place, found.summary) == ("echo", ".system/registry/low-level/echo.yaml:1", "Echo.")
    assert (found.handler, found.kind, found.settings) == ({"tool": "echo"}, "memory", {"loud": True})
    assert (found.effects, found.tags, found.uses) == ("read", {"a", "b"}, {"file-*"})
    assert found.hooks == {"pre_call": ("guard",), "post_call": ("watch",)}
    assert (found.policies, found.intents, found.scopes) == (("baseline",), ("hello",), {"text"})
    assert (found.timeout_ms, found.big_integers, found.paths) == (5000, "string", ("/path",))
    assert (found.schema_in, found.schema_out) == ({"type": "object"}, {"type": "string"})


def test_an_ability_that_says_little_leaves_the_rest_to_its_plugin(workspace):
    found = workspace(**{"registry/high-level/echo.yaml": ABILITY}).abilities["echo"]
    assert (found.kind, found.effects, found.timeout_ms, found.schema_in, found.schema_out) == (None,) * 5
    assert (found.settings, found.hooks, found.policies, found.big_integers) == ({}, {}, (), "refuse")


def test_a_hook_keeps_everything_and_has_defaults(workspace):
    more = "priority: 7\ntimeout_ms: 20\nisolation: worker\nmatch: {kind: [tool]}\n"
    found = workspace(**{"hooks/a.yaml": HOOK, "hooks/b.yaml": HOOK.replace("guard", "other") + more}).hooks
    short, full = found["guard"], found["other"]
    assert (short.match, short.priority, short.timeout_ms, short.isolation) == (None, 0, 1000, "inline")
    assert (full.match, full.priority, full.timeout_ms, full.isolation) == ({"kind": ["tool"]}, 7, 20, "worker")
    assert (short.handler, short.settings) == ({"hook": "deny-tools"}, {"tools": ["rm"]})


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("PromptSubmit", "UserPromptSubmit"),
        ("PreAbilityCall", "PreToolUse"),
        ("PostAbilityCall", "PostToolUse"),
        ("Stop", "Stop"),
    ],
)
def test_other_names_of_events_are_read_as_the_events_own(workspace, said, meant):
    assert workspace(**{"hooks/a.yaml": HOOK.replace("PreAbilityCall", said)}).hooks["guard"].event_type == meant


def test_a_policy_knows_the_place_of_each_rule(workspace):
    found = workspace(**{"policies/baseline.yaml": POLICY}).policies["baseline"]
    assert (found.kind, found.match, found.inline) == ("rules", None, False)
    assert set(found.settings) == {"rules", "default"}
    assert found.place == ".system/policies/baseline.yaml:1"
    assert [found.rule_place(index) for index in (0, 1)] == [f".system/policies/baseline.yaml:{n}" for n in (5, 8)]
    assert found.place_of("/default") == ".system/policies/baseline.yaml:10"


def test_a_policy_of_another_kind_may_say_anything_of_its_own(workspace):
    text = "schema_version: v1\nid: spend\nkind: quota\nmatch: {kind: [model]}\nlimit: 3\nrules: none of the usual\n"
    found = workspace(**{"policies/spend.yaml": text}).policies["spend"]
    assert (found.settings, found.match) == ({"limit": 3, "rules": "none of the usual"}, {"kind": ["model"]})


def test_a_section_says_the_same_as_the_files(workspace):
    def body(text):
        return "".join(f"    {line}\n" for line in text.splitlines() if not line.startswith(("schema_version", "id:")))

    sections = (("policies", "baseline", POLICY), ("hooks", "guard", HOOK), ("abilities", "echo", ABILITY))
    inline = workspace(HEAD + "".join(f"{section}:\n  {name}:\n{body(text)}" for section, name, text in sections))
    files = {"policies/b.yaml": POLICY, "hooks/g.yaml": HOOK, "registry/low-level/e.yaml": ABILITY}
    folders = workspace(**files)
    for section, name, _ in sections:
        here, there = getattr(inline, section)[name], getattr(folders, section)[name]
        assert here.place.startswith(".system/deedbook.yaml:")
        assert attrs.evolve(here, place=there.place) == there
    assert inline.policies["baseline"].inline
    assert inline.policies["baseline"].rule_place(1) == ".system/deedbook.yaml:9"


KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"


def test_settings_are_read(workspace, tmp_path):
    (tmp_path / "skills").mkdir()
    (tmp_path / ".system").mkdir(exist_ok=True)
    (tmp_path / ".system" / "ada.pub").write_text(f"{KEY}\n")
    found = workspace(
        HEAD + "enforcement: observe\nlock: required\nprofile: prod\nprofiles:\n"
        "  prod:\n    durability: always\n    flow: review\n"
        "    models: {large: {provider: openai, model: gpt, with: {temperature: 0}, timeout_ms: 9}}\n"
        "    roles: {lead: large}\n"
        "principals: {ada: {roles: [approver], key: ada.pub}, bot: {via: stdio, on_behalf_of: ada}}\n"
        "secrets: {gh: {env: GITHUB_TOKEN}}\nseal: [user.message/text, {detect: card}]\n"
        "roots: {skills: [./skills/]}\nfiles: {roots: [src, docs]}\n"
    )
    profile = found.profiles["prod"]
    assert (found.enforcement, found.lock, found.profile) == ("observe", "required", "prod")
    assert (profile.durability, profile.flow, profile.roles) == ("always", "review", {"lead": "large"})
    model = profile.models["large"]
    assert (model.provider, model.model, model.settings, model.timeout_ms) == ("openai", "gpt", {"temperature": 0}, 9)
    ada, bot = found.principals["ada"], found.principals["bot"]
    assert (ada.roles, ada.key, ada.via, ada.on_behalf_of) == ({"approver"}, KEY, None, None)
    assert (bot.roles, bot.via, bot.on_behalf_of) == (frozenset(), "stdio", "ada")
    assert (found.secrets, found.seal) == ({"gh": "GITHUB_TOKEN"}, ("user.message/text", {"detect": "card"}))
    assert (found.skill_roots, found.file_roots) == (("skills",), ("src", "docs"))


@pytest.mark.parametrize(
    ("said", "meant"),
    [(".deedbook", "{root}/.deedbook"), ("a/../b", "{root}/b"), ("~/state/x", "{home}/state/x"), ("/var/x", "/var/x")],
)
def test_the_state_is_an_absolute_folder(workspace, tmp_path, monkeypatch, said, meant):
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(workspace(HEAD + f"state: {said}\n").state) == meant.format(root=tmp_path, home="/home/ada")


def test_role_with_a_key_in_its_front_matter_is_refused_with_its_place(workspace):
    with pytest.raises(SourceError, match=r"^\.system/agents/lead\.md:3:1: tier: unknown key; a role is instructions"):
        workspace(HEAD, **{"agents/lead.md": "---\n\ntier: large\n---\nLead.\n"})


def test_roles_are_markdown_with_or_without_empty_front_matter(workspace, tmp_path):
    put(tmp_path, "roles/judge.md", "---\n---\nJudge.\n")
    found = workspace(HEAD + "roots: {agents: [roles]}\n", **{"agents/lead.md": "# Lead\n"}).roles
    assert (found["lead"].body, found["judge"].body) == ("# Lead\n", "Judge.\n")
    assert found["judge"].place == "roles/judge.md:1"


def test_every_file_that_was_read_has_its_digest(workspace, tmp_path):
    put(tmp_path, "more/deep/er/SKILL.md", "deep")
    put(tmp_path, "more/deep/other.md", "not a skill")
    files = {
        "policies/b.yaml": POLICY,
        "hooks/g.yaml": HOOK,
        "registry/low-level/e.yaml": ABILITY,
        "agents/lead.md": "Lead.",
        "skills/greet/SKILL.md": "---\nname: greet\n---\n",
        "skills/greet/reference.md": "not read",
    }
    found = workspace(HEAD + "roots: {skills: [more]}\n", **files)
    read = {".system/deedbook.yaml", "more/deep/er/SKILL.md"} | {
        f".system/{path}" for path in files if not path.endswith("reference.md")
    }
    assert found.digests == {path: sha256((tmp_path / path).read_bytes()).hexdigest() for path in read}


def test_a_workspace_does_not_change(workspace):
    found = workspace()
    with pytest.raises(AttributeError):
        found.enforcement = "observe"


# --- what is refused ------------------------------------------------------------------------------------------------


def test_the_faults_of_all_files_come_together(workspace):
    found = faults(
        workspace,
        HEAD + "polices: {}\nprofile: prod\nlock: maybe\n",
        **{
            "policies/b.yaml": POLICY.replace("allow", "alow").replace("default", "defalt"),
            "policies/c.yaml": "id: [\n",
            "hooks/g.yaml": HOOK.replace("PreAbilityCall", "PreTolUse"),
            "registry/low-level/e.yaml": ABILITY + "timeout_ms: soon\n",
            "agents/lead.md": "---\na: *b\n---\n",
        },
    )
    assert [re.match(r"[^ ]+:\d+:\d+", said)[0] for said in found] == [
        ".system/deedbook.yaml:4:7",
        ".system/deedbook.yaml:2:1",
        ".system/registry/low-level/e.yaml:5:13",
        ".system/hooks/g.yaml:3:13",
        ".system/policies/b.yaml:6:11",
        ".system/policies/b.yaml:10:1",
        ".system/policies/c.yaml:2:1",
        ".system/agents/lead.md:2:4",
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("polices: {}\n", '2:1: polices: unknown key; did you mean "policies"?'),
        (
            "profiles: {local: {durabilty: os}}\n",
            '2:20: profiles.local.durabilty: unknown key; did you mean "durability"?',
        ),
        ("profiles: {local: {max_rounds: 21}}\n", "2:32: profiles.local.max_rounds: "),
        ("profiles: {local: {max_rounds: -1}}\n", "2:32: profiles.local.max_rounds: "),
        ("enforcement: 7\n", '2:14: enforcement: 7 is not one of "observe" or "enforce"'),
        ("enforcement: {a: 1}\n", '2:14: enforcement: is not one of "observe" or "enforce"'),
        (f"enforcement: {'x' * 99}\n", '2:14: enforcement: is not one of "observe" or "enforce"'),
        (
            "enforcement: observed\n",
            '2:14: enforcement: "observed" is not one of "observe" or "enforce"; did you mean "observe"?',
        ),
        ("hooks: {a: {event_type: Stop, handler: {hok: x}}}\n", "2:41: hooks.a.handler.hok: unknown key"),
        ("abilities: {a: {handler: {tool: a}}}\n", '2:16: abilities.a: the key "summary" is missing'),
        ("secrets: {gh: {value: hunter2}}\n", "2:16: secrets.gh.value: unknown key"),
        ("policies: {a: {kind: rules, rules: [], limit: 3}}\n", "2:40: policies.a.limit: unknown key"),
        ("seal: [text]\n", "2:8: seal[0]: does not match"),
        ("roots: {skills: [/etc]}\n", "2:18: roots.skills[0]: does not match"),
    ],
)
def test_a_fault_has_place_reason_and_the_nearest_name(workspace, settings, said):
    assert any(each.startswith(f".system/deedbook.yaml:{said}") for each in faults(workspace, HEAD + settings))


def test_the_same_id_twice_names_both_places(workspace):
    settings = HEAD + "hooks:\n  guard: {event_type: Stop, handler: {hook: stop}}\n"
    (said,) = faults(workspace, settings, **{"hooks/g.yaml": HOOK})
    assert said.startswith('.system/hooks/g.yaml:2:5: "guard" is also in .system/deedbook.yaml:3')


def test_the_same_id_in_two_files_is_refused(workspace):
    (said,) = faults(workspace, **{"registry/low-level/a.yaml": ABILITY, "registry/high-level/b.yaml": ABILITY})
    assert '"echo" is also in .system/registry/low-level/a.yaml:1' in said


def test_the_same_role_in_two_folders_is_refused(workspace, tmp_path):
    put(tmp_path, "roles/lead.md", "Lead.")
    (said,) = faults(workspace, HEAD + "roots: {agents: [roles]}\n", **{"agents/lead.md": "Lead."})
    assert '"lead" is also in .system/agents/lead.md:1' in said


@pytest.mark.parametrize("where", ["file", "section"])
def test_an_old_guardrail_key_says_what_to_write_instead(workspace, where):
    if where == "file":
        (said,) = faults(workspace, **{"registry/low-level/e.yaml": ABILITY + "guardrail: strict\n"})
    else:
        body = "{summary: Echo., handler: {tool: echo}, guardrail: strict}"
        (said,) = faults(workspace, HEAD + f"abilities: {{echo: {body}}}\n")
    assert all(name in said for name in ("hooks.pre_create", "hooks.pre_call", "hooks.post_call"))


@pytest.mark.parametrize(
    ("settings", "place", "said"),
    [
        ("profile: prd\nprofiles: {prod: {}}\n", "2:10", 'profile "prd" is not declared; did you mean "prod"?'),
        ("profile: prod\n", "2:10", 'profile "prod" is not declared'),
        ("profiles: {prod: {}}\n", "1:1", 'profile "local" is not declared'),
        ("profiles: {local: {roles: {lead: large}}}\n", "2:34", '"large" is no tier'),
        ("principals: {bot: {on_behalf_of: adda}, ada: {}}\n", "2:34", 'did you mean "ada"?'),
        ("principals:\n  agent:lead: {}\n", "3:3", "roles of a run"),
        ("abilities:\n  model/x: {summary: x, handler: {tool: x}}\n", "3", "the profile's models"),
        ("state: .\n", "2:8", "a folder of its own"),
        ("state: .system/state\n", "2:8", "outside .system/"),
        ("roots: {skills: [none]}\n", "2:18", 'no folder "none"'),
        ("roots: {agents: [a/../../x]}\n", "2:18", '"../x" leads outside'),
    ],
)
def test_settings_that_contradict_each_other_are_refused(workspace, settings, place, said):
    (found,) = faults(workspace, HEAD + settings)
    assert found.startswith(f".system/deedbook.yaml:{place}: ")
    assert said in found


def test_a_home_that_is_not_there_is_refused(workspace):
    (found,) = faults(workspace, HEAD + "state: ~no-such-user-here/x\n")
    assert "the state needs a folder of its own" in found


def test_settings_are_required(tmp_path, schemas):
    (tmp_path / ".system").mkdir()
    assert faults(load_workspace, tmp_path, schemas) == [
        ".system/deedbook.yaml: cannot be read: No such file or directory"
    ]


def test_a_folder_that_is_not_there_is_no_workspace(tmp_path, schemas):
    with pytest.raises(SourceError) as caught:
        load_workspace(tmp_path / "nowhere", schemas)
    assert caught.value.error.code == "WORKSPACE_NOT_FOUND"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("deedbook.yml", 'is not read; did you mean "deedbook.yaml"?'),
        ("policy/a.yaml", 'is not read; did you mean "policies"?'),
        ("hook/a.yaml", 'is not read; did you mean "hooks"?'),
        ("registry/lowlevel/a.yaml", "put abilities into low-level or high-level"),
        ("registry/a.yaml", "put abilities into low-level or high-level"),
        ("policies/a.yml", 'rename it to "a.yaml"'),
        ("policies/team/a.yaml", "move its files up"),
        ("agents/lead.markdown", 'rename it to "lead.md"'),
        ("agents/the lead.md", "a role is named with"),
    ],
)
def test_what_nobody_would_read_is_refused(workspace, path, said):
    (found,) = faults(workspace, **{path: POLICY})
    assert said in found


def test_names_that_resemble_nothing_are_left_alone(workspace):
    assert workspace(**{"README.md": "About.", "notes/x.txt": "x", ".gitkeep": "", "ROUTING.md": ""}).lock == "auto"


@pytest.mark.parametrize(
    "path", ["deedbook.yaml", "policies/a.yaml", "hooks/a.yaml", "agents/lead.md", "skills", "policies"]
)
def test_a_link_is_refused_wherever_a_source_is_expected(tmp_path, schemas, path):
    put(tmp_path, ".system/deedbook.yaml", HEAD)
    put(tmp_path, "outside/file", HEAD)
    where = tmp_path / ".system" / path
    where.parent.mkdir(parents=True, exist_ok=True)
    where.unlink(missing_ok=True)
    where.symlink_to(tmp_path / "outside" / ("file" if where.suffix else ""))
    with pytest.raises(SourceError) as caught:
        load_workspace(tmp_path, schemas)
    assert "PATH_REFUSED" in {error.code for error in caught.value.errors}
    assert {error.place for error in caught.value.errors} == {f".system/{path}"}


def test_a_system_folder_that_is_a_link_is_refused(tmp_path, schemas):
    put(tmp_path, "real/deedbook.yaml", HEAD)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / ".system").symlink_to(tmp_path / "real")
    with pytest.raises(SourceError, match="link"):
        load_workspace(tmp_path / "here", schemas)


def test_a_skill_that_is_a_link_a_pipe_a_device_or_too_large_has_a_reason_and_no_digest(workspace, tmp_path):
    skills = tmp_path / ".system" / "skills"
    put(tmp_path, "outside/SKILL.md", "x")
    for name in ("device", "large", "pipe"):
        put(skills, f"{name}/SKILL.md", "x" * 600_000)
    put(skills, "long/SKILL.md", "x" * 500_000)
    (skills / "linked").symlink_to(tmp_path / "outside")
    (skills / "pipe" / "SKILL.md").unlink()
    os.mkfifo(skills / "pipe" / "SKILL.md")
    (skills / "device" / "SKILL.md").unlink()
    (skills / "device" / "SKILL.md").symlink_to("/dev/zero")
    found = workspace()
    assert [
        re.match(r"\S+: [a-z]+ \S+", str(why))[0].removeprefix(".system/skills/") for why in found.unread.values()
    ] == [
        "linked: is a",
        "device/SKILL.md: is a",
        "large/SKILL.md: more than",
        "pipe/SKILL.md: is a",
    ]
    assert set(found.digests) == {".system/deedbook.yaml", ".system/skills/long/SKILL.md"}


def test_links_inside_a_skill_that_nobody_follows_are_left_alone(workspace, tmp_path):
    put(tmp_path, ".system/skills/greet/SKILL.md", "x")
    (tmp_path / ".system/skills/greet/assets").symlink_to("/etc")
    assert set(workspace().digests) == {".system/deedbook.yaml", ".system/skills/greet/SKILL.md"}


def test_every_yaml_file_is_read_strictly(workspace):
    found = faults(workspace, **{"hooks/a.yaml": "a: &x 1\nb: *x\n", "policies/b.yaml": "%YAML 1.1\n---\na: no\n"})
    assert [said.split(":")[0] for said in found] == [".system/hooks/a.yaml"] * 2 + [".system/policies/b.yaml"]


# --- schemas and docs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOURCE_SCHEMAS)
def test_a_schema_passes_the_lint_and_describes_its_keys(schemas, name):
    document = schemas.document(name)
    assert lint(document) == ()
    assert document["$id"] == name
    described = {**document["properties"], **document.get("$defs", {})}
    assert [key for key, part in described.items() if "$ref" not in part and "description" not in part] == []


@pytest.mark.parametrize(("section", "name"), [("ability", "ability_v1"), ("hook", "hook_v1"), ("policy", "policy_v1")])
def test_a_section_and_a_file_have_the_same_schema(schemas, section, name):
    def without(part):
        return {key: value for key, value in part.items() if key not in ("id", "schema_version")}

    file, settings = schemas.document(name), schemas.document("deedbook_v1")
    inline = settings["$defs"][section]
    assert without(file["properties"]) == inline["properties"]
    assert [key for key in file["required"] if key not in ("id", "schema_version")] == inline["required"]
    assert file.get("additionalProperties") == inline.get("additionalProperties")
    if "then" in file:
        assert file["if"] == inline["if"]
        assert without(file["then"]["properties"]) == inline["then"]["properties"]
    assert all(settings["$defs"][key] == part for key, part in file["$defs"].items())


@pytest.mark.parametrize("name", ["deedbook_v1", "policy_v1", "hook_v1"])
def test_a_match_is_what_the_match_grammar_says(schemas, name):
    assert schemas.document(name)["$defs"]["match"] == json.loads(json.dumps(match.SCHEMA))


def test_the_rules_of_a_policy_are_what_the_kind_rules_takes(schemas):
    document = schemas.document("policy_v1")
    settings = json.loads(json.dumps(rules.SETTINGS))
    rule = {"description": "", **settings["properties"]["rules"]["items"]}
    rule["properties"]["match"] = {"$ref": "#/$defs/match"}
    assert {**document["$defs"]["rule"], "description": ""} == rule
    assert document["then"]["required"] == settings["required"]
    assert document["then"]["properties"]["default"] == settings["properties"]["default"]


@pytest.mark.parametrize(
    ("front", "fits"),
    [
        ("{name: greet, description: Greets.}", True),
        ("{name: greet, description: Greets., allowed-tools: [echo, files/read]}", True),
        ("{name: greet, description: Greets., allowed-tools: 'Bash(git add:*) Read'}", True),
        ("{name: greet, description: Greets., metadata: {triggers: [hi], version: '2'}, license: MIT}", True),
        ("{name: greet, description: Greets., triggers: [hi], version: 1, plugin: x, schema_version: v1}", True),
        ("{description: Greets.}", False),
        ("{name: greet}", False),
        ("{name: ../../etc, description: x}", False),
        ("{name: Greet, description: x}", False),
        ("{name: greet, description: x, allowed-tools: '*'}", False),
        ("{name: greet, description: x, allowed-tools: ['*']}", False),
        ("{name: greet, description: x, allowed-tools: 'file-*'}", False),
        ("{name: greet, description: x, triggers: ['']}", False),
        ("{name: greet, description: x, metadata: {triggers: [' ']}}", False),
        ("{name: greet, description: x, schema_version: v2}", False),
    ],
)
def test_front_matter_of_a_skill(schemas, front, fits):
    value = parse_yaml(front.encode(), "SKILL.md").value
    assert schemas.validator("skill_frontmatter_v1").valid(value) is fits


PUBLIC = f"{SigningKey.generate('ada').public}\n"


def examples():
    """Return the files that the page shows, by path."""
    text = (CHECKOUT / "docs" / "workspace.md").read_text()
    return dict(re.findall(r"```(?:yaml|markdown)\n(?:# |<!-- )(\S+).*?\n(.*?)```", text, re.DOTALL))


NAMED = {
    ".system/ada.pub": PUBLIC,
    ".system/log.pub": PUBLIC,
    ".system/persona.json": '{"schema_version": "v1", "id": "desk", "version": 1}',
}
"""The files that the page's settings name and that it does not show."""


def test_the_examples_of_the_page_make_a_workspace(tmp_path, schemas):
    for path, body in {**examples(), **NAMED}.items():
        put(tmp_path, path, body)
    found = load_workspace(tmp_path, schemas)
    abilities = {name for name in found.abilities if not name.startswith("claude-code/")}
    assert (set(found.policies), set(found.hooks), abilities) == ({"baseline"}, {"redact"}, {"file-write"})
    assert set(found.digests) == {*examples(), *NAMED}


def test_the_messages_of_the_page_are_what_is_said(workspace):
    page = (CHECKOUT / "docs" / "workspace.md").read_text()
    hook = HOOK.replace("PreAbilityCall", "UserPromptSubmitted")
    found = faults(workspace, HEAD + "lock: auto\npolices: {}\n", **{"hooks/redact.yaml": hook})
    assert all(said in page for said in found)


def places(value, way=()):
    """Yield the way to every value within *value*."""
    yield way
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*way, key))


def with_other(value, way, other):
    if not way:
        return other
    changed = value.copy()
    changed[way[0]] = with_other(value[way[0]], way[1:], other)
    return changed


ODD = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    "a\0b",
    "a\nb",
    "~",
    "../x",
    "/",
    "a b",
    [],
    [1],
    [[]],
    {},
    {"x": 1},
    {"": {}},
    "x" * 5000,
]


@given(st.data())
def test_whatever_a_file_says_is_a_workspace_or_a_fault_with_its_place(schemas, tmp_path_factory, data):
    root = tmp_path_factory.mktemp("odd")
    for path, body in {**examples(), **NAMED}.items():
        put(root, path, body)
    path = data.draw(st.sampled_from([path for path in examples() if path.endswith(".yaml")]))
    value = parse_yaml(examples()[path].encode(), path).value
    way = data.draw(st.sampled_from(list(places(value))))
    put(root, path, json.dumps(with_other(value, way, data.draw(st.sampled_from(ODD)))))
    try:
        load_workspace(root, schemas)
    except SourceError as problem:
        assert {error.place.split(":")[0] for error in problem.errors} <= {path}  # noqa: PT017 - what is said, not that


@pytest.mark.parametrize("spelled", ["keys/ada.pub", "./keys/ada.pub", "./keys//./ada.pub"])
def test_key_of_a_principal_is_found_however_its_path_is_spelled(lab, spelled):
    public = str(SigningKey.generate("ada").public)
    lab.write("keys/ada.pub", f"{public}\n")
    lab.settings(principals={"ada": {"key": spelled, "roles": ["approver"]}})
    assert lab.kernel().active_charter.charter.document["principals"]["ada"]["key"] == public
