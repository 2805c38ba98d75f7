"""What an agent could not be told stands in the record, and a denial says whose rule it is and where it is written."""

import json

import pytest
from agents import Agent, sent

from deedbook.contract import Decision, deny


@pytest.fixture
def talk(lab):
    made = []

    def make(name="claude-code", policies=None, agents=None, **settings):
        lab.settings(agents={name: {}} if agents is None else agents, policies=policies or {}, **settings)
        if policies is None:
            lab.allow_irreversible()
        made.append(Agent(lab, name))
        return made[-1]

    yield make
    for agent in made:
        agent.desk.close()


def redacting(lab):
    lab.hook("redact", "PostToolUse", lambda call, result: "[redacted]")


# --- what could not be told -----------------------------------------------------------------------------------------


def test_a_redaction_that_the_agent_would_ignore_is_not_claimed(lab, talk):
    redacting(lab)
    agent = talk()
    agent.before("Bash", {"command": "env"})
    heard = agent.after("Bash", {"command": "env"}, {"stdout": "token"})
    assert heard.json["continue"] is False
    told = agent.one("bridge.undelivered").payload
    assert (told["event"], told["what"]) == ("PostToolUse", ["result", "deny"])
    assert (told["tool_name"], told["call_id"]) == ("claude-code/Bash", "toolu_01")
    assert "keeps the result" in told["why"]
    assert agent.types()[-2:] == ["hook.fired", "bridge.undelivered"]


@pytest.mark.parametrize(
    ("name", "result"),
    [("codex", "token"), ("copilot-cli", {"result_type": "success", "text_result_for_llm": "token"})],
)
def test_a_redaction_that_is_delivered_needs_no_more_words(lab, talk, name, result):
    redacting(lab)
    agent = talk(name)
    args = {"command": "env"}
    agent.before("Bash", args)
    field = {"tool_result": result} if name == "copilot-cli" else {}
    heard = agent.after("Bash", args, result, **field)
    assert "token" not in json.dumps(heard.json)
    assert "[redacted]" in json.dumps(heard.json)
    assert "bridge.undelivered" not in agent.types()


def test_a_hint_that_an_agent_does_not_take_is_recorded_as_not_told(lab, talk):
    lab.hook("guard", "PreToolUse", lambda call: Decision("allow", signals={"ability_guard": "mind the tests"}))
    agent = talk("copilot-cli")
    assert agent.say("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}).json is None
    told = agent.one("bridge.undelivered").payload
    assert (told["what"], told["why"]) == (["context"], "GitHub Copilot CLI takes no text for the model at PreToolUse")


def test_a_prompt_that_cannot_be_refused_is_recorded_as_not_refused(lab, talk):
    lab.hook("quiet", "UserPromptSubmit", lambda prompt, *_: deny("not today"))
    agent = talk("copilot-cli")
    heard = agent.say("UserPromptSubmit", prompt="x")
    assert (heard.status, heard.json) == (2, None)
    assert "not today" in heard.err
    assert agent.one("bridge.undelivered").payload["what"] == ["deny"]


def test_a_session_that_cannot_be_refused_may_still_do_nothing(lab, talk):
    lab.hook("closed", "SessionStart", lambda *_: deny("closed today"))
    agent = talk("copilot-cli")
    heard = agent.say("SessionStart", source="startup")
    assert "SESSION_DENIED: hook closed, .system/deedbook.yaml:4: closed today" in heard.err
    (told,) = agent.workspace("bridge.undelivered")
    assert (told.payload["event"], told.payload["what"]) == ("SessionStart", ["deny"])
    assert agent.say("PreToolUse", tool_name="Bash", tool_input={}).json["permissionDecision"] == "deny"
    assert agent.say("Stop").json is None
    assert len(agent.workspace("bridge.undelivered")) == 1


def test_what_cannot_be_recorded_as_not_told_is_not_allowed_either(lab, talk, monkeypatch):
    lab.hook("guard", "PreToolUse", lambda call: Decision("allow", signals={"ability_guard": "mind the tests"}))
    agent = talk("copilot-cli")

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr("deedbook_serve.bridging.conversation.Conversation.record_undelivered", full)
    heard = agent.say("PreToolUse", tool_name="Bash", tool_input={"command": "ls"})
    assert heard.json["permissionDecision"] == "deny"
    assert agent.one("tool.error").payload["outcome"] == "cancelled"


# --- who denied -----------------------------------------------------------------------------------------------------


def test_a_denial_names_policy_file_and_line(lab, talk):
    rules = [{"match": {"abilities": ["claude-code/Bash"]}, "then": "deny", "reason": "no shells"}]
    agent = talk(policies={"baseline": {"kind": "rules", "rules": rules, "default": "allow"}})
    heard = agent.before("Bash", {"command": "ls"})
    reason = heard.own["permissionDecisionReason"]
    place = agent.one("tool.denied").payload["by"]["rule"]
    assert place.startswith(".system/deedbook.yaml:")
    assert reason == f"GATE_DENIED: policy baseline, {place}: no shells"
    assert heard.err == f"Deedbook: {reason}\n"
    lines = (lab.path / ".system" / "deedbook.yaml").read_text().splitlines()[int(place.split(":")[1]) - 1 :]
    assert lines[0].strip() == "{"
    assert "match" in lines[1]


def test_the_default_of_a_policy_is_named_by_the_place_of_the_policy(talk):
    agent = talk(policies={"baseline": {"kind": "rules", "rules": [], "default": "deny"}})
    reason = agent.before("Read", {"file_path": "/x"}).own["permissionDecisionReason"]
    assert reason.startswith("GATE_DENIED: policy baseline, .system/deedbook.yaml:")
    assert reason.endswith(": no rule matches; the default is deny")


def test_a_call_that_waits_for_a_person_names_who_wants_that(talk):
    rules = [{"match": {"abilities": ["gemini-cli/run_shell_command"]}, "then": "ask", "reason": "look"}]
    agent = talk("gemini-cli", policies={"baseline": {"kind": "rules", "rules": rules, "default": "allow"}})
    body = {**sent("BeforeTool", "/"), "tool_name": "run_shell_command", "tool_input": {"command": "ls"}}
    reason = agent.raw("BeforeTool", json.dumps(body).encode()).json["reason"]
    assert "policy baseline, .system/deedbook.yaml:" in reason
    assert "deedbook approvals approve" in reason


# --- settings -------------------------------------------------------------------------------------------------------

HOOK = {"type": "command", "command": "python3 /x/deedbook/serve/bridging/client.py --limit 10 claude-code PreToolUse"}
SETTINGS = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [HOOK]}]}, "model": "x"}


