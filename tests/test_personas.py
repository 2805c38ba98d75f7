"""Cards: small files that say who an agent is; the persona beside one is read when the agent is chosen, not before."""

import json
from collections.abc import Mapping
from pathlib import Path

import packing
import pytest
from agent_cards import SEED_CARD
from commandline import Place

from deedbook import Failed
from deedbook.charter.changes import compare
from deedbook.workspace.workspace import survey_workspace

CARD = """\
identity: {name}
domain: backend-engineering

capabilities:
  - echo

state:
  skills: skills.md
  goals: goals.md

budget:
  max_skills: 7
"""


def card(place: Place, name: str = "orion", text: str = CARD, persona: str | None = "You are Orion.\n") -> None:
    place.system(f"agents/{name}/.agent", text.format(name=name))
    for each in ("skills.md", "goals.md"):
        place.system(f"agents/{name}/{each}", "# None yet\n")
    if persona is not None:
        place.system(f"agents/{name}/persona.md", persona)


@pytest.fixture
def small(tmp_path) -> Place:
    place = Place(tmp_path / "workspace")
    place.system("deedbook.yaml", "schema_version: v1\n")
    place.system("registry/low-level/echo.yaml", "schema_version: v1\nid: echo\nsummary: E.\nhandler: {tool: echo}\n")
    return place


def test_agents_lists_cards_and_roles(small):
    card(small)
    small.system("agents/lead.md", "You lead.\n")
    rows = small.here("agents", "--json", status=0).fits("output_agents_v1")["agents"]
    assert rows[0] == {
        "id": "orion", "kind": "agent", "domain": "backend-engineering", "capabilities": ["echo"],
        "state": {"skills": "skills.md", "goals": "goals.md"}, "budget": {"max_skills": 7, "max_goals": 5},
        "bytes": len(CARD.format(name="orion")), "persona": True, "place": ".system/agents/orion/.agent:1",
    }  # fmt: skip
    assert [(row["id"], row["kind"]) for row in rows] == [("orion", "agent"), ("lead", "role")]


def test_agents_are_found_by_what_they_can_do(small):
    card(small)
    card(small, "iris", CARD.replace("  - echo\n", "  []\n"))
    assert small.here("agents", "--can", "echo", status=0).out.split()[0] == "orion"
    assert "iris" not in small.here("agents", "--can", "echo").out


def test_hundreds_of_cards_are_listed_and_none_of_their_personas_is_in_the_charter(small):
    for number in range(300):
        card(small, f"a{number}", persona=f"persona of {number}\n")
    assert len(small.here("agents", "--json", status=0).json["agents"]) == 300
    small.run("lock", status=0)
    (kept,) = small.path.glob(".deedbook/charters/*/charter.json")
    assert len(json.loads(kept.read_text())["agents"]) == 300
    assert "persona of 7" not in kept.read_text()


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (CARD.replace("identity: {name}\n", ""), "1:1", 'the key "identity" is missing'),
        (CARD.replace("domain: backend-engineering\n", ""), "1:1", 'the key "domain" is missing'),
        (CARD.replace("{name}", "iris"), "1:11", "identity: iris is in the folder orion"),
        (CARD.replace("identity: {name}", "identity: a/b"), "1:11", "identity"),
        (CARD.replace("  - echo\n", "  - echo\n" * 11), "5:3", "capabilities: has more than 10 items"),
        (CARD.replace("  - echo\n", "  - '*'\n"), "5:5", "capabilities[0]"),
        (CARD.replace("skills: skills.md\n", "x: y\n"), "8:3", "unknown key"),
        (CARD.replace("skills.md", "../x"), "8:11", "state.skills"),
        (CARD.replace("max_skills: 7", "max_skills: -1"), "12:15", "budget.max_skills"),
        (CARD + "persona: You are.\n", "13:1", "unknown key"),
        (CARD + f"# {'x' * 2048}\n", "", "more than 2048 bytes; a card is small"),
        ("---\n" + CARD + "---\n" + CARD, "14:1", "a second document"),
        ("identity: &a orion\ndomain: *a\nstate: {{skills: s}}\n", "1:11", "an anchor"),
    ],
)
def test_a_card_that_is_not_exactly_one_is_refused_with_its_place(small, text, place, said):
    card(small, text=text)
    refused = small.here("lock", status=1).err
    assert f".system/agents/orion/.agent:{place}" in refused
    assert said in refused


def orion(root: Path, text: str = SEED_CARD, files: Mapping[str, str] = {}) -> list[str]:
    """Return the faults of a workspace whose only agent is Orion, with the card *text* and *files* beside it."""
    folder = root / ".system" / "agents" / "orion"
    for name, body in {"skills.md": "", "goals.md": "", **files, ".agent": text}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(body)
    (root / ".system" / "deedbook.yaml").write_text("schema_version: v1\n")
    return [f"{fault.place}: {fault.message}" for fault in survey_workspace(root)[1]]


