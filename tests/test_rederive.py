"""Recorded calls judged again: nothing changes under their own charter, under another what it changes; purely."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from ledgers import Book

from deedbook import Decision, Failed
from deedbook.format.errors import BindingError, LedgerError
from deedbook.kernel import bindings_for_judging
from deedbook.policy.bindings import Bindings
from deedbook.policy.charter import Charter
from deedbook.workspace.workspace import read_workspace
from deedbook_audit.recorded import ERASED, NO_ARGUMENTS, SCRUBBED, UNKNOWN_CALLER
from deedbook_audit.rederive import LATE, MUTATED, RejudgedCall, rejudge


@contextmanager
def charter(lab: Any) -> Iterator[Bindings]:
    """Bind what the lab's files say now, to judge and nothing else."""
    with bindings_for_judging(read_workspace(lab.path), lab.catalogue()) as bindings:
        yield bindings


def again(lab: Any, session: Any = None) -> list[RejudgedCall]:
    """Judge the calls of a session again under what the lab's files say now."""
    with charter(lab) as bindings:
        return list(rejudge(lab.ledger(session), bindings))


def changes(lab: Any, session: Any = None) -> list[str]:
    return [each.change for each in again(lab, session)]


def end(lab: Any) -> None:
    lab._sessions[-1].end(ok=True, reason="done")


def rules(lab: Any, *entries: Any, default: str = "allow", **more: Any) -> None:
    lab.settings(policies={"baseline": {"kind": "rules", "rules": list(entries), "default": default, **more}})


# --- under the charter of the record, nothing changes ---------------------------------------------------------------


def test_default_principal_has_no_declared_roles_when_it_is_judged_again(lab: Any) -> None:
    """The door gives it none, also under a charter of the time when it could be declared with roles."""
    lab.tool("echo", lambda args, ctx: args)
    rules(lab, {"match": {"roles": ["owner"]}, "then": "allow"}, default="deny")
    session = lab.session()
    session.call("echo", {})
    end(lab)
    local = {"roles": ["owner"], "via": None, "key": None, "on_behalf_of": None}
    with charter(lab) as bindings:
        other = Charter.of({**bindings.charter.document, "principals": {"local": local}})
        [found] = rejudge(lab.ledger(session), attrs.evolve(bindings, charter=other))
    assert found.change == "same"


def test_nothing_changes_under_the_charter_of_the_record(lab: Any) -> None:
    """Many kinds of calls: nested, denied, asked, rewritten, by a role, without arguments, of what is not there."""

    def outer(args: Any, ctx: Any) -> Any:
        for name, inner in (("echo", {"n": 1}), ("secret", {}), ("nothing", {})):
            try:
                ctx.call(name, inner)
            except Failed:
                continue
        return {}

    lab.tool("echo", lambda args, ctx: args)
    lab.tool("secret", lambda args, ctx: args)
    lab.tool("outer", outer, uses=["echo"])
    lab.tool("gated", lambda args, ctx: args, tags=["approval-gate"])
    lab.tool("narrow", lambda args, ctx: args, schema_in={"type": "object", "required": ["n"]})
    lab.hook(
        "more", "PreToolUse", lambda call: Decision("transform", args={**call.args, "more": 1}), rewrites=True,
        match={"abilities": ["echo"]},
    )  # fmt: skip
    lab.hook("moody", "PreToolUse", lambda call: Decision("deny" if call.args.get("n") == 3 else "allow", "moody"))
    rules(lab, {"match": {"args": {"/n": 2}}, "then": "ask"}, {"match": {"args": {"/n": 4}}, "then": "deny"})
    session = lab.session()
    for name in ("echo", "outer", "gated", "narrow", "ecko"):
        for args in ({}, {"n": 2}, {"n": 3}, {"n": 4}, [1], {"x": float("nan")}):
            session.call(name, args)
    session.end(ok=True, reason="done")
    found = again(lab, session)
    counted = Counter((each.change, each.why) for each in found)
    assert set(counted) == {("same", ""), ("undetermined", NO_ARGUMENTS)}
    assert counted[("undetermined", NO_ARGUMENTS)] == 5
    assert {each.call.outcome for each in found} == {"allow", "ask", "deny"}
    assert {each.call.code for each in found} >= {"TOOL_NOT_FOUND", "TOOL_NOT_ALLOWED", "SCHEMA_VIOLATION"}


