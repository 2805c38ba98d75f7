"""A contract says what is wanted of its agent; the card that fits best is chosen, and no other persona is read."""

import json

import pytest
from pipelines import registry_of, replace_text
from shop import Shop

WANTED = "agent: {capabilities: [swe/patch], domain: review}"
CHECK = "contracts/check.yaml"


def add_agent(root, name, domain, *capabilities):
    """Write the card and the persona of an agent."""
    folder = root / ".system/agents" / name
    folder.mkdir(exist_ok=True)
    (folder / "skills").mkdir(exist_ok=True)
    state = {"skills": "skills"}
    card = {"schema_version": "v1", "identity": name, "domain": domain, "state": state, "capabilities": [*capabilities]}
    (folder / ".agent").write_text(json.dumps(card))
    (folder / "persona.md").write_text(f"You are {name}.\n")


def want(root, text=WANTED):
    """Let the contract of the phase `check` say what it wants of its agent."""
    replace_text(root / ".system/swe", CHECK, "agent: checker", text)
    replace_text(root / ".system/swe", CHECK, "agents/checker/", "agents/{agent}/")


@pytest.fixture
def shop(lab):
    made = Shop(lab)
    want(lab.path)
    add_agent(lab.path, "checker", "review", "swe/patch")
    add_agent(lab.path, "all-rounder", "review and code", "swe/patch", "swe/read")
    add_agent(lab.path, "patcher", "code", "swe/patch")
    made.good()
    return made


def test_agent_is_chosen_by_its_card_and_other_personas_are_never_read(shop):
    with shop.lab.session("run") as session:
        for name in ("all-rounder", "patcher"):
            (shop.lab.path / f".system/agents/{name}/persona.md").unlink()
        found = session.run(json.dumps({"id": "task-1", "title": "Raise it", "project": "shop"}), "swe/small")
    assert found.value.state == "COMPLETED"
    assert shop.events("phase_started")[-1]["agent"] == "checker"
    checked = shop.requests[-1]
    assert (checked["role"], checked["messages"][0]["content"].strip()) == ("checker", "You are checker.")


def test_persona_of_the_chosen_agent_is_read_when_its_phase_begins(shop):
    """Without it, only that phase fails."""
    with shop.lab.session("run") as session:
        (shop.lab.path / ".system/agents/checker/persona.md").unlink()
        session.run(json.dumps({"id": "task-1", "title": "Raise it", "project": "shop"}), "swe/small")
    assert shop.asked() == ["outliner", "builder", "builder"]


def test_contract_that_no_card_fits_is_a_fault(small):
    want(small, "agent: {capabilities: [fly]}")
    _, faults = registry_of(small)
    assert [why for place, why in faults if place.endswith("contracts/check.yaml:4:8")] == [
        "agent: no agent has the capabilities fly; agents: builder, checker, outliner"
    ]


def test_capability_that_grants_nothing_is_a_fault(small):
    want(small, "agent: {capabilities: [fly]}")
    add_agent(small, "checker", "review", "fly")
    _, faults = registry_of(small)
    assert [why for _, why in faults if "checker is the best agent for the capabilities fly, but cannot use fly" in why]


def test_contract_without_a_name_and_without_capabilities_is_a_fault(small):
    want(small, "agent: {domain: review}")
    _, faults = registry_of(small)
    assert [place for place, _ in faults if "contracts/check.yaml:4" in place]
