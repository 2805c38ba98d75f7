"""A skill's ``allowed-tools`` is what its run may use. Every way round it that we can think of is tried here, for real.

The forbidden tool fails the test if it ever runs. Each attempt has to be refused, with a line in the ledger to say so.
"""

import json
import threading

import pytest

from deedbook import Failed, Ok
from deedbook.format.errors import BindingError

FORBIDDEN = "remove"
REFUSED = ("TOOL_NOT_ALLOWED", "TOOL_NOT_FOUND", "INTAKE_REFUSED")


@pytest.fixture
def run(lab):
    """Return a function that runs a flow, a function of its `Run`, under a skill that allows what it is told."""

    def forbidden(args, ctx):
        pytest.fail("the forbidden tool ran")

    lab.tool("echo", lambda args, ctx: args)
    lab.tool(FORBIDDEN, forbidden, effects="irreversible")
    lab.model(lambda request, ctx: json.loads(request["messages"][-1]["content"]))
    lab.role("worker")
    lab.role("lead")
    lab.skill("other", allows=f"echo {FORBIDDEN}")

    def go(function, allows="echo"):
        results = []
        lab.skill("go", allows=allows)
        lab.flow("work", lambda args, run: results.append(function(run)) or {"reply": "", "state": "COMPLETED"})
        with lab.session("run") as session:
            ended = session.run("go")
        assert isinstance(ended, Ok), ended.error
        return results[0]

    return go


def wanted(name, **args):
    return {"id": "t1", "name": name, "args": args}


def code(function, *args):
    with pytest.raises(Failed) as caught:
        function(*args)
    return caught.value.code


def asked(agent, *calls):
    """Let a role's model ask for *calls*, and return them as it asked."""
    return agent.complete({"messages": [{"role": "user", "content": json.dumps(calls)}]})["tool_calls"]


def refused(lab, found, *, denied=1):
    """Check that an attempt was refused, was recorded, and did nothing."""
    assert found in REFUSED
    assert len(lab.all("tool.denied")) == denied
    assert not [event for event in lab.all("tool.call") if event.payload["tool_name"] == FORBIDDEN]


# --- names ------------------------------------------------------------------------------------------------------------

SPELLINGS = {
    "itself": FORBIDDEN,
    "its plugin's name": f"offered-{FORBIDDEN}",
    "upper case": "REMOVE",
    "another case": "Remove",
    "a space after it": "remove ",
    "a space before it": " remove",
    "a line end": "remove\n",
    "a zero byte": "remove\x00",
    "full width letters": "\uff52\uff45\uff4d\uff4f\uff56\uff45",
    "Cyrillic letters": "r\u0435m\u043ev\u0435",
    "a joiner in it": "rem\u200dove",
    "a soft hyphen in it": "rem\u00adove",
    "a path": "./remove",
    "a path through what is allowed": "echo/../remove",
    "an empty segment": "/remove",
    "a kind before it": "tool/remove",
    "everything": "*",
    "a glob": "rem*",
    "a list": "echo remove",
    "a model": "model/standard",
    "the flow": "work",
    "nothing": "",
}


@pytest.mark.parametrize("way", [way for way in SPELLINGS if way != "nothing"])  # which no response can say
def test_a_model_that_asks_for_it_under_any_name_is_refused(lab, run, way):
    def flow(run):
        agent = run.agent("worker")
        return code(agent.use, asked(agent, wanted(SPELLINGS[way], text="x"))[0])

    refused(lab, run(flow))


@pytest.mark.parametrize("way", SPELLINGS)
def test_a_flow_that_calls_it_under_any_name_is_refused(lab, run, way):
    refused(lab, run(lambda run: code(run.call, SPELLINGS[way], {"text": "x"})))


@pytest.mark.parametrize("name", [None, 7, True, ["remove"], {"name": "remove"}, float("nan")])
def test_a_name_that_is_no_text_is_refused(run, name):
    def flow(run):
        agent = run.agent("worker")
        asked(agent, wanted("echo", text="x"))
        return code(agent.use, {**wanted("echo", text="x"), "name": name})

    assert run(flow) in REFUSED


# --- who asks ---------------------------------------------------------------------------------------------------------


def test_a_call_that_no_model_asked_for_is_refused(lab, run):
    def flow(run):
        agent = run.agent("worker")
        asked(agent, wanted("echo", text="x"))
        return code(agent.use, wanted(FORBIDDEN))

    refused(lab, run(flow))


