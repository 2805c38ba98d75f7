"""Every cell of the agents' tables, agent by event by kind of answer, against the form that the agent publishes.

The forms are written out here as the references have them, not read from the tables. What an agent documents no form
for becomes a denial where it has one, and is said to whoever records it.
"""

import json

import pytest
from cases import for_each

from deedbook_serve import agents
from deedbook_serve.bridging import client
from deedbook_serve.bridging.dialects import Answer, HookEvent, render_answer
from deedbook_serve.bridging.settings import HookSettings

WHY, HINT, INPUT, MORE, LESS = "why not", "a hint", {"command": "ls"}, {"stdout": "secret"}, {"stdout": "less"}
TEXT = '{"stdout":"less"}'


def own(event, **members):
    return {"hookSpecificOutput": {"hookEventName": event, **members}}


def context(event):
    return {"context": (0, own(event, additionalContext=HINT))}


def block(status):
    return (status, {"decision": "block", "reason": WHY})


def tool_denied(event):
    return (2, own(event, permissionDecision="deny", permissionDecisionReason=WHY))


def changed(event):
    return (0, own(event, permissionDecision="allow", updatedInput=INPUT))


def asked_denied(event):
    return (2, own(event, decision={"behavior": "deny", "message": WHY}))


CLAUDE = {
    "SessionStart": {
        "deny": (0, {"continue": False, "stopReason": WHY, "systemMessage": WHY}),
        **context("SessionStart"),
    },
    "Setup": context("Setup"),
    "InstructionsLoaded": {},
    "UserPromptSubmit": {"deny": block(2), **context("UserPromptSubmit")},
    "UserPromptExpansion": {"deny": block(2), **context("UserPromptExpansion")},
    "MessageDisplay": {},
    "PreToolUse": {
        "deny": tool_denied("PreToolUse"),
        "ask": (0, own("PreToolUse", permissionDecision="ask", permissionDecisionReason=WHY)),
        "allow": (0, own("PreToolUse", permissionDecision="allow")),
        "change": changed("PreToolUse"),
        **context("PreToolUse"),
    },
    "PermissionRequest": {"deny": asked_denied("PermissionRequest")},
    "PermissionDenied": {},
    "PostToolUse": {
        "deny": (0, {"continue": False, "stopReason": WHY, "decision": "block", "reason": WHY}),
        "result": (0, own("PostToolUse", updatedToolOutput=LESS)),
        **context("PostToolUse"),
    },
    "PostToolUseFailure": context("PostToolUseFailure"),
    "PostToolBatch": {"deny": block(2), **context("PostToolBatch")},
    "Notification": {},
    "SubagentStart": context("SubagentStart"),
    "SubagentStop": {"go_on": block(0)},
    "TaskCreated": {"deny": block(2)},
    "TaskCompleted": {"go_on": (2, None)},
    "Stop": {"go_on": block(0)},
    "StopFailure": {},
    "TeammateIdle": {"go_on": (2, None)},
    "ConfigChange": {"deny": block(2)},
    "CwdChanged": {},
    "DirectoryAdded": {},
    "FileChanged": {},
    "WorktreeCreate": {},
    "WorktreeRemove": {},
    "PreCompact": {"deny": block(2)},
    "PostCompact": {},
    "PreModelSwitch": {"deny": tool_denied("PreModelSwitch")},
    "PostModelSwitch": context("PostModelSwitch"),
    "Elicitation": {"deny": (2, own("Elicitation", action="decline"))},
    "ElicitationResult": {"deny": (2, own("ElicitationResult", action="decline"))},
    "SessionEnd": {},
}
CODEX = {
    "SessionStart": {"deny": (0, {"continue": False, "stopReason": WHY}), **context("SessionStart")},
    "UserPromptSubmit": {"deny": block(2), **context("UserPromptSubmit")},
    "PreToolUse": {"deny": tool_denied("PreToolUse"), "change": changed("PreToolUse"), **context("PreToolUse")},
    "PermissionRequest": {"deny": asked_denied("PermissionRequest")},
    "PostToolUse": {
        "deny": block(0),
        "result": (0, {"decision": "block", "reason": TEXT}),
        **context("PostToolUse"),
    },
    "PreCompact": {"deny": (0, {"continue": False, "stopReason": WHY})},
    "PostCompact": {},
    "SubagentStart": context("SubagentStart"),
    "SubagentStop": {"go_on": block(0)},
    "Stop": {"go_on": block(0)},
    "Interrupt": {},
    "SessionEnd": {},
}
GEMINI_DENIED, GEMINI_MORE = (2, {"decision": "deny", "reason": WHY}), (0, {"decision": "deny", "reason": WHY})
GEMINI = {
    "SessionStart": {"notice": (0, {"systemMessage": WHY}), **context("SessionStart")},
    "BeforeAgent": {"deny": GEMINI_DENIED, **context("BeforeAgent")},
    "BeforeModel": {"deny": GEMINI_DENIED},
    "BeforeToolSelection": {"deny": (0, own("BeforeToolSelection", toolConfig={"mode": "NONE"}))},
    "AfterModel": {"deny": GEMINI_MORE},
    "BeforeTool": {"deny": GEMINI_DENIED, "change": (0, own("BeforeTool", tool_input=INPUT))},
    "AfterTool": {
        "deny": GEMINI_MORE,
        "result": (0, {"decision": "deny", "reason": TEXT}),
        **context("AfterTool"),
    },
    "Notification": {},
    "AfterAgent": {"go_on": GEMINI_MORE},
    "PreCompress": {"notice": (0, {"systemMessage": WHY})},
    "SessionEnd": {},
}
COPILOT_CONTEXT = {"context": (0, {"additionalContext": HINT})}
COPILOT = {
    "SessionStart": {"notice": (2, None), **COPILOT_CONTEXT},
    "UserPromptSubmit": {"notice": (2, None)},
    "userPromptTransformed": {},
    "PreToolUse": {
        "deny": (2, {"permissionDecision": "deny", "permissionDecisionReason": WHY}),
        "ask": (0, {"permissionDecision": "ask", "permissionDecisionReason": WHY}),
        "allow": (0, {"permissionDecision": "allow"}),
        "change": (0, {"permissionDecision": "allow", "modifiedArgs": INPUT}),
    },
    "permissionRequest": {"deny": (2, {"behavior": "deny", "message": WHY})},
    "PostToolUse": {
        "deny": (0, {"modifiedResult": {"resultType": "success", "textResultForLlm": WHY}}),
        "result": (0, {"modifiedResult": {"resultType": "success", "textResultForLlm": TEXT}}),
        **COPILOT_CONTEXT,
    },
    "PostToolUseFailure": {},
    "Stop": {"go_on": block(0)},
    "subagentStart": COPILOT_CONTEXT,
    "SubagentStop": {"go_on": block(0)},
    "notification": COPILOT_CONTEXT,
    "ErrorOccurred": {},
    "PreCompact": {"notice": (2, None)},
    "SessionEnd": {},
}
PUBLISHED = {"claude-code": CLAUDE, "codex": CODEX, "gemini-cli": GEMINI, "copilot-cli": COPILOT}
KINDS = {
    "deny": Answer(outcome="deny", reason=WHY),
    "ask": Answer(outcome="ask", reason=WHY),
    "allow": Answer(outcome="allow"),
    "change": Answer(outcome="allow", args=INPUT),
    "result": Answer(result=(LESS,)),
    "context": Answer(context=HINT),
    "go_on": Answer(outcome="go_on", reason=WHY),
}
CELLS = [(name, event, kind) for name, events in PUBLISHED.items() for event in events for kind in KINDS]


