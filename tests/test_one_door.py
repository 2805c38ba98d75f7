"""One door: every public way to cause an effect is known here, and each writes its intent before anything happens."""

import asyncio
import inspect
import json
import subprocess
import sys

import attrs
import pytest
from cases import for_each
from persons import approving, perform_once

import deedbook
from deedbook.call.call_context import CallCtx, WorkspaceCall
from deedbook.call.door import Door
from deedbook.call.handlers import Outcome
from deedbook.kernel import Kernel
from deedbook.sessions.runs import FlowRun, RoleAgent, RunCalls
from deedbook.sessions.session import Session
from deedbook_approvals.answering import answer
from deedbook_serve.tasks.runner import Tasks

# --- what the public names can do ------------------------------------------------------------------------------------

EFFECTS = {
    Session: {"call", "acall", "run", "go_on", "resume", "before", "abefore", "after", "aafter"},
    Door: {"call", "acall", "before", "abefore", "perform", "aperform", "after", "aafter", "resume"},
    CallCtx: {"call", "acall"},
    RunCalls: {"call", "acall", "parallel"},
    WorkspaceCall: {"call", "acall"},
    RoleAgent: {"use", "complete"},
    Tasks: {"run", "direct_run"},
}
"""The public ways to cause an effect; each is tried below."""
NO_EFFECT = {
    Kernel: {
        "session": "begins a session",
        "resume": "begins to go on with a session",
        "principal": "reads the charter",
        "client": "reads the charter",
        "pending_calls": "is where calls wait for a person",
        "recover": "ends what dead processes left, and records it",
        "close": "lets go of the workspace",
    },
    Session: {
        "start": "records, and asks hooks",
        "submit": "records, and asks hooks",
        "stop": "asks hooks, and records their answers",
        "fire": "asks hooks, and records their answers",
        "note": "records an event",
        "record": "records an event of a feature",
        "record_prompt": "records a prompt",
        "refuse": "records a refusal",
        "end": "records, and asks hooks",
        "reopen": "takes up a session to go on with",
        "suspend": "records",
        "context": "reads the state of a run",
        "find_context": "reads the state of a run",
        "id": "is a name",
        "cause": "is a span",
        "under": "says what others hang under",
    },
    Door: {
        "decide": "asks a policy, and records its answer",
        "open": "is a table",
        "approval_wait": "is where calls wait for a person",
        "is_deferred": "is a value",
        "refuse": "records a refusal",
        "close": "records what is unknown",
        "end_requests": "withdraws what waits, and records it",
    },
    CallCtx: {
        "load": "imports what a provider needs",
        "record": "records an event that the handler declares",
        "remaining": "reads a clock",
        "progress": "shows something to the caller",
        "principal": "is a value",
        "session": "is a name",
        "idempotency_key": "is a name",
        "approval": "is a value",
    },
    FlowRun: {"invoke": "calls the flow, for the door"},
    RunCalls: {
        "begin_thread": "keeps the id of a thread",
        "takes_from": "compares the id of a thread",
        "context": "is the state of a run",
        "tiers": "reads the charter",
        "agent": "records a hand-over",
        "answer": "records the state of the run",
        "read_context": "reads the state of a run",
        "outcomes": "reads the record",
        "abilities": "reads the charter",
        "skills": "reads the charter",
        "agents": "reads the charter",
        "subjects": "reads the charter",
        "start_skill": "asks hooks, and records their answers",
        "decide": "asks a policy, and records its answer",
        "now": "records a value",
        "random": "records a value",
        "new_id": "records a value",
        "mode": "is a value",
        "fire": "asks hooks, and records their answers",
        "signals": "is a value",
        "skill": "is a value",
    },
    Tasks: {
        "create": "records, and asks hooks",
        "update": "records, and asks hooks",
        "delete": "records",
        "decide": "records what a person says",
        "get": "reads the record",
        "list_all": "reads the record",
        "close": "lets go of the book",
    },
    WorkspaceCall: {
        "state": "is a path",
    },
    RoleAgent: {
        "count_tokens": "computes and records a number; docs/decisions/0104-tokens-are-counted-without-the-network.md",
        "message": "parses text",
        "tools": "reads the charter",
        "role": "is a name",
    },
}
"""The other public methods, and why they cause none. A new method belongs into one of the two tables."""


