"""A fork does the work again at the door, is served what was recorded, and repeats no effect."""

import asyncio
import json
from pathlib import Path

import ledgers
import pytest
from commandline import SCHEMAS
from remembering import fine, propose, remembering
from remembering import told as remembered

from deedbook import Failed, Ok, deny, transform
from deedbook.continuation.parent import read_parent
from deedbook.format.events import Entry, label, line_prefix, seal_line, split_line
from deedbook_audit.verification.forks import compare_fork
from deedbook_audit.verify import verify_file
from deedbook_inspect.forking.fork import plan_fork, redo_work


@pytest.fixture
def greeting(lab):
    """Declare a run whose model and tool count how often they are asked; return the counts."""
    asked = {"model": [], "echo": [], "write": []}

    def work(args, run):
        agent, messages = run.agent("worker"), [{"role": "user", "content": args["prompt"]}]
        while True:
            response = agent.complete({"messages": messages})
            if not response["tool_calls"]:
                return {"reply": response["text"], "state": "COMPLETED"}
            used = agent.use(response["tool_calls"][0])
            messages = [*messages, {"role": "tool", "tool_call_id": "t1", "content": json.dumps(used)}]

    def model(request, ctx):
        asked["model"].append(request["messages"])
        if len(request["messages"]) == 1:
            return [{"id": "t1", "name": "echo", "args": {"text": request["messages"][0]["content"]}}]
        return f"said {request['messages'][-1]['content']}, {len(asked['model'])}"

    lab.tool("echo", lambda args, ctx: asked["echo"].append(args) or args)
    lab.tool("write", lambda args, ctx: asked["write"].append(args) or len(asked["write"]), effects="write")
    lab.model(model)
    lab.role("worker")
    lab.skill("greet", allows="echo", triggers="hello")
    lab.flow("work", work)
    return asked


@pytest.fixture
def fork(lab):
    """Return what forks a session (its id) at an event, and does the work again; it returns the session and the end."""

    def made(parent, at, *, goes_on=False, leaves=False, prompts=(), purpose="open"):
        kernel = lab.kernel()
        planned = plan_fork(
            kernel, read_parent(lab.ledger(parent)), at, goes_on=goes_on, leaves=leaves, prompts=prompts
        )
        with kernel.session(purpose, origin=planned.origin) as session:
            came = redo_work(session, planned)
        made.recall = planned.recall
        return session.id, came

    return made


def run(lab, prompt="hello there"):
    with lab.session("run") as session:
        assert session.run(prompt).value.state == "COMPLETED"
    return session.id


def last(lab, session):
    return len(lab.events(session)) - 1


def at(lab, session, kind, number=0):
    return [event.seq for event in lab.events(session) if event.type == kind][number]


def outcomes(lab, session):
    return [event.payload for event in lab.events(session) if event.type in ("tool.result", "llm.response")]


def counts(asked):
    return {name: len(calls) for name, calls in asked.items()}


# --- the past -------------------------------------------------------------------------------------------------------


def test_whole_run_is_done_again_without_asking_any_handler(lab, greeting, fork):
    parent = run(lab)
    raw, before = lab.ledger(parent).read_bytes(), counts(greeting)
    session, came = fork(parent, last(lab, parent), purpose="run")
    assert came.value.text == 'said {"text": "hello there"}, 2'
    assert counts(greeting) == before
    assert lab.ledger(parent).read_bytes() == raw
    assert outcomes(lab, session) == outcomes(lab, parent)
    forked = lab.events(session)[1]
    hashes = read_parent(lab.ledger(parent)).hashes
    assert (forked.type, forked.parent) == ("session.forked", lab.events(session)[0].span)
    assert forked.payload == {
        "session": parent, "seq": last(lab, parent), "hash": hashes[-1], "goes_on": False
    }  # fmt: skip
    types = [kind for kind in lab.types(session) if kind not in ("session.forked", "call.served")]
    assert types == lab.types(parent)
    spans = {event.span: event.type for event in lab.events(session)}
    served = [event for event in lab.events(session) if event.type == "call.served"]
    assert [spans[event.parent] for event in served] == ["llm.response", "tool.result", "llm.response"]
    assert [event.payload["hash"] for event in served] == [hashes[event.payload["seq"]] for event in served]


def test_after_the_past_nothing_is_done_unless_it_is_asked_for(lab, greeting, fork):
    parent = run(lab)
    before = counts(greeting)
    session, came = fork(parent, at(lab, parent, "llm.response"))
    assert came.error.code == "FORK_ENDED"
    assert counts(greeting) == before
    assert [event.payload["outcome"] for event in lab.events(session) if event.type == "tool.error"] == ["cancelled"]
    session, came = fork(parent, at(lab, parent, "llm.response"), goes_on=True)
    assert came.value.text == 'said {"text": "hello there"}, 3'
    assert counts(greeting) == {"model": before["model"] + 1, "echo": before["echo"] + 1, "write": 0}


