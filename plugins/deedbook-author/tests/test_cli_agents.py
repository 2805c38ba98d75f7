"""`deedbook agents find` and `agents lint`: what the cards say, without any persona."""

import pytest
from agent_cards import SEED_CARD
from commandline import Place

from deedbook_author.cards import estimate_tokens

IRIS = (
    SEED_CARD.replace("orion", "iris").replace("backend-engineering", "Data analysis").replace("http_request", "echo")
)


@pytest.fixture
def place(tmp_path) -> Place:
    """Give a workspace with two agents; run_sql is an alias, http_request and read_file are unknown."""
    made = Place(tmp_path / "workspace")
    made.system("deedbook.yaml", "schema_version: v1\ntool_aliases: {run_sql: query}\n")
    for name in ("query", "echo"):
        made.system(
            f"registry/low-level/{name}.yaml", f"schema_version: v1\nid: {name}\nsummary: X.\nhandler: {{tool: echo}}\n"
        )
    for name, card in {"orion": SEED_CARD, "iris": IRIS}.items():
        for file, text in {".agent": card, "skills.md": "", "goals.md": "", "persona.md": f"You are {name}.\n"}.items():
            made.system(f"agents/{name}/{file}", text)
    return made


def found(place, *arguments):
    return place.here("agents", "find", *arguments, "--json", status=0).fits("output_agents_find_v1")


def test_the_card_of_the_seed_is_found_and_its_unknown_capabilities_are_marked(place):
    said = found(place, "http_request", "--domain", "backend")
    assert {**said, "agents": []} == {
        "schema_version": "v1", "capabilities": ["http_request"], "domain": "backend", "agents": [],
    }  # fmt: skip
    (row,) = said["agents"]
    assert (row["id"], row["abilities"], row["usable"]) == ("orion", ["query"], False)
    assert sorted(row["unknown"]) == ["http_request", "read_file"]
    assert row["place"] == ".system/agents/orion/.agent:1"


def test_agents_are_found_by_capability_alias_and_ability(place):
    assert [row["id"] for row in found(place, "run_sql")["agents"]] == ["iris", "orion"]
    assert [row["id"] for row in found(place, "query", "echo")["agents"]] == ["iris"]
    assert found(place, "run_sql", "--domain", "cooking")["agents"] == []


def test_find_prints_a_row_for_each_agent(place):
    assert place.here("agents", "find", "echo", status=0).out.split() == [
        "iris", "echo", "read_file?", "run_sql", "Data", "analysis", ".system/agents/iris/.agent:1",
    ]  # fmt: skip
    assert "no agent has the capabilities fly" in place.here("agents", "find", "fly", status=0).out


def test_find_without_a_capability_says_that_there_is_no_card(tmp_path):
    made = Place(tmp_path)
    made.system("deedbook.yaml", "schema_version: v1\n")
    assert made.here("agents", "find", status=0).out == "there are no agents with a card\n"


def test_more_than_ten_capabilities_are_a_wrong_usage(place):
    ran = place.here("agents", "find", *"abcdefghijk", status=2)
    assert "11; a card has at most 10" in ran.err


def lint(place, status):
    return place.here("agents", "lint", "--json", status=status).fits("output_agents_lint_v1")


def test_lint_counts_tokens_as_an_estimate_and_warns_of_unknown_capabilities(place):
    said = lint(place, 0)
    assert said["ok"] is True
    assert said["agents"][1] == {"id": "orion", "tokens": 70, "counted": "estimate"}
    warnings = [(each["level"], each["place"]) for each in said["findings"]]
    assert warnings == [
        ("warning", f".system/agents/{at}") for at in ("iris/.agent:7:5", "orion/.agent:6:5", "orion/.agent:7:5")
    ]
    assert "unknown capability read_file: no ability or alias has this name" in said["findings"][0]["message"]


@pytest.mark.parametrize(("size", "warned"), [(375, False), (376, True)])
def test_a_card_of_more_than_150_tokens_is_reported(place, size, warned):
    text = SEED_CARD + "#" * (size - len(SEED_CARD) - 1) + "\n"
    place.system("agents/orion/.agent", text)
    assert (estimate_tokens(size) > 150) is warned
    assert ("more than 150" in " ".join(each["message"] for each in lint(place, 0)["findings"])) is warned


def test_an_agent_without_a_persona_is_reported(place):
    (place.path / ".system/agents/iris/persona.md").unlink()
    assert any("no persona.md beside the card" in each["message"] for each in lint(place, 0)["findings"])


def test_lint_reports_missing_state_files_and_exceeded_budgets_as_errors(place):
    (place.path / ".system/agents/iris/skills.md").unlink()
    place.system("agents/orion/skills.md", "- skill\n" * 21)
    said = lint(place, 1)
    errors = [(each["code"], each["place"]) for each in said["findings"] if each["level"] == "error"]
    assert errors == [
        ("SOURCE_INVALID", ".system/agents/iris/.agent:10:11"),
        ("SOURCE_INVALID", ".system/agents/orion/.agent:14:15"),
    ]
    ran = place.here("agents", "lint", status=1)
    assert ran.out.startswith("iris   about ")
    assert "2 cards checked: 2 errors, 3 warnings" in ran.err
    assert "error: .system/agents/orion/.agent:14:15: budget.max_skills: at most 20 skills" in ran.out


def test_lint_reports_a_card_that_cannot_be_read(place):
    place.system("agents/iris/.agent", "identity: iris\n")
    said = lint(place, 1)
    assert [each["id"] for each in said["agents"]] == ["orion"]
    assert said["findings"][0]["place"] == ".system/agents/iris/.agent:1:1"


def test_list_shows_what_the_bare_command_shows(place):
    assert place.here("agents", "list", status=0).out == place.here("agents", status=0).out
    assert place.here("agents", "list", "--can", "echo", status=0).out.split()[0] == "iris"