def heard(name, event, **more):
    moment = agents.find_agent(name).events[event].moment
    return HookEvent(moment=moment, name=event, session="s", tool="Bash", args={}, result=MORE, **more)


def spoken(name, event, answer, **more):
    said = render_answer(agents.find_agent(name), heard(name, event, **more), answer)
    return said.reply.status, json.loads(said.reply.out) if said.reply.out else None, said


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_table_has_every_event_that_the_agent_documents_and_no_other_answer(name):
    known = agents.find_agent(name)
    assert {event: set(each.answers) for event, each in known.events.items()} == {
        event: set(answers) for event, answers in PUBLISHED[name].items()
    }
    assert known.source
    assert known.trust


@for_each(("name", "event", "kind"), CELLS)
def test_an_answer_has_the_published_form_or_is_said_to_be_lost(name, event, kind):
    published = PUBLISHED[name][event]
    status, out, said = spoken(name, event, KINDS[kind])
    if kind in published:
        assert (status, out) == published[kind]
        keeps = (name, event, kind) == ("claude-code", "PostToolUse", "deny")
        assert said.lost == (("deny",) if keeps else ())
    elif kind == "allow":
        assert (status, out, said.lost) == (0, None, ())
    else:
        assert kind in said.lost
        assert agents.find_agent(name).title in said.why
        instead = (
            published.get("deny", published.get("notice")) if kind in ("deny", "ask", "change", "result") else None
        )
        expected = instead or (0, None)
        assert status == expected[0]
        assert (out is None) == (expected[1] is None)
    if status == 2:
        assert said.reply.err.startswith(b"Deedbook: ")


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_is_said_at_once_is_one_answer(name):
    """A question, another input and a hint; where the agent cannot ask, a denial holds none of it."""
    answer = Answer(outcome="ask", reason=WHY, args=INPUT, context=HINT)
    event = "BeforeTool" if name == "gemini-cli" else "PreToolUse"
    _, out, said = spoken(name, event, answer)
    asked = {"permissionDecision": "ask", "permissionDecisionReason": WHY}
    if name == "claude-code":
        assert out == own(event, **asked, updatedInput=INPUT, additionalContext=HINT)
    elif name == "copilot-cli":
        assert out == {**asked, "modifiedArgs": INPUT}
        assert said.lost == ("context",)
    else:
        assert (out.get("decision") or out["hookSpecificOutput"]["permissionDecision"]) == "deny"
        assert "ask" in said.lost