def test_prompts_of_ones_own_come_after_the_past(lab, greeting, fork):
    parent = run(lab)
    session, came = fork(parent, last(lab, parent), prompts=["hello you", "hello all"])
    assert isinstance(came, Ok), came
    assert came.value.text.startswith('said {"text": "hello all"}')
    texts = [event.payload["text"] for event in lab.events(session) if event.type == "user.message"]
    assert texts == ["hello there", "hello you", "hello all"]
    session, came = fork(parent, 0, prompts=["hello you"])
    texts = [event.payload["text"] for event in lab.events(session) if event.type == "user.message"]
    assert texts == ["hello you"], "what comes after the event was never asked"


def test_fork_of_a_fork_is_served_what_the_first_was_served(lab, greeting, fork):
    parent = run(lab)
    first, _ = fork(parent, at(lab, parent, "tool.result"), goes_on=True)
    before = counts(greeting)
    second, came = fork(first, last(lab, first))
    assert isinstance(came, Ok)
    assert counts(greeting) == before
    assert outcomes(lab, second) == outcomes(lab, first) != outcomes(lab, parent)
    assert {event.payload["session"] for event in lab.events(second) if event.type == "call.served"} == {first}


def test_calls_and_their_effects_are_not_repeated(lab, greeting, fork):
    with lab.session() as session:
        told = [session.call("write", {"text": "a"}), session.call("write", {"text": "a"}), session.call("echo", {})]
    assert told == [Ok(1), Ok(2), Ok({})]
    again, came = fork(session.id, last(lab, session))
    assert len(greeting["write"]) == 2
    assert [payload["result"] for payload in outcomes(lab, again)] == [1, 2, {}], "equal calls in order of occurrence"
    assert came == Ok({})
    fork(session.id, at(lab, session, "tool.result", 1), goes_on=True)
    assert (len(greeting["write"]), len(greeting["echo"])) == (2, 2), "the third is made for real"


def test_recorded_failure_is_served_as_it_was(lab, greeting, fork):
    def fail(args, ctx):
        greeting["write"].append(args)
        raise Failed("GONE", "it is gone", retryable=True)

    lab.tool("fail", fail, effects="write")
    with lab.session() as session:
        session.call("fail", {})
    again, came = fork(session.id, last(lab, session))
    assert (came.error.code, came.error.message, came.error.retryable) == ("GONE", "it is gone", True)
    assert len(greeting["write"]) == 1
    first, second = ([e.payload for e in lab.events(each) if e.type == "tool.error"] for each in (session, again))
    assert first == second


def test_what_a_served_call_called_is_past_with_it(lab, greeting, fork):
    lab.tool("outer", lambda args, ctx: [ctx.call("write", args), ctx.call("write", args)], uses=["write"])
    with lab.session() as session:
        session.call("outer", {"text": "x"})
        session.call("write", {"text": "x"})
    again, came = fork(session.id, last(lab, session))
    assert came == Ok(3)
    assert len(greeting["write"]) == 3
    assert lab.types(again).count("tool.call") == 2


def test_what_is_served_is_not_remembered_twice(lab, fork):
    remembering(lab)
    with lab.session() as session:
        fine(propose(session, "weather/today", "grey"))
        assert len(fine(session.call("memory/read", {"zone": "observation"}))["entries"]) == 1
    written = len(remembered(lab))
    again, came = fork(session.id, last(lab, session))
    assert isinstance(came, Ok)
    assert len(remembered(lab)) == written
    assert lab.types(again).count("call.served") == 2


def test_calls_that_overlapped_may_come_in_either_order(lab, greeting, fork):
    async def slow(args, ctx):
        greeting["echo"].append(args)
        await asyncio.sleep(args["seconds"])
        return args

    async def both(args, ctx):
        order = args["order"] if not greeting["model"] else args["order"][::-1]
        await asyncio.gather(*(ctx.acall("slow", {"seconds": each}) for each in order))

    lab.tool("slow", slow)
    lab.flow("work", both, uses=["slow"])
    lab.skill("both", allows="slow", triggers="both")
    with lab.session("run") as session:
        session.run("both")
    calls = len(greeting["echo"])
    greeting["model"].append("now the other way round")
    fork(session.id, last(lab, session))
    assert len(greeting["echo"]) == calls


# --- leaving the past -----------------------------------------------------------------------------------------------