def public(of):
    inherited = {name for base in of.__bases__ for name in vars(base)}
    return {
        name
        for name, member in vars(of).items()
        if not name.startswith("_")
        and name not in inherited - EFFECTS.get(of, set())
        and (inspect.isroutine(member) or isinstance(member, property))
    }


@for_each(
    "of",
    [Kernel, Session, Door, CallCtx, FlowRun, WorkspaceCall, RunCalls, RoleAgent, Tasks],
    ids=lambda of: of.__name__,
)
def test_public_methods_are_all_known_here(of):
    inherited = {name for name in EFFECTS.get(of, set()) if name not in vars(of)}
    assert public(of) | inherited == EFFECTS.get(of, set()) | set(NO_EFFECT[of])


def test_package_exports_no_other_way():
    functions = {name for name in deedbook.__all__ if inspect.isfunction(getattr(deedbook, name))}
    assert functions == {"allow", "ask", "deny", "guard", "open_kernel", "parse", "parse_payload", "transform"}


# --- each way, tried ------------------------------------------------------------------------------------------------

PROBE = '''
from pathlib import Path
from deedbook import HandlerSpec

GIVES = {"type": "object", "required": ["recorded"], "properties": {"recorded": {"type": "boolean"}}}


def recorded(state, ctx):
    """Say whether the ledger has the intent of the call that runs now, and not yet its outcome."""
    session, _, span = ctx.idempotency_key.partition(":")
    lines = (Path(state) / "sessions" / session / ".events.jsonl").read_text().splitlines()
    begun = [line for line in lines if f'"span_id":"{span}"' in line]
    ended = [line for line in lines if f'"parent_span_id":"{span}"' in line and ("result" in line or "error" in line)]
    return len(begun) == 1 and not ended


class Probe:
    spec = HandlerSpec(gives=GIVES, effects="none")

    def __init__(self, settings, host):
        pass

    def __call__(self, args, ctx):
        return {"recorded": recorded(".deedbook", ctx)}


class Flow:
    spec = HandlerSpec(effects="none")

    def __init__(self, settings, host):
        pass

    def __call__(self, args, run):
        seen = [recorded(".deedbook", run), run.call("probe", {})["recorded"]]
        run.answer(str(seen))
'''
namespace: dict = {}
exec(PROBE, namespace)  # the same probe is a file of its own for the command line


@pytest.fixture
def probing(lab):
    """Declare probes of each kind; return what they found."""
    found = []

    def probe(args, ctx):
        found.append(namespace["recorded"](lab.state, ctx))
        return {"recorded": found[-1]}

    async def aprobe(args, ctx):
        await asyncio.sleep(0)
        return probe(args, ctx)

    def model(request, ctx):
        probe(request, ctx)
        return [{"id": "t1", "name": "probe", "args": {}}]

    lab.tool("probe", probe)
    lab.tool("aprobe", aprobe, effects="write")
    lab.tool("outer", lambda args, ctx: ctx.call(args["name"], {}), uses=["probe", "aprobe"])
    lab.tool("aouter", lambda args, ctx: ctx.acall(args["name"], {}), uses=["probe", "aprobe"])
    lab.model(model)
    lab.role("worker")
    lab.skill("go", allows="probe aprobe")
    lab.found = found
    return lab


def told(prompt):
    return {"messages": [{"role": "user", "content": prompt}]}


def in_flow(lab, work):
    """Run *work* inside a flow, once."""

    def flow(args, run):
        assert namespace["recorded"](lab.state, run)
        work(run)
        return {"reply": "", "state": "COMPLETED"}

    lab.flow("work", flow)
    with lab.session() as session:
        assert isinstance(session.run("go"), deedbook.Ok)


