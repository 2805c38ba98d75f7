"""SKILL.md files and .agent cards become skills, wherever the roots say that they stand."""

from deedbook import Failed, Skill
from deedbook_skill_markdown import Markdown

# --- the forms --------------------------------------------------------------------------------------------------------


def test_loader_reads_the_open_form(workspace):
    front = (
        "name: a\ndescription: Does a.\nlicense: MIT\ncompatibility: needs git\n"
        "allowed-tools: echo file-read\nmetadata:\n  author: somebody\n  triggers: [do a, a]\n  version: '1.0'"
    )
    assert workspace.skill(front) == Skill(
        name="a",
        description="Does a.",
        body="Body.\n",
        allowed=frozenset({"echo", "file-read"}),
        triggers=("do a", "a"),
        metadata={
            "author": "somebody",
            "triggers": ["do a", "a"],
            "version": "1.0",
            "license": "MIT",
            "compatibility": "needs git",
        },
        source="skills/a/SKILL.md",
    )


def test_loader_reads_the_form_with_top_level_keys(workspace):
    front = (
        "name: a\ndescription: Does a.\ntriggers:\n  - do a\nallowed-tools:\n  - echo\n"
        "plugin: skeleton\nversion: 1\nschema_version: v1"
    )
    found = workspace.skill(front)
    assert (found.triggers, found.allowed) == (("do a",), {"echo"})
    assert found.metadata == {"plugin": "skeleton", "version": 1, "schema_version": "v1"}


def test_loader_reads_the_keys_of_claude_code_that_take_nothing_away(workspace):
    front = (
        "name: a\ndescription: d\nallowed-tools: Bash(git add:*), Read,Bash(git status) mcp__x__y\n"
        "argument-hint: '[file]'\nwhen_to_use: Often.\nmodel: opus\neffort: high\nuser-invocable: true"
    )
    found = workspace.skill(front)
    assert found.allowed == {"Bash(git add:*)", "Read", "Bash(git status)", "mcp__x__y"}
    assert found.metadata["argument-hint"] == "[file]"


def test_skill_that_no_model_may_choose_has_no_triggers(workspace):
    front = "name: a\ndescription: d\ntriggers: [do a]\ndisable-model-invocation: true"
    assert workspace.skill(front).triggers == ()
    assert workspace.skill(front.replace("true", "false")).triggers == ("do a",)


def test_text_of_half_a_mebibyte_is_read(workspace):
    assert len(workspace.skill("name: a\ndescription: d", body="x" * 512 * 1024).body) == 512 * 1024


def test_what_is_wrong_with_a_skill_names_its_file(workspace):
    found = workspace.load_one("name: b\ndescription: d")
    assert found.source == "skills/a/SKILL.md"


def test_triggers_under_metadata_may_be_a_text_with_commas(workspace):
    found = workspace.skill("name: a\ndescription: d\nmetadata: {triggers: 'say hello, hi'}")
    assert found.triggers == ("say hello", "hi")


def test_skill_without_allowed_tools_may_use_nothing(workspace):
    assert workspace.skill("name: a\ndescription: d").allowed == frozenset()


def test_metadata_keeps_nested_rules(workspace):
    found = workspace.skill("name: a\ndescription: d\nmetadata: {deedbook: {rules: [{pattern: x}]}}")
    assert found.metadata["deedbook"]["rules"] == [{"pattern": "x"}]


def test_body_is_what_follows_the_front_matter_letter_by_letter(workspace):
    found = workspace.skill("name: a\ndescription: d", body="# T\r\n\n---\nnot a fence of mine  \n")
    assert found.body == "# T\r\n\n---\nnot a fence of mine  \n"


def test_file_with_windows_line_ends_is_read(workspace):
    workspace.put("a", "---\r\nname: a\r\ndescription: d\r\n---\r\nBody.\r\n")
    (found,) = workspace.load()
    assert isinstance(found, Skill)
    assert (found.description, found.body) == ("d", "Body.\r\n")