def test_call_that_differs_is_told_pointer_by_pointer_and_stops_everything(lab, greeting, fork):
    with lab.session() as session:
        session.call("write", {"text": "a", "deep": [{"x": 1}], "gone": True})
        session.call("write", {"text": "b"})
    lab.hook("change", "PreToolUse", _changed, rewrites=True)
    again, came = fork(session.id, last(lab, session))
    assert came.error.code == "FORK_DIVERGED"
    assert len(greeting["write"]) == 2
    diverged = [event for event in lab.events(again) if event.type == "call.diverged"]
    assert len(diverged) == 1
    assert diverged[0].payload["differences"] == [
        {"path": "/deep/0/x", "recorded": "1", "now": "2"},
        {"path": "/gone", "recorded": "true"},
        {"path": "/new~1er", "now": '"n"'},
    ]
    assert "/deep/0/x: recorded 1, now 2" in came.error.message
    ends = [event.payload["outcome"] for event in lab.events(again) if event.type == "tool.error"]
    assert ends == ["failed", "cancelled"]


def _changed(call):
    args = {key: value for key, value in call.args.items() if key != "gone"}
    return transform({**args, "deep": [{"x": 2}], "new/er": "n"} if "deep" in args else args)


def test_handlers_run_from_a_difference_on_if_that_is_wanted(lab, greeting, fork):
    with lab.session() as session:
        session.call("write", {"deep": [{"x": 1}]})
        session.call("write", {"text": "b"})
    lab.hook("change", "PreToolUse", _changed, rewrites=True)
    again, came = fork(session.id, last(lab, session), leaves=True)
    assert came == Ok(4)
    assert len(greeting["write"]) == 4
    assert "call.diverged" in lab.types(again)
    assert "call.served" not in lab.types(again)


def test_denial_of_today_is_not_passed_over(lab, greeting, fork):
    with lab.session() as session:
        session.call("write", {"text": "a"})
        session.call("echo", {"text": "b"})
    lab.hook("no", "PreToolUse", lambda call: deny("not today"), match={"abilities": ["write"]})
    again, came = fork(session.id, last(lab, session))
    assert came.error.code == "FORK_DIVERGED"
    assert f"event {at(lab, session, 'tool.call')}" in came.error.message
    assert lab.types(again).count("tool.denied") == 1
    assert len(greeting["echo"]) == 1
    lab.hook("no", "PreToolUse", lambda call: deny("not today"), match={"abilities": ["echo"]})
    again, came = fork(session.id, last(lab, session))
    assert "was not asked for again" in came.error.message
    assert "call.diverged" in lab.types(again)


def test_call_that_was_denied_and_is_allowed_today_does_not_run(lab, greeting, fork):
    lab.hook("no", "PreToolUse", lambda call: deny("no"), match={"abilities": ["write"]})
    with lab.session() as session:
        session.call("write", {"text": "a"})
        session.call("echo", {"text": "b"})
    lab.hook("no", "PreToolUse", lambda call: deny("no"), match={"abilities": ["nothing"]})
    _, came = fork(session.id, last(lab, session))
    assert came.error.code == "FORK_DIVERGED"
    assert not greeting["write"]


# --- what is not there ----------------------------------------------------------------------------------------------


def test_call_whose_outcome_was_lost_is_not_done_again(lab, greeting, fork):
    session = lab.session()
    ticket = session.before("write", {"text": "a"}).value
    session.call("echo", {"text": "b"})
    cut = lab.path / "interrupted.jsonl"
    cut.write_bytes(lab.ledger(session).read_bytes())
    session.end(ok=False, reason="x")
    lab.ledger(session).write_bytes(cut.read_bytes())
    lab.damaged = True
    assert ticket
    again, _ = fork(session.id, last(lab, session), goes_on=True)
    assert [event.payload["outcome"] for event in lab.events(again) if event.type == "tool.error"] == ["unknown"]
    assert not greeting["write"]
    assert len(greeting["echo"]) == 1


def test_lost_call_that_made_a_write_is_not_done_again(lab, greeting, fork):
    calls = []

    def outer(args, ctx):
        calls.append(ctx.call("write", {}))
        if len(calls) == 1:
            (lab.path / "cut.jsonl").write_bytes(lab.ledger(ctx.session).read_bytes())

    lab.tool("outer", outer, effects="read", uses=["write"])
    with lab.session() as session:
        session.call("outer", {})
    lab.ledger(session).write_bytes((lab.path / "cut.jsonl").read_bytes())
    lab.damaged = True
    again, _ = fork(session.id, last(lab, session), goes_on=True)
    assert [event.payload["outcome"] for event in lab.events(again) if event.type == "tool.error"] == ["unknown"]
    assert len(greeting["write"]) == 1


