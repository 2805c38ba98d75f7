"""Agents are found by their cards alone; the flow `ask-agent` reads the persona of the chosen agent only."""

import json

import pytest

from deedbook import Failed
from deedbook.contract import AgentInfo
from deedbook_flow_runcontext.agent_choice import AgentQuery

REPORT = {"output": "done", "steps_completed": ["work"], "tool_calls_made": [], "schema_version": "v1"}


def info(name, *capabilities, domain="data", unknown=(), abilities=None):
    return AgentInfo(
        name=name,
        domain=domain,
        capabilities=frozenset(capabilities),
        abilities=frozenset(capabilities) - set(unknown) if abilities is None else frozenset(abilities),
        unknown=dict.fromkeys(unknown, "no ability or alias has this name"),
    )


ORION = info("orion", "run_sql", "http_request", "read_file", domain="backend-engineering", unknown=["http_request"])
IRIS = info("iris", "run_sql", domain="Data analysis")
PLANNER = info("planner", "make_plan", domain="planning")
ALL = [ORION, IRIS, PLANNER]


@pytest.mark.parametrize(
    ("capabilities", "domain", "names"),
    [
        (["run_sql"], "", ["iris", "orion"]),
        (["run_sql", "read_file"], "", ["orion"]),
        (["run_sql"], "backend", ["orion"]),
        (["run_sql"], "Engineering backend", ["orion"]),
        (["run_sql"], "back", []),
        ([], "planning", ["planner"]),
        ([], "", ["iris", "planner", "orion"]),
        (["fly"], "", []),
    ],
)
def test_agents_are_found_by_all_capabilities_and_the_words_of_the_domain(capabilities, domain, names):
    assert [each.name for each in AgentQuery(tuple(capabilities), domain).find(ALL)] == names


def test_an_agent_is_found_by_the_ability_that_an_alias_grants():
    found = info("ada", "run_sql", abilities=["shop/query"])
    assert AgentQuery(("shop/query",)).choose([found]) == found


def test_agents_that_can_use_what_is_wanted_come_first():
    sure = info("zoe", "http_request", "a", "b", "c")
    assert [each.name for each in AgentQuery(("http_request",)).find([ORION, sure])] == ["zoe", "orion"]


def test_an_unknown_capability_is_found_and_not_chosen():
    query = AgentQuery(("http_request",))
    assert query.find(ALL) == [ORION]
    with pytest.raises(
        Failed, match=r"^orion may be meant .* http_request: no ability or alias has this name"
    ) as caught:
        query.choose(ALL)
    assert caught.value.code == "NOT_AVAILABLE"


def test_nobody_fits_is_refused_with_the_known_agents():
    with pytest.raises(
        Failed, match=r"no agent has the capabilities fly in the domain 'sky'; agents: iris, orion, planner"
    ):
        AgentQuery(("fly",), "sky").choose(ALL)


@pytest.mark.parametrize(
    "said", [{"capabilities": "run_sql"}, {"capabilities": [1]}, {"capabilities": list("abcdefghijk")}, {"domain": 3}]
)
def test_a_query_of_another_form_is_refused(said):
    with pytest.raises(Failed) as caught:
        AgentQuery.parse(said)
    assert caught.value.code == "SCHEMA_VIOLATION"


# --- the flow ---------------------------------------------------------------------------------------------------------


def write_agent(lab, name, *capabilities, domain="data"):
    front = {"identity": name, "domain": domain, "capabilities": list(capabilities), "state": {"skills": "skills.md"}}
    files = {".agent": json.dumps(front), "skills.md": "", "persona.md": f"You are {name.title()}."}
    for each, text in files.items():
        lab.write(f"agents/{name}/{each}", text)


@pytest.fixture
def desk(lab):
    """Give a lab with two agents that can look, one of them also can shout, and a model that answers at once."""
    lab.tool("look", lambda args, ctx: {"seen": True}, effects="read")
    lab.tool("shout", lambda args, ctx: {"loud": True}, effects="read")
    lab.model(lambda request, ctx: json.dumps({**REPORT, "output": request["messages"][0]["content"]}))
    write_agent(lab, "iris", "look")
    write_agent(lab, "orion", "look", "shout", "fly")
    lab.skill("go", allows="look shout")
    return lab


def ask(lab, **settings):
    lab.settings(
        abilities={"asked": {"summary": "Ask.", "handler": {"flow": "ask-agent"}, "with": settings}},
        profile="lab",
        profiles={"lab": {"flow": "asked"}},
    )
    session = lab.session()
    return session, lambda: session.run("go")


@pytest.mark.parametrize(
    ("settings", "chosen"), [({"capabilities": ["look"]}, "iris"), ({"capabilities": ["shout"]}, "orion")]
)
def test_other_personas_are_never_read(desk, settings, chosen):
    """After the start, every persona but that of the chosen agent is gone."""
    session, go = ask(desk, **settings)
    for other in {"iris", "orion"} - {chosen}:
        (desk.path / f".system/agents/{other}/persona.md").unlink()
    assert go().value.text.startswith(f"You are {chosen.title()}.")
    assert [each.payload["to"] for each in desk.all("agent.transition", session)] == [chosen, "DONE"]
    assert desk.all("context.clarified", session)[0].payload["clarification"]["agent"] == chosen


def test_the_persona_of_the_chosen_agent_is_read(desk):
    _, go = ask(desk, capabilities=["look"])
    (desk.path / ".system/agents/iris/persona.md").unlink()
    assert go().error.code == "BINDING_INVALID"


def test_an_unknown_capability_is_refused_before_any_persona_is_read(desk):
    _, go = ask(desk, capabilities=["fly"])
    for each in ("iris", "orion"):
        (desk.path / f".system/agents/{each}/persona.md").unlink()
    error = go().error
    assert error.code == "NOT_AVAILABLE"
    assert "orion may be meant" in error.message


def test_without_a_query_the_run_is_refused(desk):
    _, go = ask(desk)
    assert "neither the skill nor the settings" in go().error.message


def test_the_skill_of_the_run_says_which_agent_is_wanted(desk):
    front = "name: go\ndescription: Goes.\nallowed-tools: [look, shout]\ntriggers: [go]"
    own = "metadata: {deedbook: {agent: {capabilities: [shout], domain: data}}}"
    desk.write("skills/go/SKILL.md", f"---\n{front}\n{own}\n---\nGo.\n")
    _, go = ask(desk, capabilities=["look"])
    assert go().value.text.startswith("You are Orion.")


def test_turns_spent_halt_the_run(desk):
    desk.model(
        lambda request, ctx: {"finish_reason": "tool_use", "tool_calls": [{"id": "1", "name": "look", "args": {}}]}
    )
    session, go = ask(desk, capabilities=["look"], max_turns=2)
    go()
    assert "context.halted" in desk.types(session)


def test_a_report_of_work_that_is_not_done_fails_the_run(desk):
    desk.model(lambda request, ctx: json.dumps({**REPORT, "output": "I could not.", "steps_completed": []}))
    session, go = ask(desk, capabilities=["look"])
    go()
    assert "the agent iris says: I could not." in desk.payload("context.failed", session)["reason"]