def with_session(work):
    def way(lab):
        with lab.session() as session:
            work(session)

    return way


def with_tasks(work):
    def way(lab):
        with lab.session() as session, lab.tasks(session) as tasks:
            assert isinstance(work(tasks), deedbook.Ok)

    return way


def door(work):
    return with_session(lambda session: work(session.door, session.caller, session.ledger.root))


def performed(at, opened):
    assert isinstance(at.perform(opened.value), deedbook.Ok)


def ended(at, opened):
    assert namespace["recorded"](at.ledger.place.partition("/sessions/")[0], opened.value)
    at.after(opened.value, Outcome("result", {"recorded": True}))


def after(session, opened):
    assert namespace["recorded"](session.ledger.place.partition("/sessions/")[0], opened.value)
    assert isinstance(session.after(opened.value, Outcome("result", {"recorded": True})), deedbook.Ok)


def use(run):
    agent = run.agent("worker")
    agent.use(agent.complete(told("go"))["tool_calls"][0])


async def aperformed(at, caller, root):
    opened = await at.abefore(caller, "aprobe", {}, root)
    await at.aperform(opened.value)


async def aended(at, caller, root):
    opened = await at.abefore(caller, "probe", {}, root)
    assert namespace["recorded"](at.ledger.place.partition("/sessions/")[0], opened.value)
    await at.aafter(opened.value, Outcome("result", {"recorded": True}))


async def session_awaited(session):
    opened = await session.abefore("probe", {})
    assert namespace["recorded"](session.ledger.place.partition("/sessions/")[0], opened.value)
    ended = await session.aafter(opened.value, Outcome("result", {"recorded": True}))
    assert isinstance(ended, deedbook.Ok)


def resumed(lab):
    """Park a call, approve it, and perform it in a session of its own."""
    approving(lab)
    lab.settings(abilities={"probe": {"tags": ["approval-gate"]}})
    with lab.session() as session:
        session.call("probe", {})
    identity = lab.payload("approval.requested")["approval"]
    answer(lab.path, identity, approve=True, catalogue=lab.catalogue())
    with lab.kernel() as kernel:
        assert isinstance(perform_once(kernel, identity), deedbook.Ok)


def gone_on(lab):
    """Interrupt a run before its one call, and go on with it."""
    tries = []

    def flow(args, run):
        tries.append(1)
        if len(tries) == 1:
            raise KeyboardInterrupt
        run.call("probe", {})

    lab.flow("work", flow)
    with pytest.raises(KeyboardInterrupt), lab.session() as session:
        session.run("go")
    with lab.kernel() as kernel, kernel.resume(session.id) as again:
        assert isinstance(again.go_on(), deedbook.Ok)


def in_branch(lab, work):
    in_flow(lab, lambda run: run.parallel([deedbook.Branch("one", work)]))