def test_sealed_values_are_served_opened_and_their_absence_is_said(lab, greeting, fork):
    lab.settings(seal=["tool.call/args/text", "tool.result/result"])
    with lab.session() as session:
        session.call("echo", {"text": "a secret"})
    again, came = fork(session.id, last(lab, session))
    assert came == Ok({"text": "a secret"})
    assert b"a secret" not in lab.ledger(again).read_bytes()
    for place in (lab.ledger(session).parent / "sealed").iterdir():
        place.unlink()
    again, came = fork(session.id, last(lab, session))
    assert came.error.code == "FORK_INCOMPLETE"
    assert len(greeting["echo"]) == 1


def test_difference_of_sealed_values_is_not_told(lab, greeting, fork):
    lab.settings(seal=["tool.call/args/text", "hook.fired/input", "hook.fired/output"])
    with lab.session() as session:
        session.call("echo", {"text": "one secret"})
    lab.hook("change", "PreToolUse", lambda call: _other(), rewrites=True)
    again, came = fork(session.id, last(lab, session))
    assert came.error.code == "FORK_DIVERGED"
    assert "secret" not in came.error.message
    assert b"secret" not in lab.ledger(again).read_bytes()


def _other():
    return transform({"text": "another secret", "more": 1})


# --- what a verifier checks -----------------------------------------------------------------------------------------


def test_verifier_holds_a_fork_against_its_parent(lab, greeting, fork):
    parent = run(lab)
    session, _ = fork(parent, last(lab, parent))
    place = lab.ledger(session)
    assert (
        compare_fork(lab.ledger(parent), lab.ledger)
        == compare_fork(place, lambda _: None)
        == compare_fork(place, lab.ledger)
        == []
    )
    told = f"forked from session {parent}: 3 outcomes were served from its record"
    assert any(note.startswith(told) for note in lab.verify(session).notes)
    cut = lab.path / "cut.jsonl"
    cut.write_bytes(b"".join(lab.ledger(parent).read_bytes().splitlines(keepends=True)[:-3]))
    assert [gap.found for gap in compare_fork(place, lambda _: cut)] == ["no such event"]


def test_verifier_finds_an_outcome_that_was_never_recorded(lab, greeting, fork):
    parent = run(lab)
    session, _ = fork(parent, last(lab, parent))
    place = _forged(lab.ledger(session), lab.path / "forged.jsonl", lambda raw: raw.replace(b"hello there", b"bye"))
    gaps = compare_fork(place, lab.ledger)
    assert gaps
    assert all("the outcome of event" in gap.expected for gap in gaps)


def failures(tmp_path, change):
    """Return what a verifier says of a forked ledger after *change* was made to its book."""
    book = ledgers.forked(change)
    return [failure.found for failure in verify_file(book.write(tmp_path), schemas=SCHEMAS).structure.failures]


def test_verifier_checks_what_a_fork_says_of_itself(tmp_path):
    assert failures(tmp_path, {}) == []
    nowhere = [f"{kind} in a session that goes on from nowhere" for kind in ("call.served", "approval.served")]
    assert sorted(set(failures(tmp_path, {"session.forked": None}))) == sorted(nowhere)
    other = {"call.served": {"session": "6f" * 16}}
    assert failures(tmp_path, other) == [f"call.served of session {'6f' * 16}, which is not the parent"]
    other = {"approval.served": {"session": "6f" * 16}}
    assert failures(tmp_path, other) == [f"approval.served of session {'6f' * 16}, which is not the parent"]
    assert failures(tmp_path, {"above": True}) == ["call.served that is not under the outcome before it"]
    assert failures(tmp_path, {"twice": True}) == ["a second session.forked"]


def test_verifier_finds_an_effect_under_an_approval_that_was_only_served(tmp_path):
    honest = ledgers.forked().write(tmp_path)
    assert compare_fork(honest, lambda _: None) == []
    gaps = compare_fork(ledgers.forked({"effect": True}).write(tmp_path), lambda _: None)
    assert [gap.found.startswith("one of its own, in event") for gap in gaps] == [True]


def _forged(source: Path, place: Path, change) -> Path:
    """Write a ledger anew, with the payloads of outcomes changed and every hash right."""
    made, before = [], None
    for raw in source.read_bytes().splitlines(keepends=True):
        line = split_line(raw)
        payload = change(line.payload) if line.event_type in ("tool.result", "llm.response") else line.payload
        who = label(line.event_type, line.actor, line.principal)
        entry = Entry(who, line.span_id, line.parent_span_id, payload)
        prefix = line_prefix(line.session_id, line.trace_id)
        sealed, before = seal_line(prefix, line.seq, line.ts, before or line.prev_envelope_hash, entry)
        made.append(sealed)
    place.write_bytes(b"".join(made))
    return place