def test_nothing_changes_where_budgets_rest_on_facts(lab: Any) -> None:
    def quota(call: Any) -> Decision:
        return Decision("allow" if call.facts["session.calls"].get("echo", 0) < 3 else "deny", "spent")

    lab.tool("echo", lambda args, ctx: args)
    lab.policy("quota", quota, pure=True, reads=["session.calls"])
    session = lab.session()
    for _ in range(5):
        session.call("echo", {})
    session.end(ok=True, reason="done")
    assert [each.call.outcome for each in again(lab)] == ["allow"] * 3 + ["deny"] * 2
    assert changes(lab) == ["same"] * 5


def test_budget_that_nobody_had_is_judged_by_the_facts_of_the_ledger(lab: Any) -> None:
    lab.tool("echo", lambda args, ctx: args)
    session = lab.session()
    for _ in range(4):
        session.call("echo", {})
    session.end(ok=True, reason="done")
    lab.policy(
        "quota",
        lambda call: Decision("allow" if call.facts["session.calls"].get("echo", 0) < 2 else "ask", "spent"),
        pure=True,
        reads=["session.calls"],
    )
    assert changes(lab) == ["same", "same", "asks", "asks"]


def test_session_that_only_observed_is_judged_as_if_it_had_bound(lab: Any) -> None:
    """The way into force: record what a policy would have decided, ask what would change, then let it bind."""
    lab.tool("echo", lambda args, ctx: args)
    rules(lab, {"match": {"args": {"/n": 2}}, "then": "deny", "reason": "two"})
    lab.settings(enforcement="observe")
    session = lab.session()
    for number in (1, 2):
        assert session.call("echo", {"n": number}).value == {"n": number}
    session.end(ok=True, reason="done")
    assert changes(lab) == ["same", "same"]
    lab.settings(enforcement="enforce")
    found = again(lab)
    assert [each.change for each in found] == ["same", "denied"]
    assert found[1].verdict is not None
    assert found[1].verdict.reason == "two"


def test_sealed_arguments_are_opened_and_erased_ones_undetermined(lab: Any) -> None:
    lab.tool("echo", lambda args, ctx: args)
    lab.settings(seal=["tool.*/args/n"])
    rules(lab, {"match": {"args": {"/n": "bad"}}, "then": "deny"})
    session = lab.session()
    for word in ("good", "bad"):
        session.call("echo", {"n": word})
    session.end(ok=True, reason="done")
    assert '"$sealed"' in lab.ledger(session).read_text()
    assert changes(lab) == ["same", "same"]
    rules(lab, {"match": {"args": {"/n": "good"}}, "then": "deny"})
    assert changes(lab) == ["denied", "allowed"]
    for place in (lab.ledger(session).parent / "sealed").iterdir():
        place.unlink()
    assert [(each.change, each.why) for each in again(lab)] == [("undetermined", ERASED)] * 2
    lab.damaged = True