def test_card_in_the_minimal_form_is_read_without_loading_a_persona(workspace):
    text = "identity: orion\ndomain: backend engineering\ncapabilities: [run_sql, file-read]\nstate: {skills: s.md}\n"
    workspace.put("orion", text, ".agent")
    workspace.put("orion", b"\xff the persona is not UTF-8, and never read", "persona.md")
    (found,) = workspace.load()
    assert found == Skill(
        name="orion",
        description="backend engineering",
        body="",
        allowed=frozenset({"run_sql", "file-read"}),
        metadata={"card": "agent", "state": {"skills": "s.md"}},
        source="skills/orion/.agent",
    )


def test_card_in_the_form_of_a_skill_is_read(workspace):
    workspace.put("orion", "---\nname: orion\ndescription: d\nallowed-tools: [echo]\n---\nAt work.\n", ".agent")
    (found,) = workspace.load()
    assert isinstance(found, Skill)
    assert (found.name, found.body, found.metadata) == ("orion", "At work.\n", {"card": "agent"})


def test_card_with_eleven_capabilities_is_refused(workspace):
    workspace.put("orion", f"identity: orion\ndomain: d\ncapabilities: {list('abcdefghijk')}\n", ".agent")
    (found,) = workspace.load()
    assert str(found).startswith("skills/orion/.agent:3:1: capabilities: more than 10")


def test_card_that_says_its_name_twice_is_refused(workspace):
    workspace.put("orion", "identity: orion\nname: orion\ndomain: d\n", ".agent")
    (found,) = workspace.load()
    assert "identity: means the same as name; keep one" in str(found)


# --- where things stand -----------------------------------------------------------------------------------------------


def test_loader_yields_good_skills_beside_bad_ones_in_order(workspace):
    workspace.put("c", "---\nname: c\ndescription: d\n---\n")
    workspace.put("b", "---\nname: other\ndescription: d\n---\n")
    workspace.put("a", "---\nname: a\ndescription: d\n---\n")
    names = [item.name if isinstance(item, Skill) else item.code for item in workspace.load()]
    assert names == ["a", "SOURCE_INVALID", "c"]


def test_loader_reads_again_at_each_call(workspace):
    (workspace.root / "skills").mkdir()
    loader = Markdown({"roots": ["skills"]}, workspace.host())
    assert list(loader()) == []
    workspace.put("a", "---\nname: a\ndescription: d\n---\n")
    assert [item.name for item in loader()] == ["a"]


def test_folder_without_a_skill_is_no_skill(workspace):
    workspace.put("notes", "just notes", "README.md")
    assert workspace.load() == []


def test_missing_root_is_reported(workspace):
    (found,) = workspace.load("skils")
    assert str(found) == "skils: no such folder; correct the root, or make it"
    assert found.source == ""


def test_workspace_without_the_default_roots_has_no_skills(workspace):
    assert list(Markdown({}, workspace.host())()) == []


def test_root_that_leads_outside_is_refused(workspace):
    (found,) = workspace.load("../elsewhere")
    assert isinstance(found, Failed)
    assert found.code == "PATH_REFUSED"
    assert str(found).startswith("../elsewhere: cannot be read")


def test_root_named_twice_is_read_once(workspace):
    workspace.put("a", "---\nname: a\ndescription: d\n---\n")
    assert len(workspace.load("skills", "skills")) == 1


def test_name_that_two_files_claim_goes_to_neither(workspace):
    workspace.put("greet", "---\nname: greet\ndescription: ours\n---\n")
    other = workspace.root / "theirs" / "greet"
    other.mkdir(parents=True)
    (other / "SKILL.md").write_text("---\nname: greet\ndescription: theirs\n---\n")
    found = workspace.load("skills", "theirs")
    assert [str(item) for item in found] == [
        "skills/greet/SKILL.md:1:1: the name greet is taken twice, also by theirs/greet/SKILL.md; rename one",
        "theirs/greet/SKILL.md:1:1: the name greet is taken twice, also by skills/greet/SKILL.md; rename one",
    ]


def test_skills_of_this_repository_load(checkout):
    found = list(Markdown({"roots": ["plugins/deedbook-author/src/deedbook_author/data/starter/skills"]}, checkout)())
    assert {"greet", "survey"} <= {item.name for item in found if isinstance(item, Skill)}
    assert [str(item) for item in found if isinstance(item, Failed)] == []