@pytest.fixture
def local(lab, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place = lab.path / ".claude" / "settings.local.json"
    place.parent.mkdir()
    place.write_text(json.dumps(SETTINGS))
    return place


@pytest.mark.parametrize(
    ("left", "why"),
    [
        ({"model": "x"}, "hooks of the bridge at PreToolUse"),
        ({**SETTINGS, "disableAllHooks": True}, "switches hooks off: disableAllHooks"),
        (None, "hooks of the bridge at PreToolUse"),
        ("{", "hooks of the bridge at PreToolUse"),
    ],
)
def test_a_change_that_takes_the_hooks_out_is_refused_and_recorded(talk, local, left, why):
    agent = talk()
    agent.say("SessionStart", source="startup")
    if left is None:
        local.unlink()
    else:
        local.write_text(left if isinstance(left, str) else json.dumps(left))
    heard = agent.say("ConfigChange", source="local_settings", file_path=str(local))
    assert (heard.status, heard.json["decision"]) == (2, "block")
    told = [event.payload for event in agent.events() if event.type == "bridge.told"][-1]
    assert why in told["denied"]
    assert told["said"]["source"] == "local_settings"
    again = agent.say("ConfigChange", source="local_settings", file_path=str(local))
    assert again.status == 2


def test_a_change_of_something_else_is_recorded(talk, local):
    agent = talk()
    agent.say("SessionStart", source="startup")
    local.write_text(json.dumps({**SETTINGS, "model": "y"}))
    assert agent.say("ConfigChange", source="local_settings", file_path=str(local)).json is None
    told = [event.payload for event in agent.events() if event.type == "bridge.told"][-1]
    assert told["said"]["file_path"] == str(local)
    assert "denied" not in told


def test_hooks_that_move_to_another_file_are_not_taken_out(talk, local):
    agent = talk()
    agent.say("SessionStart", source="startup")
    local.rename(local.parent / "settings.json")
    assert agent.say("ConfigChange", source="project_settings", file_path=str(local)).json is None


def test_what_an_administrator_decides_cannot_be_refused_and_is_recorded_as_that(talk, local, tmp_path):
    agent = talk()
    agent.say("SessionStart", source="startup")
    managed = tmp_path / "managed-settings.json"
    managed.write_text(json.dumps({"disableAllHooks": True}))
    heard = agent.say("ConfigChange", source="policy_settings", file_path=str(managed))
    assert (heard.status, heard.json) == (0, None)
    told = [event.payload for event in agent.events() if event.type == "bridge.told"][-1]
    assert "managed-settings.json switches hooks off" in told["denied"]
    assert agent.one("bridge.undelivered").payload["what"] == ["deny"]