def test_a_role_that_asks_for_another_skill_stays_in_its_own(lab, run):
    def flow(run):
        agent = run.agent("worker")
        request = {
            "messages": [{"role": "user", "content": json.dumps([wanted(FORBIDDEN)])}],
            "skill": {"name": "other"},
        }
        calls = agent.complete(request)["tool_calls"]
        assert code(run.record, "skill.invoke", {"skill": "other"}) == "NOT_AVAILABLE"
        return code(agent.use, calls[0])

    refused(lab, run(flow))
    assert {event.payload["request"]["skill"]["name"] for event in lab.all("llm.request")} == {"go"}
    assert [event.payload["skill"] for event in lab.all("skill.invoke")] == ["go"]


def test_another_role_has_the_same_skill(lab, run):
    def flow(run):
        asked(run.agent("worker"), wanted("echo", text="x"))
        lead = run.agent("lead")
        return code(lead.use, asked(lead, wanted(FORBIDDEN))[0])

    refused(lab, run(flow))


def test_the_answer_of_one_role_is_no_permission_for_another(lab, run):
    def flow(run):
        worker, lead = run.agent("worker"), run.agent("lead")
        return code(lead.use, asked(worker, wanted("echo", text="x"))[0])

    refused(lab, run(flow))


@pytest.mark.parametrize("way", ["call", "acall"])
def test_a_tool_that_may_use_nothing_cannot_use_it(lab, run, way):
    def nested(args, ctx):
        return {"code": code(ctx.call, FORBIDDEN, {})}

    async def anested(args, ctx):
        with pytest.raises(Failed) as caught:
            await ctx.acall(FORBIDDEN, {})
        return {"code": caught.value.code}

    lab.tool("helper", nested if way == "call" else anested)
    refused(lab, run(lambda run: run.call("helper", {})["code"], allows="helper"))


def test_a_tool_outside_the_list_whose_uses_holds_it_is_refused_itself(lab, run):
    lab.tool("helper", lambda args, ctx: ctx.call(FORBIDDEN, {}), uses=[FORBIDDEN])
    refused(lab, run(lambda run: code(run.call, "helper", {})))


def test_a_tool_with_the_name_of_a_glob_in_uses_gets_no_more_than_the_glob(lab, run):
    lab.tool("helper", lambda args, ctx: {"code": code(ctx.call, FORBIDDEN, {})}, uses=["ech*"])
    refused(lab, run(lambda run: run.call("helper", {})["code"], allows="helper"))


def test_a_sequence_outside_the_list_is_refused_before_its_first_step(lab, run):
    declare_sequence(lab, [{"id": "a", "ability": "echo"}, {"id": "b", "ability": FORBIDDEN}], [FORBIDDEN, "echo"])
    refused(lab, run(lambda run: code(run.call, "steps", {})))
    assert "tool.call" not in lab.types()


def test_a_sequence_cannot_hold_what_its_uses_does_not(lab, run):
    declare_sequence(lab, [{"id": "b", "ability": FORBIDDEN}], ["echo"])
    with pytest.raises(BindingError, match=FORBIDDEN):
        run(lambda run: None, allows="steps")


def declare_sequence(lab, steps, uses):
    body = {
        "summary": "Steps.", "handler": {"tool": "sequence"}, "with": {"steps": steps}, "uses": uses,
        "effects": "irreversible", "schema_in": {"type": "object"}, "schema_out": {"type": "object"},
    }  # fmt: skip
    lab.settings(abilities={"steps": body})


def test_a_flow_in_the_list_has_the_same_list_inside_another_flow(lab, run):
    lab.flow("inner", lambda args, run: code(run.call, FORBIDDEN, {}))
    refused(lab, run(lambda run: run.read_context(run.call("inner", {})).reply, allows="inner"))


def test_a_model_that_asks_for_its_own_model_as_a_tool_is_refused(lab, run):
    def flow(run):
        agent = run.agent("worker")
        request = {
            "messages": [{"role": "user", "content": "[]"}],
            "model": "x",
            "role": "lead",
            "schema_version": "v2",
        }
        return code(agent.use, asked(agent, {"id": "t1", "name": "model/standard", "args": request})[0])

    refused(lab, run(flow))
    assert len(lab.all("llm.request")) == 1


# --- when -------------------------------------------------------------------------------------------------------------


def test_a_skill_file_that_changes_during_the_run_changes_nothing(lab, run):
    def flow(run):
        lab.skill("go", allows=f"echo {FORBIDDEN}")
        agent = run.agent("worker")
        assert [tool["name"] for tool in agent.tools()] == ["echo"]
        return code(agent.use, asked(agent, wanted(FORBIDDEN))[0])

    refused(lab, run(flow))


