"""Agents as processes: the same steps as inside the runner, over an inbox."""

import json
import os
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread

import pytest
from click.testing import CliRunner
from pipelines import copy_workspace
from ruamel.yaml import YAML

from deedbook import Failed, open_kernel
from deedbook.cli.common import GlobalOptions
from deedbook.cli.program import program
from deedbook.format.canonical import encode
from deedbook_flow_swe.services.compose import Layout, build_compose
from deedbook_flow_swe.services.inbox import REPLY, REQUEST, read_reply, read_request
from deedbook_flow_swe.services.steps import AgentTask, Step, next_step
from deedbook_flow_swe.services.worker import AgentWorker

TASK = AgentTask(
    agent="planner-agent",
    messages=({"role": "system", "content": "Plan."}, {"role": "user", "content": "The task."}),
    tools=({"name": "file-read"},),
    response_schema="phase_answer_v1",
)
CALL = {"id": "c1", "name": "file-read", "args": {"path": "a"}}
NAME = "ab" * 32


def said(text="", calls=()):
    return {"text": text, "tool_calls": list(calls), "finish_reason": "tool_use" if calls else "stop"}


def walk(task, replies):
    """Return the kinds of the steps that the replies lead to, and the last step."""
    transcript = []
    for reply in replies:
        transcript.append({"step": next_step(task, transcript).as_json(), "reply": reply})
    return [entry["step"]["kind"] for entry in transcript], next_step(task, transcript)


def test_agent_asks_its_model_first_with_its_messages_and_tools():
    _, step = walk(TASK, [])
    assert step == Step(
        "complete", {"messages": list(TASK.messages), "response_schema": "phase_answer_v1", "tools": list(TASK.tools)}
    )


def test_agent_makes_each_call_that_its_model_asks_for_and_then_asks_again():
    second = {**CALL, "id": "c2"}
    kinds, step = walk(TASK, [said(calls=[CALL, second]), {"result": {"text": "x"}}, {"error": {"code": "DENIED"}}])
    assert kinds == ["complete", "use", "use"]
    assert step.kind == "complete"
    assert [each["role"] for each in step.value["messages"][2:]] == ["assistant", "tool", "tool"]
    assert json.loads(step.value["messages"][-1]["content"]) == {"error": {"code": "DENIED"}}


def test_agent_answers_with_the_text_of_its_model():
    assert walk(TASK, [said("done")])[1] == Step("answer", "done")


def test_agent_without_tools_makes_no_calls():
    task = AgentTask(agent="a", messages=TASK.messages, response_schema="s")
    assert walk(task, [said("done", calls=[CALL])])[1] == Step("answer", "done")


def test_refused_answer_is_told_to_the_model_with_the_task():
    kinds, step = walk(TASK, [said("no JSON"), {"violation": "it has to be JSON"}])
    assert kinds == ["complete", "answer"]
    told = step.value["messages"][-1]["content"]
    assert told.startswith("The task.")
    assert told.endswith("it has to be JSON")


@pytest.fixture
def inbox(tmp_path):
    folder = tmp_path / "planner-agent"
    folder.mkdir()
    return folder


def send(inbox, *, name=NAME, agent="planner-agent", **changed):
    task = {**TASK.as_json(), "agent": agent}
    request = {"id": name, "task": task, "transcript": [], "schema_version": "v1", **changed}
    beside = inbox / f"{name}.new"
    beside.write_text(json.dumps(request))
    beside.rename(inbox / f"{name}{REQUEST}")


def test_worker_answers_a_request_once(inbox):
    worker = AgentWorker("planner-agent", inbox, print)
    send(inbox)
    assert worker.answer_all() == 1
    reply = read_reply((inbox / f"{NAME}{REPLY}").read_bytes())
    assert reply == {"id": NAME, "step": next_step(TASK, []).as_json(), "schema_version": "v1"}
    assert worker.answer_all() == 0
    assert sorted(each.name for each in inbox.iterdir()) == [f"{NAME}{REPLY}", f"{NAME}{REQUEST}"]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"agent": "builder-agent"}, "to builder-agent"),
        ({"schema_version": "v2"}, "schema_version"),
        ({"transcript": [{"step": {"kind": "run", "value": {}}, "reply": {}}]}, "kind"),
    ],
)
def test_worker_refuses_a_request_that_is_not_for_it_and_reports_it_once(inbox, request_, why):
    lines = []
    worker = AgentWorker("planner-agent", inbox, lines.append)
    send(inbox, **request_)
    assert worker.answer_all() + worker.answer_all() == 0
    assert len(lines) == 1
    assert why in lines[0]


@pytest.mark.parametrize("raw", [b"", b"{", b'{"id": 1}', b"[]", b"\xff", b'{"id":"' + b"a" * (9 << 20) + b'"}'])
def test_message_that_is_none_is_refused(raw):
    for read in (read_request, read_reply):
        with pytest.raises(Failed, match="the re") as refused:
            read(raw)
        assert refused.value.code == "AGENT_MESSAGE_REFUSED"


def test_agent_runs_as_a_process_without_the_environment_of_the_runner(inbox):
    program = Path(sys.executable).with_name("deedbook")
    command = [program, "swe", "agent", "planner-agent", "--inbox", inbox.parent]
    with subprocess.Popen(command, env={"PATH": os.environ["PATH"]}, stderr=subprocess.PIPE) as process:
        send(inbox)
        reply = inbox / f"{NAME}{REPLY}"
        while not reply.exists():
            assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert read_reply(reply.read_bytes())["step"]["kind"] == "complete"