def test_a_result_and_a_hint_are_both_told():
    _, out, said = spoken("claude-code", "PostToolUse", Answer(result=(LESS,), context=HINT))
    assert out == own("PostToolUse", updatedToolOutput=LESS, additionalContext=HINT)
    assert said.lost == ()


@pytest.mark.parametrize(
    "left", ["[gone]", {"stdout": 1}, {"stdout": "x", "more": 1}, {}, {"stdout": None}, [{"stdout": "x"}], None]
)
def test_a_result_of_another_shape_would_be_ignored_and_is_no_replacement(left):
    """Claude Code drops another output of its own tools without a word, and the model would see the first."""
    _, out, said = spoken("claude-code", "PostToolUse", Answer(result=(left,)))
    assert out["continue"] is False
    assert "updatedToolOutput" not in json.dumps(out)
    assert said.lost == ("result", "deny")
    assert "keeps the result" in said.why


def test_the_shape_of_lists_and_numbers_is_that_of_their_elements():
    first = {"lines": [{"n": 1, "text": "a"}], "size": 2, "done": True}
    for left, fits in (
        ({"lines": [], "size": 2.5, "done": False}, True),
        ({"lines": [{"n": 7, "text": "b"}] * 2, "size": 0, "done": True}, True),
        ({"lines": [{"n": 7}], "size": 0, "done": True}, False),
        ({"lines": [], "size": True, "done": True}, False),
    ):
        told = HookEvent(moment="after", name="PostToolUse", session="s", tool="Read", result=first)
        assert (render_answer(agents.find_agent("claude-code"), told, Answer(result=(left,))).lost == ()) == fits


def test_a_tool_of_an_mcp_server_may_have_any_other_result():
    told = HookEvent(moment="after", name="PostToolUse", session="s", tool="mcp__x__y", result=MORE)
    known = agents.find_agent("claude-code")
    said = render_answer(known, told, Answer(result=("[gone]",)))
    assert json.loads(said.reply.out) == own("PostToolUse", updatedToolOutput="[gone]")
    said = render_answer(known, told, KINDS["deny"])
    assert json.loads(said.reply.out) == own("PostToolUse", updatedToolOutput=WHY)
    assert said.lost == ()


@pytest.mark.parametrize(
    ("name", "event", "result", "seen"),
    [
        ("gemini-cli", "AfterTool", {"llmContent": "less", "returnDisplay": "x"}, "less"),
        ("copilot-cli", "PostToolUse", {"result_type": "success", "text_result_for_llm": "less"}, "less"),
        ("codex", "PostToolUse", "less" * 5000, "less" * 5000),
    ],
)
def test_a_replaced_result_is_the_text_that_the_model_sees_and_is_not_cut(name, event, result, seen):
    assert seen in json.dumps(spoken(name, event, Answer(result=(result,)))[1])


def test_a_change_that_no_hook_can_stop_is_said_to_be_one():
    _, out, said = spoken("claude-code", "ConfigChange", KINDS["deny"], input={"source": "policy_settings"})
    assert (out, said.lost) == (None, ("deny",))


# --- what the tables say beside -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_without_a_runtime_whatever_exit_status_2_refuses_is_refused_and_nothing_is_made_to_go_on(name):
    for event, each in agents.find_agent(name).events.items():
        answers = PUBLISHED[name][event]
        if each.moment not in agents.GATES:
            assert event not in client.REFUSABLE_EVENTS, event
        elif answers.get("deny", answers.get("notice"))[0] == 2:
            assert event in client.REFUSABLE_EVENTS, event


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_hook_but_those_that_say_why_is_installed_within_the_agents_own_limit(name):
    known = agents.find_agent(name)
    setting = HookSettings(name=name, program=("deedbook-bridge",), limit=10)
    for event in known.events.values():
        assert (event in known.installed_events) != bool(event.install)
        if event.limit is not None:
            assert setting.get_timeout(event) <= event.limit
            assert int(setting.build_command(event)[2]) < event.limit


def test_the_tools_of_claude_code_are_those_of_its_reference():
    """Tools reference, and the Agent SDK's TypeScript reference for those that it leaves out."""
    assert set(agents.find_agent("claude-code").tools) >= {
        "Agent", "AskUserQuestion", "Bash", "BashOutput", "CronCreate", "CronDelete", "CronList", "Edit",
        "EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree", "Glob", "Grep", "KillShell",
        "ListMcpResourcesTool", "LSP", "Monitor", "NotebookEdit", "PowerShell", "Read", "ReadMcpResourceTool",
        "SendMessage", "Skill", "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate",
        "TodoWrite", "ToolSearch", "WebFetch", "WebSearch", "Write",
    }  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_tool_of_a_table_says_what_it_does_and_where_its_paths_stand(name):
    for tool, said in agents.find_agent(name).tools.items():
        assert said["summary"], tool
        assert said["effects"] in ("none", "read", "write", "irreversible"), tool
        for pointer in said.get("paths", ()):
            assert pointer[1:] in said["properties"], tool