def test_a_card_with_unknown_capabilities_loads_and_they_are_marked(small):
    card(small, text=SEED_CARD)
    small.here("lock", status=0)
    (kept,) = small.path.glob(".deedbook/charters/*/charter.json")
    agent = json.loads(kept.read_text())["agents"]["orion"]
    assert agent["capabilities"] == ["http_request", "read_file", "run_sql"]
    assert agent["allowed"] == []
    assert agent["without"]["run_sql"].startswith("no ability or alias has this name")


def test_the_mark_of_a_misspelt_capability_suggests_the_nearest_ability(small):
    card(small, text=CARD.replace("- echo", "- ehco"))
    small.here("lock", status=0)
    (kept,) = small.path.glob(".deedbook/charters/*/charter.json")
    assert 'did you mean "echo"?' in json.loads(kept.read_text())["agents"]["orion"]["without"]["ehco"]


@pytest.mark.parametrize(("missing", "line"), [("skills", 10), ("goals", 11)])
def test_a_state_file_that_a_card_names_has_to_exist(tmp_path, missing, line):
    assert orion(tmp_path) == []
    (tmp_path / f".system/agents/orion/{missing}.md").unlink()
    (fault,) = (f"{each.place}: {each.message}" for each in survey_workspace(tmp_path)[1])
    assert fault.startswith(f".system/agents/orion/.agent:{line}:")
    assert f"state.{missing}: there is no {missing}.md in .system/agents/orion" in fault


def test_a_state_file_that_is_a_link_is_refused_once(tmp_path):
    orion(tmp_path)
    (tmp_path / ".system/agents/orion/goals.md").unlink()
    (tmp_path / ".system/agents/orion/goals.md").symlink_to("skills.md")
    (fault,) = survey_workspace(tmp_path)[1]
    assert (fault.code, fault.place) == ("PATH_REFUSED", ".system/agents/orion/goals.md")


FIVE = {f"skills/{name}.md": "A skill.\n" for name in "abcde"}
TWO = SEED_CARD.replace("max_skills: 20", "max_skills: 2")


@pytest.mark.parametrize(
    ("text", "files", "said"),
    [
        (
            TWO,
            FIVE,
            ".agent:14:15: budget.max_skills: at most 2 skills, and there are 5 (too many from skills/c.md on)",
        ),
        (TWO.replace("skills.md", "skills"), FIVE, "there are 5 (too many from skills/c.md on)"),
        (TWO, {f"skills/{name}/SKILL.md": "" for name in "abc"}, "there are 3 (too many from skills/c on)"),
        (TWO, {**FIVE, "skills.md": "- one\n"}, "there are 6 (too many from skills/b.md on)"),
        (TWO, {"skills.md": "# Skills\n- one\n- two\n  - a part of two\n- three\n"}, "(too many from skills.md:5 on)"),
        (TWO, {"skills.md": "## One\n- how\n## Two\n## Three\n"}, "(too many from skills.md:4 on)"),
        (TWO, {"skills.md": "1. one\n2) two\n* three\n"}, "(too many from skills.md:3 on)"),
        (SEED_CARD, {"goals.md": "- goal\n" * 6}, ".agent:11:10: budget.max_goals: at most 5 goals, and there are 6"),
        (SEED_CARD, {"skills.md": "- skill\n" * 21}, "at most 20 skills, and there are 21"),
        (SEED_CARD.replace("  goals: goals.md\n", ""), {f"goals/{n}.md": "" for n in range(6)}, "at most 5 goals"),
    ],
)
def test_more_skills_or_goals_than_the_budget_are_refused_with_the_place(tmp_path, text, files, said):
    (fault,) = orion(tmp_path, text, files)
    assert said in fault


@pytest.mark.parametrize(
    "files",
    [
        {"skills/a.md": "", "skills/b.md": "", "skills/notes.txt": "no skill"},
        {"skills.md": "---\nlist:\n- a\n- b\n- c\n---\n- one\n- two\n"},
        {"skills.md": "- one\n\n```yaml\n- a\n- b\n```\n\n- - -\n\n- two\n  - half\n"},
        {"skills.md": "~~~~\n- a\n~~~\n- b\n- c\n~~~~\n"},
    ],
)
def test_what_is_no_skill_does_not_count(tmp_path, files):
    assert orion(tmp_path, TWO, files) == []


def test_a_warm_start_refuses_a_skill_that_was_added(small):
    card(small, text=TWO)
    small.here("lock", status=0)
    for name in "abc":
        small.system(f"agents/orion/skills/{name}.md", "A skill.\n")
    assert "at most 2 skills" in small.here("lock", status=1).err


def test_a_folder_without_a_card_holds_no_agent(small):
    small.system("agents/orion/persona.md", "You are Orion.\n")
    assert "orion" not in small.here("agents", status=0).out


def test_a_name_of_a_role_and_an_agent_is_refused(small):
    card(small)
    small.system("agents/orion.md", "You are somebody else.\n")
    refused = small.here("lock", status=1).err
    assert '"orion" is also in .system/agents/orion.md:1' in refused