def test_arguments_that_held_a_secret_are_undetermined(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH", "hunter2hunter2")
    lab.settings(secrets={"gh": {"env": "GH"}})
    lab.tool("echo", lambda args, ctx: args)
    lab.session().call("echo", {"text": "hunter2hunter2"})
    end(lab)
    assert [(each.change, each.why) for each in again(lab)] == [("undetermined", SCRUBBED)]


# --- gates that cannot be asked again -------------------------------------------------------------------------------


def test_gate_that_is_not_pure_answers_from_the_record(lab: Any) -> None:
    said = iter(["allow", "deny", "ask"])
    lab.tool("echo", lambda args, ctx: args)
    lab.policy("oracle", lambda call: Decision(next(said), "so it was"))
    session = lab.session()
    for number in range(3):
        session.call("echo", {"n": number})
    session.end(ok=True, reason="done")
    assert changes(lab) == ["same"] * 3
    rules(lab, {"match": {"args": {"/n": 1}}, "then": "deny"})
    assert changes(lab) == ["same"] * 3


def test_gate_that_was_never_asked_is_undetermined_unless_another_denies(lab: Any) -> None:
    lab.tool("echo", lambda args, ctx: args)
    session = lab.session()
    for number in range(2):
        session.call("echo", {"n": number})
    session.end(ok=True, reason="done")
    lab.hook("oracle", "PreToolUse", lambda call: pytest.fail("asked"))
    rules(lab, {"match": {"args": {"/n": 1}}, "then": "deny"})
    found = again(lab)
    assert [each.change for each in found] == ["undetermined", "denied"]
    assert found[0].why == "hook oracle is not pure, and no answer of it is recorded for this"


def test_gate_with_other_settings_is_another_gate(lab: Any) -> None:
    lab.tool("echo", lambda args, ctx: args)
    lab.policy("oracle", lambda call: Decision("allow"), match={"abilities": ["echo"]})
    lab.session().call("echo", {})
    end(lab)
    assert changes(lab) == ["same"]
    lab.settings(policies={"oracle": {"match": {"abilities": ["echo", "other"]}}})
    assert changes(lab) == ["undetermined"]


def test_rewriter_of_the_record_gives_what_it_gave(lab: Any) -> None:
    numbers = iter(range(10, 20))
    lab.tool("echo", lambda args, ctx: args)
    lab.hook("number", "PreToolUse", lambda call: Decision("transform", args={"n": next(numbers)}), rewrites=True)
    session = lab.session()
    for _ in range(3):
        session.call("echo", {"n": 1})
    session.end(ok=True, reason="done")
    assert changes(lab) == ["same"] * 3
    rules(lab, {"match": {"args": {"/n": 11}}, "then": "deny"})
    assert changes(lab) == ["same", "denied", "same"]


def test_rewriter_of_the_other_charter_has_its_arguments_judged(lab: Any) -> None:
    lab.tool("echo", lambda args, ctx: args)
    session = lab.session()
    for number in (1, 2):
        session.call("echo", {"n": number})
    session.end(ok=True, reason="done")
    lab.hook(
        "add", "PreToolUse", lambda call: Decision("transform", args={"n": call.args["n"] + 1}), rewrites=True,
        pure=True,
    )  # fmt: skip
    rules(lab, {"match": {"args": {"/n": 3}}, "then": "deny"})
    found = again(lab)
    assert [each.change for each in found] == ["rewritten", "denied"]
    assert found[0].verdict is not None
    assert found[0].verdict.args == {"n": 2}


def test_refusal_for_being_late_is_not_taken_for_a_change(lab: Any) -> None:
    import time

    slow = iter([0.02, 0])
    lab.tool("echo", lambda args, ctx: args)
    lab.hook(
        "slow", "PreToolUse", lambda call: time.sleep(next(slow)) or Decision("allow"), pure=True, timeout_ms=5
    )  # fmt: skip
    session = lab.session()
    assert session.call("echo", {}).error.code == "GATE_DENIED"
    end(lab)
    assert [(each.change, each.why) for each in again(lab)] == [("undetermined", LATE)]


def test_refusal_because_a_gate_changed_the_call_is_not_taken_for_a_change(lab: Any) -> None:
    def meddling(call: Any) -> Decision:
        call.args["n"] = 2
        return Decision("allow")

    lab.tool("echo", lambda args, ctx: args)
    lab.hook("meddling", "PreToolUse", meddling)
    lab.session().call("echo", {"n": 1})
    end(lab)
    assert [(each.change, each.why) for each in again(lab)] == [("undetermined", MUTATED)]


# --- who asked ------------------------------------------------------------------------------------------------------


def test_nested_call_is_scoped_by_what_the_other_charter_lets_its_caller_use(lab: Any) -> None:
    lab.tool("echo", lambda args, ctx: args)
    lab.tool("outer", lambda args, ctx: ctx.call("echo", args), uses=["echo"])
    lab.session().call("outer", {})
    end(lab)
    assert changes(lab) == ["same", "same"]
    lab.settings(abilities={"outer": {"uses": []}})
    found = again(lab)
    assert [each.change for each in found] == ["same", "denied"]
    assert found[1].verdict is not None
    assert found[1].verdict.by == {"scope": "what outer declares to use"}


def test_ability_that_is_gone_is_counted_apart(lab: Any) -> None:
    lab.tool("echo", lambda args, ctx: args)
    lab.tool("kept", lambda args, ctx: args)
    session = lab.session()
    session.call("echo", {})
    session.call("kept", {})
    session.end(ok=True, reason="done")
    lab._settings["abilities"].pop("echo")
    lab.settings()
    assert changes(lab) == ["missing", "same"]


def test_role_of_a_run_is_judged_inside_the_skill_of_the_other_charter(lab: Any) -> None:
    def flow(args: Any, run: Any) -> Any:
        worker = run.agent("worker")
        for name in ("echo", "other"):
            try:
                worker.use(worker.complete({"messages": [{"role": "user", "content": name}]})["tool_calls"][0])
            except Failed:
                continue
        return {"reply": "done", "state": "COMPLETED"}

    def model(request: Any, ctx: Any) -> Any:
        return [{"id": "1", "name": request["messages"][0]["content"], "args": {}}]

    lab.tool("echo", lambda args, ctx: args)
    lab.tool("other", lambda args, ctx: args)
    lab.model(model)
    lab.flow("work", flow)
    lab.role("worker")
    lab.skill("helping", allows="echo")
    session = lab.session()
    session.run("helping please")
    session.end(ok=True, reason="done")
    found = again(lab)
    calls = {each.call.ability: each for each in found if each.call.principal == "agent:worker"}
    assert {each.change for each in found} == {"same"}
    assert (calls["echo"].call.outcome, calls["other"].call.code) == ("allow", "TOOL_NOT_ALLOWED")
    lab.skill("helping", allows="other")
    now = {each.call.ability: each.change for each in again(lab) if each.call.principal == "agent:worker"}
    assert (now["echo"], now["other"]) == ("denied", "allowed")


def test_principal_has_the_roles_that_the_other_charter_gives(lab: Any) -> None:
    lab.settings(principals={"ada": {"roles": ["writer"]}})
    lab.tool("echo", lambda args, ctx: args)
    rules(lab, {"match": {"roles": ["writer"]}, "then": "allow"}, default="deny")
    kernel = lab.kernel()
    session = kernel.session("open", principal=kernel.principal("ada"))
    lab._sessions.append(session)
    assert session.call("echo", {}).value == {}
    session.end(ok=True, reason="done")
    assert changes(lab) == ["same"]
    lab.settings(principals={"ada": {"roles": ["reader"]}})
    assert changes(lab) == ["denied"]


# --- files that are not what they should be -------------------------------------------------------------------------


def book() -> Book:
    made = Book()
    who = {"id": "ada", "via": "cli", "roles": [], "on_behalf_of": None}
    start = {"charter": "0" * 64, "enforcement": "enforce", "principal": who}
    made.add("session.start", start)
    return made


def test_call_of_whom_nobody_knows_who_asked_is_undetermined(lab: Any, tmp_path: Path) -> None:
    lab.tool("echo", lambda args, ctx: args)
    made = book()
    made.add("tool.call", {"args": {}, "tool_name": "echo"}, parent="f" * 16, principal="ada")
    made.add("tool.call", {"args": {}, "tool_name": "echo"}, parent="0" * 15 + "1", principal="bob")
    with charter(lab) as bindings:
        found = list(rejudge(made.write(tmp_path), bindings))
    assert [(each.change, each.why) for each in found] == [("undetermined", UNKNOWN_CALLER)] * 2


@pytest.mark.parametrize(
    "line",
    [b"{}\n", b"nonsense\n", b'{"schema_version":"1.0","event_type":"tool.call"}\n', b"\n", b"\xff\n"],
)
def test_line_that_is_none_of_the_format_is_refused_with_its_place(lab: Any, tmp_path: Path, line: bytes) -> None:
    lab.tool("echo", lambda args, ctx: args)
    place = tmp_path / ".events.jsonl"
    for content, number in ((line, 1), (book().bytes() + line, 2)):
        place.write_bytes(content)
        with charter(lab) as bindings, pytest.raises(LedgerError) as caught:
            list(rejudge(place, bindings))
        assert caught.value.error.code == "LEDGER_UNSOUND"
        assert caught.value.error.place == f"{place}:{number}"


@pytest.mark.parametrize("payload", [{}, {"args": 1}, {"tool_name": 3}, b"[1]", b"{"])
def test_payload_that_is_none_of_its_type_is_refused(lab: Any, tmp_path: Path, payload: Any) -> None:
    lab.tool("echo", lambda args, ctx: args)
    made = book()
    made.add("tool.call", payload, parent="0" * 15 + "1", principal="ada")
    with charter(lab) as bindings, pytest.raises(LedgerError) as caught:
        list(rejudge(made.write(tmp_path), bindings))
    assert caught.value.error.code == "LEDGER_UNSOUND"


def test_torn_tail_of_a_file_being_written_is_not_read(lab: Any, tmp_path: Path) -> None:
    lab.tool("echo", lambda args, ctx: args)
    made = book()
    made.add("tool.call", {"args": {}, "tool_name": "echo"}, parent="0" * 15 + "1", principal="ada")
    place = made.write(tmp_path)
    place.write_bytes(made.bytes() + made.lines[-1][:-5])
    with charter(lab) as bindings:
        assert [each.change for each in rejudge(place, bindings)] == ["same"]


# --- purity ---------------------------------------------------------------------------------------------------------

WATCHED: list[list[str]] = []
HARMFUL = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.remove", "os.rename",
           "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.")  # fmt: skip