# --- the runner's side ------------------------------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / ".system").mkdir()
    (tmp_path / ".system/deedbook.yaml").write_text(
        "schema_version: v1\ndefault: {write: allow}\nfiles: {roots: ['.']}\n"
        "abilities: {dispatch: {summary: Ask an agent., handler: {tool: swe-dispatch}, with: {seconds: 20}}}\n"
    )
    return tmp_path


@pytest.fixture
def agents(workspace):
    """Serve the inbox of one agent on a thread."""
    stopped = Event()
    worker = AgentWorker("planner-agent", workspace / "shared/inbox/planner-agent", print)
    thread = Thread(target=worker.serve, args=(stopped.is_set,))
    thread.start()
    yield workspace
    stopped.set()
    thread.join()


def ask(workspace, **args):
    with open_kernel(workspace) as kernel, kernel.session() as session:
        return session.call("dispatch", {"task": TASK.as_json(), "transcript": [], **args})


def test_runner_gets_the_step_that_it_would_compute_itself(agents):
    transcript = [{"step": next_step(TASK, []).as_json(), "reply": said(calls=[CALL])}]
    assert ask(agents).value == next_step(TASK, []).as_json()
    assert ask(agents, transcript=transcript).value == {"kind": "use", "value": CALL}


def test_agent_that_is_not_there_is_named_with_its_command(workspace):
    settings = workspace / ".system/deedbook.yaml"
    settings.write_text(settings.read_text().replace("seconds: 20", "seconds: 0.1"))
    error = ask(workspace).error
    assert error.code == "AGENT_TIMEOUT"
    assert "deedbook swe agent planner-agent" in error.message


@pytest.mark.parametrize("raw", ["{", '{"id": "00", "step": {"kind": "run"}, "schema_version": "v1"}'])
def test_reply_that_is_none_is_refused(workspace, raw):
    inbox = workspace / "shared/inbox/planner-agent"
    inbox.mkdir(parents=True)
    name = sha256(encode({"task": TASK.as_json(), "transcript": []})).hexdigest()
    (inbox / f"{name}{REPLY}").write_text(raw)
    assert ask(workspace).error.code == "AGENT_MESSAGE_REFUSED"


def test_step_whose_outcome_was_lost_is_asked_for_again(agents):
    args = {"task": TASK.as_json(), "transcript": []}
    with open_kernel(agents) as kernel:
        handler = kernel.bindings.find("dispatch").handler
        assert handler.reconcile(args, "any") == handler.reconcile(args, "any") == next_step(TASK, []).as_json()
    assert len(list((agents / "shared/inbox/planner-agent").iterdir())) == 2


@pytest.mark.parametrize("name", ["../planner-agent", "", "a/b", "x" * 65])
def test_name_that_leaves_the_inboxes_is_refused(tmp_path, name):
    ran = CliRunner().invoke(program, ["swe", "agent", name, "--inbox", str(tmp_path)], obj=GlobalOptions())
    assert ran.exit_code != 0
    assert list(tmp_path.iterdir()) == []


# --- the layout of services -------------------------------------------------------------------------------------------


def test_agents_and_executor_have_no_network_no_key_and_no_files_but_their_own():
    made = build_compose(Layout(agents=["planner-agent", "builder-agent"], data=".", variables=["KEY"]))
    services = made["services"]
    assert list(services) == ["pipeline-runner", "planner-agent", "builder-agent", "executor"]
    assert [name for name, each in services.items() if "KEY" in each.get("environment", {})] == ["pipeline-runner"]
    assert services["pipeline-runner"]["environment"]["DEEDBOOK_TRUSTED_WORKSPACES"] == "/workspace"
    for name in ("planner-agent", "builder-agent", "executor"):
        each = services[name]
        assert (each["network_mode"], each["read_only"], each["cap_drop"]) == ("none", True, ["ALL"])
    assert services["executor"]["user"] == "65534:65534"
    assert {each["restart"] for each in services.values()} == {"unless-stopped"}
    assert services["pipeline-runner"]["command"][:7] == [
        "deedbook",
        "-C",
        "/workspace",
        "swe",
        "run",
        "--all",
        "--every",
    ]
    assert services["planner-agent"]["user"] == services["pipeline-runner"]["user"]
    assert services["planner-agent"]["volumes"] == ["./shared/inbox/planner-agent:/inbox/planner-agent"]


def test_executor_may_make_its_socket_and_serves_the_user_of_the_runner():
    made = build_compose(Layout(agents=[], data="."))
    runner, executor = made["services"]["pipeline-runner"], made["services"]["executor"]
    *_, place, option, peer = executor["command"]
    assert (option, peer) == ("--peer", runner["user"].rpartition(":$")[0])
    folder = place.rpartition("/")[0]
    assert executor["volumes"] == [f"executor:{folder}"]
    assert executor["volumes"][0] in runner["volumes"]
    assert f"uid={executor['user'].partition(':')[0]}," in made["volumes"]["executor"]["driver_opts"]["o"]


def test_compose_file_is_printed_for_the_pipeline_of_the_workspace(tmp_path):
    place = copy_workspace("small", tmp_path / "work")
    shown = CliRunner().invoke(program, ["-C", str(place), "swe", "compose"], obj=GlobalOptions())
    assert shown.exit_code == 0, shown.output
    assert list(YAML(typ="safe").load(shown.output)["services"]) == [
        "pipeline-runner", "outliner", "builder", "checker", "executor",
    ]  # fmt: skip