def files_of_an_agent(folder: str) -> dict[str, str]:
    files = {".agent": CARD.format(name="orion"), "skills.md": "", "goals.md": ""}
    return {f"{folder}/orion/{name}": text for name, text in files.items()}


def test_a_card_of_a_pack_counts_and_names_its_pack(small):
    packing.installed(small, "acme-agents", files_of_an_agent("agents"))
    small.system("deedbook.yaml", "schema_version: v1\npacks: [acme-agents]\n")
    (row,) = small.run("agents", "--json", status=0).json["agents"]
    assert row["place"] == "pack acme-agents (acme-agents 1.0): agents/orion/.agent:1"


# --- at work ----------------------------------------------------------------------------------------------------------


def ask(run, name="orion"):
    return run.agent(name).complete({"messages": [{"role": "user", "content": run.agent(name).instructions}]})["text"]


def at_work(lab, flow, *, allows="echo shout"):
    lab.tool("echo", lambda args, ctx: args)
    lab.tool("shout", lambda args, ctx: args)
    lab.model(lambda request, ctx: request["messages"][0]["content"])
    lab.flow("work", flow)
    lab.skill("go", allows=allows)
    agent(lab, "orion", CARD)
    return lab.session().run("go")


def agent(lab, name, text):
    files = {
        ".agent": text.format(name=name),
        "skills.md": "",
        "goals.md": "",
        "persona.md": f"You are {name.title()}.\n",
    }
    for each, body in files.items():
        lab.write(f"agents/{name}/{each}", body)


def test_the_persona_is_read_when_the_agent_is_chosen(lab):
    assert at_work(lab, lambda args, run: {"reply": ask(run)}).value.text == "You are Orion.\n"


def test_a_persona_that_changed_meanwhile_is_refused(lab):
    def flow(args, run):
        lab.write("agents/orion/persona.md", "You are somebody else.\n")
        return {"reply": ask(run)}

    assert at_work(lab, flow).error.code == "CHARTER_CHANGED"


def test_an_agent_has_the_capabilities_of_its_card_and_no_more(lab):
    def flow(args, run):
        return {"reply": " ".join(tool["name"] for tool in run.agent("orion").tools())}

    assert at_work(lab, flow).value.text == "echo"


def test_an_agent_without_a_persona_is_refused(lab):
    def flow(args, run):
        return {"reply": ask(run, "iris")}

    agent(lab, "iris", CARD)
    (lab.path / ".system/agents/iris/persona.md").unlink()
    assert "iris" in at_work(lab, flow).error.message


def test_an_unknown_capability_is_not_offered_and_its_use_is_refused_with_the_reason(lab):
    """The model asks for it all the same; the refusal names the card and is recorded."""
    wants = {"id": "1", "name": "run_sql", "args": {}}
    lab.tool("echo", lambda args, ctx: args)
    lab.model(lambda request, ctx: {"finish_reason": "tool_use", "tool_calls": [wants]})

    def flow(args, run):
        iris = run.agent("iris")
        assert [tool["name"] for tool in iris.tools()] == ["echo"]
        (asked,) = iris.complete({"messages": [{"role": "user", "content": "go"}]})["tool_calls"]
        with pytest.raises(Failed) as caught:
            iris.use(asked)
        assert caught.value.code == "TOOL_NOT_FOUND"
        return {"reply": str(caught.value)}

    lab.flow("work", flow)
    lab.skill("go", allows="echo")
    agent(lab, "iris", SEED_CARD.replace("orion", "iris").replace("read_file", "echo"))
    with lab.session() as session:
        reply = session.run("go").value.text
    assert "'run_sql' is an unknown capability on the card of iris: no ability or alias has this name" in reply
    assert lab.payload("tool.denied", session)["reason"] in reply


def test_a_capability_may_be_an_alias(lab):
    def flow(args, run):
        (found,) = run.agents()
        assert (found.capabilities, found.abilities, found.unknown) == ({"say"}, {"echo"}, {})
        return {"reply": " ".join(tool["name"] for tool in run.agent("iris").tools())}

    lab.tool("echo", lambda args, ctx: args)
    lab.model(lambda request, ctx: "ok")
    lab.flow("work", flow)
    lab.skill("go", allows="echo")
    lab.settings(tool_aliases={"say": "echo"})
    agent(lab, "iris", CARD.replace("- echo", "- say"))
    assert lab.session().run("go").value.text == "echo"


def test_an_alias_that_means_another_ability_makes_the_charter_looser(lab):
    lab.tool("echo", lambda args, ctx: args)
    lab.tool("shout", lambda args, ctx: args)
    agent(lab, "iris", CARD.replace("- echo", "- say"))
    documents = []
    for means in ("echo", ["echo", "shout"]):
        lab.settings(tool_aliases={"say": means})
        documents.append(lab.kernel().bindings.charter.document)
    found = compare(*documents)
    assert "agent iris: capability shout" in " ".join(found.looser)
    assert "agent iris" not in " ".join(found.tighter)