WAYS = {
    "Session.go_on": (gone_on, 1),
    "Session.resume": (resumed, 1),
    "Door.resume, which Session.resume uses": (resumed, 1),
    "Session.call": (with_session(lambda session: session.call("probe", {})), 1),
    "Session.call of a coroutine": (with_session(lambda session: session.call("aprobe", {})), 1),
    "Session.acall": (with_session(lambda session: asyncio.run(session.acall("aprobe", {}))), 1),
    "Session.before, after": (with_session(lambda session: after(session, session.before("probe", {}))), 0),
    "Session.abefore, aafter": (with_session(lambda session: asyncio.run(session_awaited(session))), 0),
    "Session.run": (lambda lab: in_flow(lab, lambda run: None), 0),
    "Door.call": (door(lambda at, caller, root: at.call(caller, "probe", {}, root)), 1),
    "Door.acall": (door(lambda at, caller, root: asyncio.run(at.acall(caller, "aprobe", {}, root))), 1),
    "Door.before, perform": (door(lambda at, caller, root: performed(at, at.before(caller, "probe", {}, root))), 1),
    "Door.abefore, aperform": (door(lambda at, caller, root: asyncio.run(aperformed(at, caller, root))), 1),
    "Door.before, after": (door(lambda at, caller, root: ended(at, at.before(caller, "probe", {}, root))), 0),
    "Door.abefore, aafter": (door(lambda at, caller, root: asyncio.run(aended(at, caller, root))), 0),
    "Tasks.run": (with_tasks(lambda tasks: tasks.run(tasks.create("probe", {}).value.task.id)), 1),
    "Tasks.direct_run": (with_tasks(lambda tasks: tasks.direct_run("probe", {})), 1),
    "Tasks.direct_run with a key": (with_tasks(lambda tasks: tasks.direct_run("probe", {}, idempotency_key="k")), 1),
    "Ctx.call": (with_session(lambda session: session.call("outer", {"name": "probe"})), 1),
    "Ctx.acall": (with_session(lambda session: session.call("aouter", {"name": "aprobe"})), 1),
    "Run.call": (lambda lab: in_flow(lab, lambda run: run.call("probe", {})), 1),
    "Run.acall": (lambda lab: in_flow(lab, lambda run: asyncio.run(run.acall("aprobe", {}))), 1),
    "Run.call in Run.parallel": (lambda lab: in_branch(lab, lambda run: run.call("probe", {})), 1),
    "Agent.complete": (lambda lab: in_flow(lab, lambda run: run.agent("worker").complete(told("go"))), 1),
    "Agent.use": (lambda lab: in_flow(lab, use), 2),
}


@pytest.mark.parametrize("name", WAYS)
def test_way_to_an_effect_has_its_intent_in_the_ledger_while_it_happens(probing, name):
    way, probes = WAYS[name]
    way(probing)
    assert probing.found == [True] * probes


def test_every_public_way_is_tried():
    tried = " ".join(WAYS)
    for of, names in EFFECTS.items():
        owner = {CallCtx: "Ctx", WorkspaceCall: "Ctx", RunCalls: "Run", RoleAgent: "Agent"}.get(of, of.__name__)
        for name in names:
            assert any(
                way.startswith(owner) and name in way.replace(",", "").replace(".", " ").split() for way in WAYS
            ), f"{owner}.{name} is not among {tried}"


@pytest.mark.parametrize("way", ["call", "run"])
def test_command_line_has_the_intent_in_the_ledger_while_it_happens(lab, tmp_path, monkeypatch, way):
    site = tmp_path / "site"
    info = site / "probe-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "probe.py").write_text(PROBE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[deedbook.tools]\nprobe=probe:Probe\n[deedbook.flows]\nprobe=probe:Flow\n")
    (info / "RECORD").write_text("probe.py,,\nprobe-1.0.dist-info/entry_points.txt,,\n")
    lab.settings(
        profile="p",
        profiles={"p": {"flow": "work"}},
        abilities={
            "probe": {"summary": "Probe.", "handler": {"tool": "probe"}},
            "work": {"summary": "Work.", "handler": {"flow": "probe"}},
        },
    )
    lab.skill("go", allows="probe")
    command = [
        sys.executable,
        "-c",
        "from deedbook.cli.program import main; main()",
        way,
        *(["probe"] if way == "call" else ["go"]),
    ]
    path = f"{site}:{':'.join(entry for entry in sys.path if entry)}"
    done = subprocess.run(
        command,
        cwd=lab.path,
        env={"PYTHONPATH": path, "HOME": str(lab.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.lower()) == ({"recorded": True} if way == "call" else [True, True])


def test_principal_and_scope_of_a_session_cannot_be_widened_by_its_callers_copy(probing):
    """A caller is a frozen value: widening a copy of it is the act of who holds the session, not of who is called."""
    with probing.session() as session, pytest.raises(attrs.exceptions.FrozenInstanceError):
        session.caller.scope = None
