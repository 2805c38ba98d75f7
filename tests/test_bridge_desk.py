"""The bridge in the runtime: what agents say becomes calls of a session here, and answers are in their form."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from agents import ADA, ROBIN, SMALLEST, Agent, sent
from commandline import until
from persons import approving

from deedbook.contract import Decision, allow, deny, transform
from deedbook.format.errors import DeedbookError
from deedbook.format.reader import read
from deedbook_approvals.answering import answer
from deedbook_audit.rederive import rejudge
from deedbook_serve.serving.bridge import BridgeService
from deedbook_serve.serving.streams import Stream


@pytest.fixture
def talk(lab):
    """Make an agent; in the end every decision that it heard follows from the record."""
    made = []

    def make(name="claude-code", policies=SMALLEST, agents=None, **settings):
        lab.settings(agents={name: {}} if agents is None else agents, policies=policies, **settings)
        made.append(Agent(lab, name))
        return made[-1]

    yield make
    for agent in made:
        agent.desk.close()
        for place in lab.state.glob("sessions/*/.events.jsonl"):
            found = [(each.call.ability, each.change) for each in rejudge(place, agent.kernel.bindings)]
            assert {change for _, change in found} <= {"same", "undetermined"}, found


# --- a tool call ----------------------------------------------------------------------------------------------------


def test_a_use_of_a_tool_is_recorded_before_and_after(talk):
    agent = talk()
    place = str(agent.lab.path / "src" / "a.py")
    assert agent.before("Read", {"file_path": place}).json is None
    assert agent.after("Read", {"file_path": place}, {"file": {"content": "x"}}).status == 0
    intent, result = agent.one("tool.call"), agent.one("tool.result")
    assert intent.payload == {"tool_name": "claude-code/Read", "args": {"file_path": "src/a.py"}}
    assert (intent.principal, intent.actor, result.parent) == ("agent:claude-code", "agent", intent.span)
    assert result.payload["result"] == {"file": {"content": "x"}}
    assert agent.one("session.start").payload["principal"]["on_behalf_of"] == "ada"


@pytest.mark.parametrize("path", ["src/a.py", "tests/deep/b.py"])
def test_an_absolute_path_in_the_workspace_is_judged_from_its_root(talk, path):
    agent = talk()
    args = {"file_path": str(agent.lab.path / path), "old_string": "a", "new_string": "b"}
    assert agent.before("Edit", args).json is None
    assert agent.one("tool.call").payload["args"]["file_path"] == path


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "{root}/docs/a.md", "{root}/src/../docs/a.md", "{root}/link/passwd", "~/x"]
)
def test_a_path_that_leads_elsewhere_is_denied(talk, path):
    agent = talk()
    (agent.lab.path / "src").mkdir()
    (agent.lab.path / "src" / "out").symlink_to("/etc")
    (agent.lab.path / "link").symlink_to("src/out")
    heard = agent.before("Edit", {"file_path": path.format(root=agent.lab.path)})
    assert (heard.status, heard.decision) == (2, "deny")
    assert "no rule matches" in heard.own["permissionDecisionReason"]
    assert heard.own["permissionDecisionReason"] in heard.err
    assert agent.types()[-2:] == ["policy.check", "tool.denied"]


def test_a_folder_that_is_none_makes_no_path_of_the_workspace(talk):
    agent = talk()
    args = {"file_path": "src/a.py", "old_string": "a", "new_string": "b"}
    body = sent("PreToolUse", "/etc\0", tool_name="Edit", tool_input=args, tool_use_id="t")
    assert agent.raw("PreToolUse", json.dumps(body).encode()).decision == "deny"
    assert agent.types()[-1] == "tool.denied"


def test_denied_twice_is_recorded_twice(talk):
    agent = talk()
    assert [agent.before("Write", {"file_path": "/x", "content": ""}).status for _ in range(2)] == [2, 2]
    assert agent.types().count("tool.denied") == 2


def test_what_a_person_decides_is_left_to_the_agents_own_dialogue(talk):
    agent = talk()
    heard = agent.before("Bash", {"command": "npm test"})
    assert (heard.status, heard.decision) == (0, "ask")
    assert heard.own["permissionDecisionReason"] == "a person looks first"
    assert agent.types()[-3:] == ["policy.check", "approval.deferred", "tool.call"]
    left = agent.one("approval.deferred")
    assert (left.payload["name"], left.payload["by"]["policy"]) == ("claude-code/Bash", "baseline")
    assert agent.one("tool.call").parent == left.span
    assert agent.say("PermissionRequest", tool_name="Bash", tool_input={"command": "npm test"}).json is None
    agent.after("Bash", {"command": "npm test"}, {"stdout": "ok", "stderr": ""})
    assert agent.types()[-1] == "tool.result"


def test_a_dialogue_about_what_was_never_judged_is_denied(talk):
    agent = talk()
    heard = agent.say("PermissionRequest", tool_name="Bash", tool_input={"command": "rm -rf /"})
    assert (heard.status, heard.own["decision"]["behavior"]) == (2, "deny")
    assert agent.one("bridge.told").payload["denied"] == heard.own["decision"]["message"]


def test_a_rewritten_input_is_given_back_whole_with_its_paths_absolute_again(lab, talk):
    def tidy(call):
        return transform({**call.args, "file_path": f"src/{call.args['file_path']}", "content": "clean"})

    lab.hook("tidy", "PreToolUse", tidy, rewrites=True)
    agent = talk(policies={})
    heard = agent.before("Write", {"file_path": str(lab.path / "a.py"), "content": "dirty"})
    changed = {"file_path": str(lab.path / "src" / "a.py"), "content": "clean"}
    assert heard.own == {"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": changed}
    agent.after("Write", changed, {"success": True})
    assert agent.types()[-2:] == ["tool.call", "tool.result"]
    assert agent.one("tool.call").payload["args"] == {"file_path": "src/a.py", "content": "clean"}


def test_what_guards_signal_is_context_for_the_model(lab, talk):
    lab.hook("guard", "PreToolUse", lambda call: Decision("allow", signals={"ability_guard": "mind the tests"}))
    heard = talk().before("Read", {"file_path": "/x"})
    assert heard.own == {"hookEventName": "PreToolUse", "additionalContext": "ability_guard (guard): mind the tests"}


def test_a_rewriter_cannot_make_one_tool_of_another(lab, talk):
    lab.hook("swap", "PreToolUse", lambda call: transform({**call.args, "tool": "mcp__x__safe"}), rewrites=True)
    agent = talk(policies={}, agents={"claude-code": {"unknown_tools": "allow"}})
    assert agent.before("mcp__x__wild", {"a": 1}).decision == "deny"
    assert agent.one("tool.error").payload["outcome"] == "cancelled"


def test_what_was_rewritten_has_to_run_as_it_was(lab, talk):
    lab.hook("tidy", "PreToolUse", lambda call: transform({"command": "ls"}), rewrites=True)
    agent = talk(policies={})
    agent.before("Bash", {"command": "rm -rf ."})
    agent.after("Bash", {"command": "rm -rf ."}, {"stdout": ""})
    assert agent.one("tool.error").payload["outcome"] == "unknown"
    assert agent.one("tool.unasked").payload["args"] == {"command": "rm -rf ."}


def test_an_input_that_a_rewriter_left_alone_keeps_the_agents_own_path(lab, talk):
    lab.hook("tidy", "PreToolUse", lambda call: transform({**call.args, "content": "clean"}), rewrites=True)
    agent = talk(policies={})
    odd = f"{lab.path}/src/../a.py"
    assert agent.before("Write", {"file_path": odd, "content": "dirty"}).own["updatedInput"]["file_path"] == odd


def test_a_failure_and_an_interruption_are_told_apart(talk):
    agent = talk()
    for call, interrupted in (("t1", False), ("t2", True)):
        agent.before("Bash", {"command": "npm test"}, call)
        agent.failed("Bash", {"command": "npm test"}, "Exit code 1\nno module", call, is_interrupt=interrupted)
    ends = [e.payload for e in agent.events() if e.type == "tool.error"]
    assert [(end["outcome"], end["code"]) for end in ends] == [
        ("failed", "AGENT_TOOL_FAILED"),
        ("cancelled", "CANCELLED"),
    ]
    assert "no module" in ends[0]["message"]


def test_what_the_agent_refuses_by_itself_is_cancelled(talk):
    agent = talk()
    agent.before("Bash", {"command": "ls"})
    told = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_01"}
    agent.say("PermissionDenied", **told, reason="Blocked by classifier")
    end = agent.one("tool.error").payload
    assert end["outcome"] == "cancelled"
    assert "Blocked by classifier" in end["message"]


def test_a_result_that_cannot_be_recorded_closes_its_call(talk):
    agent = talk()
    agent.before("Bash", {"command": "ls"})
    said = {"session_id": "abc123", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "toolu_01"}
    body = json.dumps({**said, "tool_input": {"command": "ls"}, "tool_response": 2**60})
    assert agent.raw("PostToolUse", body.encode()).status == 0
    assert agent.one("tool.error").payload["code"] == "INTAKE_REFUSED"


@pytest.mark.parametrize("twice", ["session_id", "tool_use_id", "tool_name"])
def test_a_result_that_does_not_say_clearly_whose_it_is_closes_nothing(talk, twice):
    agent = talk()
    agent.before("Bash", {"command": "ls"})
    said = {"session_id": "abc123", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "toolu_01"}
    body = json.dumps({**said, "tool_input": {"command": "ls"}, "tool_response": "x"})
    heard = agent.raw("PostToolUse", f'{{"{twice}": "another", {body[1:]}'.encode())
    assert (heard.status, "INTAKE_REFUSED" in heard.err) == (1, True)
    assert "tool.error" not in agent.types()
    doubled = body.replace('"tool_response": "x"', '"tool_response": {"a": 1, "a": 2}')
    assert agent.raw("PostToolUse", doubled.encode()).status == 0
    assert agent.one("tool.error").payload["code"] == "INTAKE_REFUSED"


def test_a_call_that_is_never_closed_is_unknown_in_the_end(talk):
    agent = talk()
    agent.before("Read", {"file_path": "/x"})
    agent.say("SessionEnd", reason="other")
    assert agent.one("tool.error").payload["outcome"] == "unknown"
    assert agent.types()[-1] == "session.end"


def test_calls_side_by_side_are_closed_by_their_own_names_in_any_order(talk):
    agent = talk()
    for call in "abc":
        agent.before("Read", {"file_path": f"/{call}"}, call)
    for call in "cab":
        agent.after("Read", {"file_path": f"/{call}"}, call, call)
    spans = {e.span: e.payload["args"]["file_path"][1:] for e in agent.events() if e.type == "tool.call"}
    assert [spans[e.parent] for e in agent.events() if e.type == "tool.result"] == ["c", "a", "b"]
    assert all(spans[e.parent] == e.payload["result"] for e in agent.events() if e.type == "tool.result")


# --- what does not fit together -------------------------------------------------------------------------------------


def test_the_same_call_said_twice_is_judged_once(talk):
    agent = talk()
    first, second = (agent.before("Bash", {"command": "ls"}) for _ in range(2))
    assert (first.json, first.status) == (second.json, second.status)
    assert agent.types().count("tool.call") == 1


def test_the_name_of_an_open_call_is_not_lent_to_another(talk):
    agent = talk()
    agent.before("Read", {"file_path": "/a"})
    heard = agent.before("Read", {"file_path": "/b"})
    assert heard.decision == "deny"
    assert "two calls" in heard.own["permissionDecisionReason"]
    assert agent.types().count("tool.call") == 1


def test_the_name_of_an_open_call_is_not_lent_to_another_folder(talk):
    """The same relative path is another file elsewhere."""
    agent = talk()
    args = {"file_path": "src/a.py", "old_string": "a", "new_string": "b"}
    assert agent.before("Edit", args).status == 0
    body = sent("PreToolUse", "/etc", tool_name="Edit", tool_input=args, tool_use_id="toolu_01")
    assert agent.raw("PreToolUse", json.dumps(body).encode()).decision == "deny"


def test_a_call_that_nobody_asked_for_is_recorded_as_that(talk):
    agent = talk()
    assert agent.after("Bash", {"command": "rm -rf x"}, {"stdout": ""}, "t9").status == 0
    told = agent.one("tool.unasked").payload
    assert (told["tool_name"], told["args"], told["call_id"]) == ("claude-code/Bash", {"command": "rm -rf x"}, "t9")
    assert told["result"] == {"stdout": ""}
    assert "tool.call" not in agent.types()


def test_a_report_as_deep_and_large_as_may_be_is_recorded(talk):
    agent = talk()
    deep = inner = {}
    for _ in range(60):
        inner["a"] = inner = {}
    assert agent.after("Bash", {"command": "x", "deep": deep}, "y" * 2_000_000).status == 0
    assert agent.one("tool.unasked").payload["result"]["size"] == 2_000_002


def test_a_second_report_of_one_call_is_unasked(talk):
    agent = talk()
    agent.before("Read", {"file_path": "/a"})
    for result in ("one", "two"):
        agent.after("Read", {"file_path": "/a"}, result)
    assert agent.one("tool.result").payload["result"] == "one"
    assert agent.one("tool.unasked").payload["result"] == "two"


def test_what_ran_with_other_arguments_is_not_what_was_allowed(talk):
    agent = talk()
    agent.before("Bash", {"command": "ls"})
    agent.after("Bash", {"command": "rm -rf ."}, {"stdout": ""})
    assert agent.one("tool.error").payload["outcome"] == "unknown"
    assert agent.one("tool.unasked").payload["args"] == {"command": "rm -rf ."}


def test_what_was_read_is_what_was_allowed_to_be_read(talk):
    agent = talk()
    agent.before("Read", {"file_path": str(agent.lab.path / "ok.txt")})
    agent.after("Read", {"file_path": "/etc/shadow"}, "root:x")
    assert agent.one("tool.error").payload["outcome"] == "unknown"
    assert agent.one("tool.unasked").payload["result"] == "root:x"


def test_what_changes_nothing_may_come_back_with_more_arguments(talk):
    agent = talk()
    agent.before("AskUserQuestion", {"questions": []})
    agent.after("AskUserQuestion", {"questions": [], "answers": {"Which?": "this"}}, {"answers": {}})
    assert agent.types()[-1] == "tool.result"


def test_an_answer_that_reaches_nobody_is_taken_back(talk):
    agent = talk()
    heard = agent.before("Bash", {"command": "ls"})
    again = agent.before("Bash", {"command": "ls"})
    again.undo()
    assert agent.types()[-1] == "tool.call"
    heard.undo()
    heard.undo()
    assert agent.one("tool.error").payload["outcome"] == "cancelled"
    agent.after("Bash", {"command": "ls"}, {"stdout": ""})
    assert agent.types()[-1] == "tool.unasked"


def test_who_went_away_before_the_answer_was_allowed_nothing(talk):
    agent = talk()
    body = json.dumps(sent("PreToolUse", "/", tool_name="Read", tool_input={"file_path": "/x"})).encode()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"deedbook-bridge 1 claude-code PreToolUse %d\n%b" % (len(body), body))
        theirs.close()
        with pytest.raises(BrokenPipeError):
            BridgeService(agent.desk).serve(Stream(ours), ADA)
    assert agent.one("tool.error").payload["outcome"] == "cancelled"


# --- tools that nobody declared -------------------------------------------------------------------------------------

NEW = ("mcp__memory__read_graph", {"depth": 2})


@pytest.mark.parametrize(("unknown", "decision"), [("ask", "ask"), ("allow", None), ("deny", "deny")])
def test_an_unknown_tool_follows_what_the_workspace_says(talk, unknown, decision):
    agent = talk(agents={"claude-code": {"unknown_tools": unknown}}, policies={})
    assert agent.before(*NEW).decision == decision
    if decision == "deny":
        assert agent.one("tool.denied").payload["name"] == f"claude-code/{NEW[0]}"
    else:
        agent.after(*NEW, {"nodes": []})
        call = agent.one("tool.call").payload
        asked = {"tool": NEW[0], "server": "memory", "input": NEW[1]}
        assert (call["tool_name"], call["args"]) == ("claude-code/mcp", asked)


@pytest.mark.parametrize("tool", [NEW[0], "Teleport"])
def test_an_unknown_tool_is_asked_about_where_the_default_is_to_deny(talk, tool):
    agent = talk()
    heard = agent.before(tool, {"a": 1})
    assert heard.decision == "ask"
    assert heard.own["permissionDecisionReason"].startswith("no rule matches; by the ability's tag ask-by-default")
    assert agent.one("policy.check").payload["decision"] == "ask"


@pytest.mark.parametrize("then", ["deny", "ask"])
def test_a_rule_about_unknown_tools_decides_before_their_tag(talk, then):
    rule = {"match": {"abilities": ["claude-code/mcp"], "args": {"/server": {"equals": "memory"}}}, "then": then}
    policies = {"all": {"kind": "rules", "rules": [{**rule, "reason": "ours"}], "default": "deny"}}
    heard = talk(policies=policies).before(*NEW)
    assert heard.decision == then
    assert "ours" in heard.own["permissionDecisionReason"]


def test_with_unknown_tools_allowed_the_default_still_denies(talk):
    agent = talk(agents={"claude-code": {"unknown_tools": "allow"}})
    assert agent.before(*NEW).decision == "deny"


def test_a_tool_that_nobody_knows_and_is_of_no_server_is_another_ability(talk):
    agent = talk(agents={"claude-code": {"unknown_tools": "allow"}}, policies={})
    agent.before("Teleport", {"to": "x"})
    call = agent.one("tool.call").payload
    assert (call["tool_name"], call["args"]) == ("claude-code/other", {"tool": "Teleport", "input": {"to": "x"}})


def test_a_tool_that_the_workspace_declares_is_an_ability_of_its_own(talk):
    tools = {NEW[0]: {"effects": "read", "summary": "Read the graph."}}
    agent = talk(agents={"claude-code": {"tools": tools}})
    assert agent.before(*NEW).json is None
    assert agent.one("tool.call").payload["tool_name"] == f"claude-code/{NEW[0]}"


def test_hooks_and_tags_of_one_tool_are_said_in_yaml(lab, talk):
    lab.hook("never", "PreToolUse", lambda call: deny("not here"), match=None)
    tools = {"Read": {"hooks": {"pre_call": ["never"]}}, "Grep": {"tags": ["approval-gate"]}}
    agent = talk(agents={"claude-code": {"tools": tools}})
    assert (
        agent.before("Read", {"file_path": "/x"})
        .own["permissionDecisionReason"]
        .startswith("GATE_DENIED: hook never, .system/deedbook.yaml:")
    )
    assert agent.before("Grep", {"pattern": "x"}).decision == "ask"


def test_an_agent_may_have_another_name(talk):
    agent = talk("robin", agents={"robin": {"kind": "claude-code"}}, policies={})
    agent.before("Read", {"file_path": "/x"})
    assert agent.one("tool.call").payload["tool_name"] == "robin/Read"
    assert agent.one("tool.call").principal == "agent:robin"


@pytest.mark.parametrize(
    ("client", "message"),
    [
        ({"kind": "claude-codex"}, "no coding agent that is known here"),
        ({"tools": {"Bash": {"effects": "none"}}}, "may be raised, never lowered"),
    ],
)
def test_what_cannot_be_said_of_an_agent_is_refused_with_its_place(lab, client, message):
    lab.settings(agents={"claude-code": client})
    with pytest.raises(DeedbookError, match=message) as caught:
        lab.kernel()
    assert "deedbook.yaml:" in str(caught.value)


# --- whose decision it is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("enforcement", "allows", "decision"),
    [("enforce", "agent", None), ("enforce", "deedbook", "allow"), ("observe", "deedbook", None)],
)
def test_allowed_is_said_only_where_the_agents_own_permissions_are_to_be_passed(talk, enforcement, allows, decision):
    agent = talk(agents={"claude-code": {"allows": allows}}, enforcement=enforcement)
    assert agent.before("Read", {"file_path": "/x"}).decision == decision


def test_observing_lets_through_what_policies_would_have_refused(talk):
    agent = talk(enforcement="observe")
    assert agent.before("Write", {"file_path": "/x", "content": ""}).json is None
    assert agent.one("policy.check").payload["decision"] == "deny"


def test_a_signed_approval_lets_the_next_try_pass(lab, talk):
    approving(lab)
    agent = talk(agents={"claude-code": {"asks": "deedbook", "wait_s": 0}})
    heard = agent.before("Bash", {"command": "git push"})
    request = agent.one("approval.requested").payload
    assert heard.decision == "deny"
    how = f"a person runs: deedbook approvals approve {request['approval']} --as NAME; then make the same call again"
    assert heard.own["permissionDecisionReason"].endswith(how)
    answer(lab.path, request["approval"], approve=True, catalogue=lab.catalogue())
    assert agent.before("Bash", {"command": "git push"}, "t2").json is None
    agent.after("Bash", {"command": "git push"}, {"stdout": ""}, "t2")
    assert agent.types()[-1] == "tool.result"
    assert agent.before("Bash", {"command": "git push"}, "t3").decision == "deny"


def test_a_call_waits_for_the_signed_answer(lab, talk):
    approving(lab)
    agent = talk(agents={"claude-code": {"asks": "deedbook", "wait_s": 60}})
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(agent.before, "Bash", {"command": "git push"})
        until(agent.sessions)
        until(lambda: "approval.requested" in agent.types())
        until(lambda: agent.workspace("approval.requested"))
        answer(lab.path, agent.one("approval.requested").payload["approval"], approve=True, catalogue=lab.catalogue())
        assert heard.result().json is None
    assert agent.types().index("approval.granted") < agent.types().index("tool.call")
    agent.after("Bash", {"command": "git push"}, {"stdout": ""})
    assert agent.types()[-1] == "tool.result"


# --- results --------------------------------------------------------------------------------------------------------


def test_a_hook_may_leave_less_of_a_result_to_the_model(lab, talk):
    lab.hook("redact", "PostToolUse", lambda call, result: {**result, "stdout": "[redacted]"})
    agent = talk(policies={})
    agent.before("Bash", {"command": "env"})
    heard = agent.after("Bash", {"command": "env"}, {"stdout": "token", "stderr": ""})
    assert heard.own["updatedToolOutput"] == {"stdout": "[redacted]", "stderr": ""}
    assert agent.one("tool.result").payload["result"]["stdout"] == "token"


def test_a_failing_observer_is_told_to_the_model(lab, talk):
    def fails(call, result):
        raise ValueError("no")

    lab.hook("redact", "PostToolUse", fails)
    agent = talk(policies={})
    agent.before("Bash", {"command": "env"})
    heard = agent.after("Bash", {"command": "env"}, {"stdout": "token"})
    assert heard.json["decision"] == "block"
    assert "withheld" in heard.json["reason"]


# --- prompts, stops and sessions ------------------------------------------------------------------------------------


def test_a_prompt_is_recorded_and_what_follows_hangs_under_it(talk):
    agent = talk()
    assert agent.say("UserPromptSubmit", prompt="Mend it").json is None
    agent.before("Read", {"file_path": "/x"})
    message = agent.one("user.message")
    assert message.payload == {"text": "Mend it"}
    assert agent.one("tool.call").parent == message.span


def test_a_refused_prompt_is_blocked(lab, talk):
    lab.hook("quiet", "UserPromptSubmit", lambda prompt, *_: deny("not today"))
    heard = talk().say("UserPromptSubmit", prompt="x")
    why = "PROMPT_DENIED: hook quiet, .system/deedbook.yaml:4: not today"
    assert (heard.status, heard.json) == (2, {"decision": "block", "reason": why})


def test_a_prompt_that_a_hook_changed_is_blocked_since_the_agent_takes_no_other(lab, talk):
    lab.hook("mild", "UserPromptSubmit", lambda prompt, *_: transform({"prompt": prompt.lower()}), rewrites=True)
    heard = talk().say("UserPromptSubmit", prompt="SHOUT")
    assert heard.json["decision"] == "block"
    assert heard.json["reason"].endswith("say instead: shout")


def test_hints_of_hooks_are_context_for_the_model(lab, talk):
    hint = {"routing_hint": {"ability": "claude-code/Read"}, "normalized_intent": "read"}
    lab.hook("router", "UserPromptSubmit", lambda prompt, *_: Decision("allow", signals=hint))
    lines = talk().say("UserPromptSubmit", prompt="x").own["additionalContext"].split("\n")
    assert sorted(lines) == [
        "normalized_intent (router): read",
        'routing_hint (router): {"ability":"claude-code/Read"}',
    ]


def test_a_refused_session_may_do_nothing(lab, talk):
    lab.hook("closed", "SessionStart", lambda *_: deny("closed today"))
    agent = talk()
    heard = agent.say("SessionStart", source="startup")
    assert (heard.status, heard.json["continue"]) == (0, False)
    assert agent.before("Read", {"file_path": "/x"}).decision == "deny"
    assert agent.say("UserPromptSubmit", prompt="x").json["decision"] == "block"
    for event in ("Stop", "SessionEnd", "Notification", "PostToolUseFailure"):
        heard = agent.say(event, tool_name="Read", tool_input={}, error="x")
        assert (heard.status, heard.json) == (0, None), event


def test_without_hooks_an_agent_may_stop(talk):
    heard = talk().say("Stop", stop_hook_active=False, last_assistant_message="done")
    assert (heard.status, heard.json) == (0, None)


@pytest.mark.parametrize(
    ("decision", "again", "blocks"),
    [
        (allow("the tests have not run"), False, True),
        (allow("the tests have not run"), True, False),
        (allow(), False, False),
        (deny("enough"), False, False),
    ],
)
def test_an_agents_block_at_stop_is_our_allow_that_says_what_for(lab, talk, decision, again, blocks):
    lab.hook("judge", "Stop", lambda *_: decision)
    heard = talk().say("Stop", stop_hook_active=again)
    assert heard.status == 0
    assert heard.json == ({"decision": "block", "reason": "the tests have not run"} if blocks else None)


def test_a_refused_compaction_is_blocked(lab, talk):
    seen = []
    lab.hook("keep", "PreCompact", lambda subject, *_: seen.append(subject) or deny("not yet"))
    heard = talk().say("PreCompact", trigger="auto", custom_instructions="")
    why = "not yet (by hook keep, .system/deedbook.yaml:4)"
    assert (heard.status, heard.json) == (2, {"decision": "block", "reason": why})
    assert seen[0]["trigger"] == "auto"


def test_what_an_agent_only_tells_is_recorded(talk):
    agent = talk()
    heard = agent.say("Notification", message="Claude needs you", notification_type="permission_prompt")
    assert (heard.status, heard.json) == (0, None)
    assert agent.one("bridge.told").payload["said"]["notification_type"] == "permission_prompt"


def test_a_session_that_is_resumed_says_which_one_it_continues(talk):
    agent = talk()
    agent.say("SessionStart", source="startup")
    agent.say("SessionEnd", reason="other")
    agent.say("SessionStart", source="resume")
    first, second = agent.sessions()
    assert agent.one("bridge.session", second).payload["continues"] == first
    assert "continues" not in agent.one("bridge.session", first).payload
    assert agent.one("bridge.session", second).payload["said"]["source"] == "resume"


def test_a_silent_session_makes_room(talk, monkeypatch):
    monkeypatch.setattr("deedbook_serve.bridging.session_table.MAX_SESSIONS", 2)
    agent = talk()
    agent.before("Read", {"file_path": "/x"}, session="busy")
    agent.say("SessionStart", source="startup", session="silent")
    agent.say("SessionStart", source="startup", session="new")
    busy, silent, new = agent.sessions()
    assert [agent.types(each)[-1] == "session.end" for each in (busy, silent, new)] == [False, True, False]


def test_nobody_continues_the_session_of_somebody_else(talk):
    agent = talk()
    for principal in (ADA, ROBIN):
        agent.say("SessionStart", source="startup", principal=principal)
    first, second = agent.sessions()
    assert agent.one("bridge.session", first).payload["on_behalf_of"] == "ada"
    assert "continues" not in agent.one("bridge.session", second).payload


def test_another_bridge_knows_what_an_earlier_one_began(lab, talk):
    first = talk()
    first.say("SessionStart", source="startup")
    first.desk.close()
    second = Agent(lab)
    second.say("SessionStart", source="resume")
    assert second.one("bridge.session").payload["continues"] == second.sessions()[0]
    second.desk.close()


def test_agents_and_people_do_not_share_sessions(talk):
    agent = talk()
    for session in ("one", "two"):
        agent.before("Read", {"file_path": f"/{session}"}, session=session)
    assert [agent.one("tool.call", each).payload["args"]["file_path"] for each in agent.sessions()] == ["/one", "/two"]
    runs = [event.payload["run_id"] for event in read(agent.kernel.ledger.place) if event.type == "system.run"]
    assert len(set(runs)) == 2
    other = agent.say(
        "PostToolUse", session="one", principal=ROBIN, tool_name="Read", tool_input={}, tool_use_id="toolu_01"
    )
    assert other.status == 0
    assert len(agent.sessions()) == 3
    assert "tool.unasked" in agent.types(agent.sessions()[2])


def test_many_calls_at_once_are_neither_lost_nor_crossed(talk):
    agent = talk()

    def use(number):
        session, call = f"s{number % 4}", f"t{number}"
        agent.before("Read", {"file_path": f"/{number}"}, call, session=session)
        agent.after("Read", {"file_path": f"/{number}"}, number, call, session=session)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(40)))
    assert len(agent.sessions()) == 4
    for session in agent.sessions():
        intents = {e.span: e.payload["args"]["file_path"] for e in agent.events(session) if e.type == "tool.call"}
        results = [e for e in agent.events(session) if e.type == "tool.result"]
        assert len(results) == len(intents) == 10
        assert all(intents[e.parent] == f"/{e.payload['result']}" for e in results)


# --- what is no event of an agent -----------------------------------------------------------------------------------

GOOD = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": {"file_path": "/x"}}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"nonsense", b"[]", b"null", b'{"session_id":"s"', b"\xff\xfe", b"[" * 100_000,
        b'{"session_id":"s","session_id":"t"}',
        *[
            json.dumps({**GOOD, **changed}).encode()
            for changed in (
                {"session_id": ""}, {"session_id": 7}, {"session_id": "x" * 300}, {"tool_name": ""},
                {"tool_name": ["Read"]}, {"tool_input": "x"}, {"tool_input": {"n": 2**60}}, {"tool_use_id": {}},
                {"hook_event_name": "PostToolUse"}, {"tool_input": {"$sealed": "x"}},
            )
        ],
    ],
)  # fmt: skip
def test_what_an_agent_does_not_send_is_denied_and_recorded(talk, body):
    agent = talk(policies={})
    heard = agent.raw("PreToolUse", body)
    assert (heard.status, heard.decision) == (2, "deny")
    (refused,) = agent.workspace("bridge.refused")
    assert refused.payload["bytes"] == len(body)
    assert refused.payload["code"] in ("BRIDGE_INPUT", "INTAKE_REFUSED")
    assert agent.sessions() == []


@pytest.mark.parametrize("event", ["PreToolUze", "Stop2"])
def test_an_event_in_no_table_is_recorded_and_nothing_is_said_to_it(talk, event):
    agent = talk(policies={})
    said = {**GOOD, "hook_event_name": event, "count": 7, "list": [1, 2], "text": "y" * 5000, "none": None}
    heard = agent.raw(event, json.dumps(said).encode())
    assert (heard.status, heard.json, heard.err) == (0, None, "")
    told = agent.one("bridge.told").payload
    assert told["event"] == event
    assert told["said"]["count"] == 7
    assert told["said"]["list"] == {"count": 2}
    assert len(told["said"]["text"]) <= 2000
    assert "none" not in told["said"]


def test_an_event_in_no_table_without_a_session_is_refused_nothing(talk):
    """Nobody knows what exit status 2 would do there."""
    agent = talk()
    heard = agent.raw("Somethin", b"{}")
    assert (heard.status, heard.json) == (1, None)
    assert agent.workspace("bridge.refused")[0].payload["event"] == "Somethin"


def test_at_an_agents_stop_nonsense_does_not_make_it_go_on(talk):
    heard = talk().raw("Stop", b"nonsense")
    assert (heard.status, heard.json) == (1, None)


def test_an_agent_that_nobody_declared_is_told_so(talk):
    agent = talk()
    status, out, err, _ = agent.desk.answer("gemini-cli", "BeforeTool", b"{}", ROBIN)
    assert (status, out) == (2, b"")
    assert b"BRIDGE_AGENT_UNKNOWN" in err
    assert agent.workspace("bridge.refused")[0].payload["agent"] == "gemini-cli"


def test_after_the_end_everything_is_denied(talk):
    agent = talk()
    agent.desk.close()
    assert agent.before("Read", {"file_path": "/x"}).decision == "deny"


# --- others ---------------------------------------------------------------------------------------------------------


def gemini(agent, event, **more):
    said = {
        "session_id": "g1",
        "cwd": str(agent.lab.path),
        "hook_event_name": event,
        "timestamp": "2026-11-22T05:00:00Z",
    }
    return agent.raw(event, json.dumps({**said, **more}).encode())


def test_gemini_hears_its_own_words_and_has_no_names_for_its_calls(lab, talk):
    lab.hook("tidy", "PreToolUse", lambda call: transform({**call.args, "content": "clean"}), rewrites=True,
             match={"abilities": ["gemini-cli/write_file"]})  # fmt: skip
    agent = talk("gemini-cli", policies={})
    args = {"file_path": "a.txt", "content": "dirty"}
    heard = gemini(agent, "BeforeTool", tool_name="write_file", tool_input=args)
    assert heard.own["tool_input"] == {"file_path": "a.txt", "content": "clean"}
    gemini(
        agent, "AfterTool", tool_name="write_file", tool_input={**args, "content": "clean"}, tool_response={"ok": True}
    )
    assert agent.types()[-1] == "tool.result"


def test_gemini_cannot_be_made_to_forget_an_argument(lab, talk):
    lab.hook("tidy", "PreToolUse", lambda call: transform({"command": "ls"}), rewrites=True)
    lab.allow_irreversible()
    agent = talk("gemini-cli", policies={})
    args = {"command": "ls", "dir_path": "/etc"}
    assert gemini(agent, "BeforeTool", tool_name="run_shell_command", tool_input=args).json["decision"] == "deny"
    assert agent.one("tool.error").payload["outcome"] == "cancelled"


def test_an_agent_that_cannot_ask_is_told_no(talk):
    rules = {"all": {"kind": "rules", "rules": [{"match": {}, "then": "ask", "reason": "look"}], "default": "deny"}}
    agent = talk("gemini-cli", policies=rules)
    heard = gemini(agent, "BeforeTool", tool_name="run_shell_command", tool_input={"command": "ls"})
    assert (heard.status, heard.json["decision"]) == (2, "deny")
    assert "NEEDS_HUMAN" in heard.json["reason"]
    assert agent.types()[-2:] == ["approval.requested", "tool.denied"]


def test_codex_takes_another_input_with_its_permission(lab, talk):
    lab.hook("tidy", "PreToolUse", lambda call: transform({"command": "ls"}), rewrites=True)
    lab.allow_irreversible()
    agent = talk("codex", policies={})
    heard = agent.before("Bash", {"command": "ls -la"})
    assert heard.own == {
        "hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": {"command": "ls"}
    }  # fmt: skip
    agent.after("Bash", {"command": "ls"}, "a")
    assert agent.types()[-1] == "tool.result"


def test_codex_asks_about_a_call_with_a_description_that_the_call_has_not(lab, talk):
    lab.allow_irreversible()
    agent = talk("codex", policies={})
    agent.before("Bash", {"command": "ls"})
    asked = {"tool_name": "Bash", "tool_input": {"command": "ls", "description": "look around"}}
    assert agent.say("PermissionRequest", **asked).json is None
    heard = agent.say("PermissionRequest", tool_name="Bash", tool_input={"command": "rm", "description": "look"})
    assert heard.own["decision"]["behavior"] == "deny"


def test_copilot_hears_its_own_words(lab, talk):
    lab.hook("tidy", "PreToolUse", lambda call: transform({**call.args, "path": "b.txt"}), rewrites=True,
             match={"abilities": ["copilot-cli/Write"]})  # fmt: skip
    write = {"match": {"abilities": "copilot-cli/Write"}, "then": "allow"}
    shell = {"match": {"abilities": "copilot-cli/Bash"}, "then": "ask", "reason": "look"}
    rules = {"all": {"kind": "rules", "rules": [write, shell], "default": "deny"}}
    agent = talk("copilot-cli", policies=rules)

    def before(tool, args):
        return agent.say("PreToolUse", tool_name=tool, tool_input=args)

    assert before("Bash", {"command": "ls"}).json == {"permissionDecision": "ask", "permissionDecisionReason": "look"}
    changed = {"path": str(lab.path / "b.txt")}
    assert before("Write", {"path": "a.txt"}).json == {"permissionDecision": "allow", "modifiedArgs": changed}
    assert (before("Read", {"path": "a.txt"}).status, before("Read", {}).json["permissionDecision"]) == (2, "deny")
    told = {"tool_name": "Bash", "tool_input": {"command": "ls"}}
    agent.say("PostToolUse", **told, tool_result={"result_type": "success", "text_result_for_llm": "a"})
    assert agent.one("tool.result").payload["result"]["result_type"] == "success"


# --- the smallest useful workspace ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("enforcement", "decision"), [("observe", None), ("enforce", "deny")])
def test_the_smallest_useful_workspace_works(lab, talk, tmp_path, enforcement, decision):
    approving(lab)
    agent = talk(
        agents={"claude-code": {"unknown_tools": "ask"}},
        enforcement=enforcement,
        state=str(tmp_path / "state"),
        principals={"claude": {"via": "stdio", "on_behalf_of": "ada"}},
        secrets={"gh": {"env": "GITHUB_TOKEN"}},
        seal=["user.message/text", "tool.*/args/token"],
    )
    agent.say("UserPromptSubmit", prompt="a secret plan")
    assert "$sealed" in agent.one("user.message").payload["text"]
    assert agent.before("Write", {"file_path": "/etc/x", "content": ""}, "t0").decision == decision
    assert agent.before("Edit", {"file_path": str(lab.path / "src/a.py"), "old_string": "a"}, "t1").json is None
    heard = agent.before("Bash", {"command": "ls", "token": "hidden"}, "t2")
    assert heard.decision == ("ask" if enforcement == "enforce" else None)
    agent.after("Bash", {"command": "ls", "token": "hidden"}, {"stdout": ""}, "t2")
    assert b"hidden" not in lab.ledger(agent.sessions()[0]).read_bytes()
    assert agent.types()[-1] == "tool.result"
