"""Cards: small files that say who an agent is; the persona beside one is read when the agent is chosen, not before."""

import json

import packing
import pytest
from commandline import Place

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
        (CARD.replace("- echo", "- ehco"), "5", 'did you mean "echo"?'),
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


def test_a_folder_without_a_card_holds_no_agent(small):
    small.system("agents/orion/persona.md", "You are Orion.\n")
    assert "orion" not in small.here("agents", status=0).out


def test_a_name_of_a_role_and_an_agent_is_refused(small):
    card(small)
    small.system("agents/orion.md", "You are somebody else.\n")
    refused = small.here("lock", status=1).err
    assert '"orion" is also in .system/agents/orion.md:1' in refused


def test_a_card_of_a_pack_counts_and_names_its_pack(small):
    packing.installed(small, "acme-agents", {"agents/orion/.agent": CARD.format(name="orion")})
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
    lab.write("agents/orion/.agent", CARD.format(name="orion"))
    lab.write("agents/orion/persona.md", "You are Orion.\n")
    return lab.session().run("go")


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

    lab.write("agents/iris/.agent", CARD.format(name="iris"))
    assert "iris" in at_work(lab, flow).error.message