def watch(event: str, args: tuple[Any, ...]) -> None:
    """Note what touches the world while somebody watches; an audit hook cannot be taken away again."""
    if not WATCHED:
        return
    wrote = event == "open" and isinstance(args[2], int) and args[2] & 0o3
    if wrote or event.startswith(HARMFUL):
        WATCHED[-1].append(f"{event} {args}")


def test_judging_again_writes_nothing_starts_nothing_and_opens_no_connection(lab: Any) -> None:
    sys.addaudithook(watch)
    made: list[str] = []
    lab.tool("echo", lambda args, ctx: made.append("called") or args)
    lab.hook("more", "PreToolUse", lambda call: Decision("allow"))
    lab.policy("oracle", lambda call: Decision("allow"), pure=True)
    session = lab.session()
    session.call("echo", {"n": 1})
    session.end(ok=True, reason="done")
    before = {place: place.stat().st_mtime_ns for place in lab.path.rglob("*")}
    made.clear()
    with charter(lab) as bindings:  # compiling may import what is not yet imported, and Python then keeps its bytes
        WATCHED.append([])
        found = list(rejudge(lab.ledger(session), bindings))
        touched = WATCHED.pop()
    assert (touched, made) == ([], [])
    assert [each.change for each in found] == ["same"]
    assert {place: place.stat().st_mtime_ns for place in lab.path.rglob("*")} == before