def test_writing_into_what_the_run_shows_of_the_skill_changes_nothing(lab, run):
    def flow(run):
        for change in (lambda: run.skill.allowed.add(FORBIDDEN), lambda: setattr(run.skill, "allowed", {FORBIDDEN})):
            with pytest.raises(AttributeError):
                change()
        run.agent("worker").tools().append({"name": FORBIDDEN})
        return code(run.call, FORBIDDEN, {})

    refused(lab, run(flow))


def test_many_at_once_are_each_refused(lab, run):
    def flow(run):
        found = []

        def attempt():
            found.append(code(run.call, FORBIDDEN, {}))

        threads = [threading.Thread(target=attempt) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 16
        return found[0] if set(found) == {"NOT_AVAILABLE"} else str(found)

    assert run(flow) == "NOT_AVAILABLE", "threads of the flow's own are no branches"
    assert (
        lab.all("tool.denied")
        == []
        == [event for event in lab.all("tool.call") if event.payload["tool_name"] == FORBIDDEN]
    )


def test_a_thread_that_outlives_the_run_is_refused(lab, run):
    kept = []
    over = threading.Event()

    def flow(run):
        def late():
            over.wait(30)
            kept.append(code(run.call, "echo", {"text": "x"}))

        kept.append(threading.Thread(target=late))
        kept[0].start()

    lab.skill("go", allows="echo")
    lab.flow("work", lambda args, run: flow(run) or {"reply": "", "state": "COMPLETED"})
    with lab.session("run") as session:
        session.run("go")
        over.set()
        kept[0].join()
    assert kept[1] == "NOT_AVAILABLE", "a thread of the flow's own is no branch"
    assert "tool.call" not in lab.types()


# --- what the list may say --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["allowed-tools: []", "allowed-tools: ''", ""])
def test_an_empty_list_and_no_list_allow_nothing(lab, run, line):
    def flow(run):
        assert run.agent("worker").tools() == []
        return code(run.call, "echo", {"text": "x"})

    text = f"---\nname: go\ndescription: Goes.\n{line}\nmetadata: {{triggers: go}}\n---\n"
    lab.skill = lambda name, **more: lab.write(f"skills/{name}/SKILL.md", text)
    refused(lab, run(flow))


@pytest.mark.parametrize(
    "tools",
    [
        "'*'", "'**'", "[echo, '*']", "'rem?ve'", "'remove(x)'", "'remove(*)'", "'echo(remove)'",
        "Echo", "'\uff45cho'", "'\u0435cho'", "offered-echo", "model/standard",
        "'Bash(git:*)'", "null", "7", "{echo: true}", "[[echo]]", "[echo, null]", "'echo\u200b'", "nothing-there",
    ],
)  # fmt: skip
def test_a_list_that_does_not_name_an_ability_letter_by_letter_does_not_grant_it(lab, run, tools):
    """A name that leads nowhere grants nothing; a list that cannot be read sets the skill aside, and grants nothing."""

    def flow(run):
        assert FORBIDDEN not in [tool["name"] for tool in run.agent("worker").tools()]
        return code(run.call, FORBIDDEN, {"text": "x"})

    text = f"---\nname: go\ndescription: Goes.\nallowed-tools: {tools}\nmetadata: {{triggers: go}}\n---\n"
    lab.skill = lambda name, **more: lab.write(f"skills/{name}/SKILL.md", text)
    refused(lab, run(flow))


def test_two_lists_in_one_front_matter_set_the_skill_aside(lab, run):
    text = f"---\nname: go\ndescription: Goes.\nallowed-tools: echo\nallowed-tools: echo {FORBIDDEN}\n---\n"
    lab.skill = lambda name, **more: lab.write(f"skills/{name}/SKILL.md", text)
    refused(lab, run(lambda run: code(run.call, FORBIDDEN, {"text": "x"})))
    assert "duplicate key" in "".join(lab.kernel().active_charter.charter.set_aside)


# --- what is meant to work --------------------------------------------------------------------------------------------


def test_an_ability_in_the_list_may_use_what_its_own_declaration_says(lab, run):
    """`uses:` is the workspace's word on what an ability does; a skill that allows the ability allows that, too."""
    lab.tool("inner", lambda args, ctx: {"done": True})
    lab.tool("outer", lambda args, ctx: ctx.call("inner", {}), uses=["inner"])

    def flow(run):
        assert code(run.call, "inner", {}) == "TOOL_NOT_ALLOWED"
        return run.call("outer", {})

    assert run(flow, allows="outer") == {"done": True}