def test_no_handler_and_no_gate_that_is_not_pure_is_even_constructed(lab: Any) -> None:
    from deedbook import GateSpec, HandlerSpec, hookimpl

    class Handler:
        spec = HandlerSpec(gives={"type": "object"}, effects="none")

        def __init__(self, settings: Any, host: Any) -> None:
            pytest.fail("a handler was constructed")

        def __call__(self, args: Any, ctx: Any) -> Any:
            return args

    class Impure:
        spec = GateSpec()

        def __init__(self, settings: Any, host: Any) -> None:
            pytest.fail("a gate that is not pure was constructed")

        @hookimpl
        def pre_tool_use(self, call: Any) -> Any:
            return None

    lab.offer("tool", "acting", Handler)
    lab.offer("hook", "impure", Impure)
    lab.settings(
        abilities={"act": {"summary": "Act.", "handler": {"tool": "acting"}}},
        hooks={"h": {"event_type": "PreToolUse", "handler": {"hook": "impure"}, "match": {"abilities": ["act"]}}},
    )
    with charter(lab) as bindings:
        assert [gate.id for gate in bindings.abilities["act"].guards] == ["h"]


# --- any rules ------------------------------------------------------------------------------------------------------

thens = st.sampled_from(["allow", "ask", "deny"])
conditions = st.sampled_from(["a", {"min": 2}, {"under": ["src"]}, {"present": False}])
matches = st.fixed_dictionaries(
    {},
    optional={
        "abilities": st.sampled_from([["one"], ["two"], ["*"]]),
        "args": st.dictionaries(st.sampled_from(["/n", "/path"]), conditions, min_size=1),
    },
)
rule_sets = st.lists(
    st.fixed_dictionaries({"match": matches, "then": thens}), max_size=4, unique_by=lambda rule: str(rule["match"])
)
arguments = st.dictionaries(
    st.sampled_from(["n", "path"]), st.sampled_from(["a", "src/x", "../src", 1, 5, None]), max_size=2
)


@settings(
    max_examples=settings.default.max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(first=rule_sets, second=rule_sets, default=thens, calls=st.lists(arguments, min_size=1, max_size=5))
def test_what_is_judged_again_is_what_the_door_decides(
    lab: Any, first: Any, second: Any, default: str, calls: Any
) -> None:
    """Law: under any other rules, a recorded call is judged as the door judges the same call when they are in force."""
    for name in ("one", "two"):
        lab.tool(name, lambda args, ctx: args)

    def play() -> Any:
        session = lab.session()
        for args in calls:
            for name in ("one", "two"):
                session.call(name, args)
        session.end(ok=True, reason="done")
        return session

    try:
        rules(lab, *first, default="allow")
        before = play()
        assert set(changes(lab, before)) == {"same"}
        rules(lab, *second, default=default)
        after = play()
    except BindingError:
        reject()  # two rules about the same calls
    then = [
        (each.call.code, each.call.reason.partition("; approval ")[0], json.dumps(each.call.by))
        for each in again(lab, after)
    ]
    verdicts = [each.verdict for each in again(lab, before)]
    assert [(v.code, v.reason, json.dumps(v.by, sort_keys=True)) for v in verdicts if v] == [
        (code, reason, json.dumps(json.loads(by), sort_keys=True)) for code, reason, by in then
    ]
