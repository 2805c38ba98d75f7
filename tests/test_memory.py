"""The memory gate: proposed, checked, committed or refused; denied by default; remembered from session to session.

The lab verifies every ledger when it closes, and judges every recorded call again.
"""

import json

import ledgers
import pytest
from persons import approving, perform_once
from remembering import ABILITIES, ALLOW, bound, code, declared, fine, folded, kept, propose, remembering, told, why

from deedbook import Ok, allow, transform
from deedbook_approvals.answering import answer


def of(lab, event_type):
    return [event.payload for event in told(lab) if event.type == event_type]


def last(lab, event_type):
    return of(lab, event_type)[-1]


# --- the way of a proposal --------------------------------------------------------------------------------------------


def test_what_is_proposed_is_checked_committed_and_read_in_another_session(lab):
    remembering(lab)
    with lab.session() as session:
        made = fine(propose(session, "weather/today", {"sky": "grey"}, reason="seen"))
    assert (made["state"], made["version"], made["persona"]) == ("committed", 1, None)
    proposed, checked, committed = told(lab)
    assert [each.type for each in told(lab)] == ["memory.proposed", "memory.checked", "memory.committed"]
    assert (checked.parent, committed.parent) == (proposed.span, checked.span)
    intent = lab.one("memory.call", session)
    assert (proposed.payload["session"], proposed.payload["span"]) == (session.id, intent.span)
    assert proposed.payload["trace_id"] == session.ledger.trace_id
    with lab.session() as later:
        found = fine(later.call("memory/read", {"zone": "observation"}))
        assert [(e["key"], e["value"], e["reason"], e["session"]) for e in found["entries"]] == [
            ("weather/today", {"sky": "grey"}, "seen", session.id)
        ]
        assert later.ledger.size
    assert lab.payload("memory.result", later)["result"] == found, "what is read is recorded"


def test_memory_is_denied_unless_a_policy_that_names_it_allows(lab):
    remembering(lab, policy=None)
    lab.settings(policies={"everything": {"kind": "rules", "rules": [{"match": {}, "then": "allow"}]}})
    for enforcement in ("enforce", "observe"):
        lab.settings(enforcement=enforcement)
        with lab.session() as session:
            assert code(propose(session, "a", 1)) == "GATE_DENIED"
            assert code(session.call("memory/read", {"zone": "observation"})) == "GATE_DENIED"
            assert [each.payload["by"] for each in lab.all("tool.denied", session)] == [{"rule": "memory"}] * 2
    assert not told(lab)


def test_a_policy_sees_zone_and_provenance_as_arguments(lab):
    rules = [
        {"match": {"kind": "memory", "args": {"/zone": "observation"}}, "then": "allow"},
        {"match": {"kind": "memory", "args": {"/provenance/kind": "user_declared"}}, "then": "allow"},
    ]
    remembering(lab, policy={"kind": "rules", "match": {"kind": "memory"}, "rules": rules})
    with lab.session() as session:
        fine(propose(session, "a", 1))
        assert code(propose(session, "a", 1, "decision")) == "GATE_DENIED"
        fine(propose(session, "a", 1, "world_state", provenance=declared(session)))


def test_keys_have_versions_and_are_compared_before_they_are_set(lab):
    remembering(lab)
    with lab.session() as session:
        assert fine(propose(session, "a", 1, expected_version=0))["version"] == 1
        refused = propose(session, "a", 2, expected_version=0)
        assert (code(refused), refused.error.retryable) == ("MEMORY_CONFLICT", True)
        assert fine(propose(session, "a", 2, expected_version=1))["version"] == 2
        gone = {"zone": "observation", "key": "a", "reason": "no longer so"}
        assert fine(session.call("memory/retract", {**gone, "expected_version": 2}))["version"] == 3
        assert code(session.call("memory/retract", gone)) == "MEMORY_NOT_FOUND"
        assert kept(session) == {}
        assert fine(propose(session, "a", 3))["version"] == 4
        assert kept(session) == {"a": 3}
    assert last(lab, "memory.refused")["code"] == "MEMORY_CONFLICT"


def test_keys_have_schemas_zones_and_limits(lab):
    keys = {"user/*": {"schema": {"type": "string", "maxLength": 5}, "zones": ["decision"]}}
    remembering(lab, keys=keys, max_bytes=20, max_entries=2)
    with lab.session() as session:
        assert "user/x" in why(propose(session, "user/x", "ok"))
        assert code(propose(session, "user/x", 7, "decision")) == "MEMORY_INVALID"
        fine(propose(session, "user/x", "ok", "decision"))
        assert "20" in why(propose(session, "long", "x" * 30))
        for key in ("a", "b", "a"):
            fine(propose(session, key, 1))
        assert "full" in why(propose(session, "c", 1))
        assert code(propose(session, "No Key", 1)) == "SCHEMA_VIOLATION"
        assert code(propose(session, "a", 1, "legacy")) == "SCHEMA_VIOLATION"
    failed = [check for each in of(lab, "memory.checked") for check in each["checks"] if not check["ok"]]
    assert [check["check"] for check in failed] == ["zone", "schema", "size", "version"]


# --- provenance -------------------------------------------------------------------------------------------------------


def test_world_state_needs_provenance_and_a_persons_own_message_is_one(lab):
    remembering(lab)
    with lab.session() as session:
        assert code(propose(session, "city", "Oslo", "world_state")) == "MEMORY_UNPROVEN"
        said = declared(session, "I live in Oslo")
        fine(propose(session, "city", "Oslo", "world_state", provenance=said))
    with lab.session() as later:
        fine(propose(later, "town", "Oslo", "world_state", provenance=said))
        for wrong, hint in (
            ({**said, "span": "0" * 15 + "1"}, "no event"),
            ({**said, "span": lab.one("session.start", later).span, "session": later.id}, "session.start"),
            ({**said, "hash": "0" * 64}, "another hash"),
            ({**said, "session": "f" * 32}, "knows no session"),
            ({"kind": "user_declared"}, "no session"),
        ):
            refused = propose(later, "city", "Rome", "world_state", provenance=wrong)
            assert (code(refused), hint in why(refused)) == ("MEMORY_UNPROVEN", True), why(refused)
        assert kept(later, "world_state") == {"city": "Oslo", "town": "Oslo"}
    source = of(lab, "memory.checked")[1]["source"]
    message = lab.one("user.message", session)
    assert (source["session"], source["seq"], source["span"]) == (session.id, message.seq, message.span)


def test_a_tools_result_proves_what_stands_in_it_if_the_workspace_lets_it(lab):
    from deedbook.format.events import split_line

    remembering(lab, verified_by=["clock/*"])
    lab.tool("clock/now", lambda args, ctx: {"time": {"hour": 7}})
    lab.tool("fetch", lambda args, ctx: {"time": {"hour": 7}})
    with lab.session() as session:
        fine(session.call("clock/now", {}))
        fine(session.call("fetch", {}))
        lines = [split_line(raw) for raw in lab.ledger(session).read_bytes().splitlines()]
        clock, fetched = (line for line in lines if line.event_type == "tool.result")

        def proven(line, value=7, pointer="/time/hour", **more):
            grounds = {"session": session.id, "seq": line.seq, "hash": line.envelope_hash, "pointer": pointer, **more}
            return propose(session, "hour", value, "world_state", provenance={"kind": "tool_verified", **grounds})

        fine(proven(clock))
        fine(proven(clock, {"time": {"hour": 7}}, ""))
        for refused, hint in (
            (proven(clock, 8), "does not hold the value"),
            (proven(clock, 7, "/time"), "does not hold the value"),
            (proven(clock, pointer="/nothing"), "does not hold the value"),
            (proven(fetched), "prove nothing here"),
            (proven(clock, hash=fetched.envelope_hash), "another hash"),
            (proven(clock, seq=lines[0].seq, hash=lines[0].envelope_hash), "no result of a tool"),
        ):
            assert (code(refused), hint in why(refused)) == ("MEMORY_UNPROVEN", True), why(refused)


def test_a_person_approves_a_proposal_and_no_other(lab):
    approving(lab)
    ask = {"match": {"kind": "memory", "args": {"/provenance/kind": "human_approved"}}, "then": "ask"}
    policy = {"kind": "rules", "match": {"kind": "memory"}, "rules": [ask, *ALLOW["rules"]]}
    remembering(lab, policy=policy)
    approved = {"provenance": {"kind": "human_approved"}}
    with lab.session() as session:
        assert code(propose(session, "limit", 100, "world_state", **approved)) == "NEEDS_HUMAN"
    identity = lab.payload("approval.requested", session)["approval"]
    answer(lab.path, identity, approve=True, catalogue=lab.catalogue())
    with lab.kernel() as kernel:
        done = perform_once(kernel, identity)
    assert isinstance(done, Ok), done
    assert last(lab, "memory.checked")["source"]["type"] == "approval.granted"
    assert folded(lab) == {(None, "world_state", "limit"): 100}
    lab.settings(policies={"remember": ALLOW | {"rules": [{"match": {"kind": "memory"}, "then": "allow"}] * 2}})
    remembering(lab, policy=None)
    lab.settings(policies={"remember": {**ALLOW}})
    with lab.session() as later:
        refused = propose(later, "limit", 200, "world_state", **approved)
        assert (code(refused), "was not approved" in why(refused)) == ("MEMORY_UNPROVEN", True)
    assert folded(lab) == {(None, "world_state", "limit"): 100}


# --- zones are the scope of memory ------------------------------------------------------------------------------------


def test_a_model_may_propose_observations_and_no_more_unless_its_skill_may(lab):
    remembering(lab)
    outcomes = {}

    def model(request, ctx):
        zone = ["world_state", "decision", "observation", "read"][len(outcomes)]
        outcomes[zone] = ""
        args = {"zone": "legacy"} if zone == "read" else {"zone": zone, "key": "k", "value": "told by a model"}
        return [{"id": "t", "name": "memory/read" if zone == "read" else "memory/propose", "args": args}]

    def flow(args, run):
        agent = run.agent("worker")
        for zone in ("world_state", "decision", "observation", "read"):
            response = agent.complete({"messages": [{"role": "user", "content": "go"}]})
            try:
                agent.use(response["tool_calls"][0])
                outcomes[zone] = "done"
            except Exception as refused:
                outcomes[zone] = refused.code
        return {"reply": "", "state": "COMPLETED"}

    lab.model(model)
    lab.role("worker")
    lab.flow("work", flow)
    lab.skill("go", allows="memory/read memory/propose")
    with lab.session() as session:
        fine(session.run("go"))
    denied = "TOOL_NOT_ALLOWED"
    assert outcomes == {"world_state": denied, "decision": denied, "observation": "done", "read": denied}
    assert folded(lab) == {(None, "observation", "k"): "told by a model"}
    by = last(lab, "memory.proposed")["by"]
    assert (by["id"], by["actor"], by["role"], by["skill"]) == ("agent:worker", "agent", "worker", "go")
    outcomes.clear()
    lab.settings(memory={"zones": {"decision": {"propose": [{"skills": ["go"]}]}, "observation": {"propose": []}}})
    with lab.session() as session:
        fine(session.run("go"))
    assert outcomes == {"world_state": denied, "decision": "done", "observation": denied, "read": denied}


def test_a_tool_that_was_called_is_no_person(lab):
    """What stands in a tool's input may be anybody's words; its nested calls are not the person's own."""
    remembering(lab)
    grounds = {}
    lab.tool(
        "helper",
        lambda args, ctx: ctx.call(
            "memory/propose", {"zone": "world_state", "key": "a", "value": 1, "provenance": grounds}
        ),
        uses=["memory/propose"],
    )
    with lab.session() as session:
        grounds.update(declared(session))
        assert code(session.call("helper", {})) == "TOOL_NOT_ALLOWED"
        lab.settings(memory={"zones": {"world_state": {"propose": [{}]}}})
    with lab.session() as session:
        refused = session.call("helper", {})
        assert (code(refused), "only a person declares" in why(refused)) == ("MEMORY_UNPROVEN", True)
    assert folded(lab) == {}


def test_a_rewriter_cannot_lead_a_proposal_into_another_zone(lab):
    remembering(lab, zones={"decision": {"propose": []}})
    lab.hook(
        "elsewhere", "PreToolUse", lambda call: transform({**call.args, "zone": "decision"}),
        rewrites=True, pure=True, match={"kind": ["memory"]},
    )  # fmt: skip
    with lab.session() as session:
        refused = propose(session, "a", 1)
        assert (code(refused), "decision" in why(refused)) == ("TOOL_NOT_ALLOWED", True)


def test_globs_of_uses_lead_to_memory_only_where_memory_is_said(lab):
    remembering(lab)
    lab.tool("any", lambda args, ctx: None, uses=["**"])
    lab.tool("some", lambda args, ctx: None, uses=["memory/*"])
    with lab.session() as session:
        document = session.bindings.charter.document["abilities"]
    assert not [name for name in document["any"]["uses"] if name in ABILITIES]
    assert document["some"]["uses"] == sorted(ABILITIES)


# --- personas ---------------------------------------------------------------------------------------------------------


def test_memory_belongs_to_a_persona_and_another_does_not_read_it(lab):
    remembering(lab, persona="p-ada")
    with lab.session() as session:
        fine(propose(session, "a", "hers"))
        hers = declared(session)
    entry = session.bindings.charter.document["persona"]
    assert lab.payload("persona.bound", session) == {"persona": "p-ada", "version": 1, "digest": entry["digest"]}
    assert lab.one("persona.bound", session).parent == lab.one("session.start", session).span
    bound(lab, "p-bob", name="Bob Public", facts={"likes": "tea"})
    with lab.session() as other:
        assert kept(other) == {}
        fine(propose(other, "a", "his"))
        assert "another persona" in why(propose(other, "b", 1, "world_state", provenance=hers))
    assert folded(lab) == {("p-ada", "observation", "a"): "hers", ("p-bob", "observation", "a"): "his"}
    ledgers = [place.read_text() for place in lab.state.rglob(".events.jsonl")]
    assert not any("Bob Public" in text or "tea" in text for text in ledgers)
    assert any("persona: " in text for text in last_changes(lab, "looser"))


def last_changes(lab, way):
    from deedbook.format.reader import read

    return [event for event in read(lab.state / "workspace") if event.type == "ledger.charter"][-1].payload[way]


def test_without_a_persona_nothing_is_bound_and_nothing_of_it_is_in_the_charter(lab):
    with lab.session() as session:
        assert not {"persona", "memory"} & session.bindings.charter.document.keys()
    assert "persona.bound" not in lab.types(session)


# --- what never enters ------------------------------------------------------------------------------------------------

CARD = "4111 1111 1111 1111"
TOKEN = "ghp_" + "a1" * 18


@pytest.mark.parametrize("value", [CARD, {"pay": {"with": [CARD]}}, TOKEN, {TOKEN: 1}, 4111111111111111, "badge X-77"])
def test_what_must_never_be_remembered_is_refused_and_stands_in_no_record(lab, value):
    remembering(lab, never=["badge X-[0-9]+"])
    with lab.session() as session:
        refused = propose(session, "a", value, reason="a customer said so")
        assert code(refused) == "MEMORY_FORBIDDEN"
    assert last(lab, "memory.proposed")["entry"] == {"schema_version": "v1", "zone": "observation"}
    assert folded(lab) == {}
    texts = [place.read_text() for place in lab.state.rglob("*.jsonl")]
    assert not any(secret in text for text in texts for secret in (CARD, TOKEN, "X-77", "4111111111111111"))


def test_a_value_of_a_declared_secret_is_refused(lab, monkeypatch):
    monkeypatch.setenv("THE_SECRET", "hunter2-hunter2")
    lab.settings(secrets={"door": {"env": "THE_SECRET"}})
    remembering(lab)
    with lab.session() as session:
        assert code(propose(session, "a", "it is hunter2-hunter2")) == "MEMORY_FORBIDDEN"
    assert not any("hunter2" in place.read_text() for place in lab.state.rglob("*.jsonl"))


def test_what_is_sealed_in_the_ledger_is_sealed_in_the_store_and_gone_once_erased(lab):
    lab.settings(seal=["memory.*/entry/value", "memory.*/args/value", "memory.*/result/entries/*/value"])
    remembering(lab)
    with lab.session() as session:
        fine(propose(session, "a", "a private thing"))
        assert kept(session) == {"a": "a private thing"}
    for kernel in lab._kernels:
        kernel.close()
    assert "a private thing" not in (lab.state / "memory/memory_store.json").read_text()
    for place in (lab.state / "workspace/sealed").iterdir():
        place.unlink()
    with lab.session() as later:
        (entry,) = fine(later.call("memory/read", {"zone": "observation"}))["entries"]
        assert entry["erased"] is True
        assert "value" not in entry


# --- deciding again ---------------------------------------------------------------------------------------------------


def test_explain_and_what_if_know_memory(lab):
    from deedbook_audit.rederive import rejudge

    remembering(lab)
    with lab.session() as session:
        fine(propose(session, "a", 1))
        assert code(session.call("memory/read", {"zone": "legacy", "key": "a", "limit": 0})) == "SCHEMA_VIOLATION"
    with lab.session() as later:
        pass
    assert [each.change for each in rejudge(lab.ledger(session), later.bindings)] == ["same", "same"]
    lab.settings(policies={"remember": {**ALLOW, "rules": [{"match": {"kind": "memory"}, "then": "deny"}]}})
    with lab.session() as later:
        pass
    assert [each.change for each in rejudge(lab.ledger(session), later.bindings)] == ["denied", "same"]
    lab.settings(memory={"zones": {"observation": {"propose": []}}})
    with lab.session() as later:
        pass
    (first, _) = rejudge(lab.ledger(session), later.bindings)
    assert (first.change, first.verdict.code) == ("denied", "TOOL_NOT_ALLOWED")


def test_hooks_of_kind_memory_are_asked(lab):
    seen = []
    remembering(lab)
    lab.hook("watch", "PreToolUse", lambda call: seen.append(call.kind) or allow(), match={"kind": ["memory"]})
    with lab.session() as session:
        fine(propose(session, "a", 1))
    assert seen == ["memory"]


def test_handlers_and_kind_belong_together(lab):
    from deedbook.format.errors import BindingError, SourceError

    lab.settings(abilities={"x": {"summary": "x.", "handler": {"tool": "memory-read"}}})
    with pytest.raises(BindingError, match="add kind: memory"):
        lab.kernel()
    lab.tool("echo", lambda args, ctx: args, kind="memory")
    lab.settings(abilities={"x": {"kind": "memory"}}, memory={"keys": {"a": {"schema": {"tpye": 1}}}})
    with pytest.raises(BindingError) as refused:
        lab.kernel()
    said = [str(error) for error in refused.value.errors]
    assert [hint for hint in ("its own handlers", "tpye") if not any(hint in text for text in said)] == []
    lab.settings(memory={"never": ["(?=x)"]})
    with pytest.raises(SourceError, match="linear time"):
        lab.kernel()


def test_persona_file_is_checked(lab):
    from deedbook.format.errors import SourceError

    lab.write("persona.json", json.dumps({"schema_version": "v1", "id": "Ada Lovelace", "version": 1}))
    with pytest.raises(SourceError, match=r"persona\.json"):
        lab.kernel()


@pytest.mark.parametrize(
    ("section", "way", "said"),
    [
        ({"verified_by": ["clock"]}, "looser", "memory: verified_by clock is new"),
        ({"never": ["x"]}, "tighter", "memory: never x is new"),
        ({"max_bytes": 1}, "tighter", "memory: max_bytes: 1, was 65536"),
        ({"max_entries": 20000}, "looser", "memory: max_entries: 20000, was 10000"),
        ({"keys": {"a": {}}}, "tighter", 'memory: keys ["a",{}] is new'),
        ({"zones": {"decision": {"propose": []}}}, "tighter", 'memory: decision: propose {"actors":["user"]} is gone'),
        ({"zones": {"world_state": {"propose": [{}]}}}, "looser", "memory: world_state: propose {} is new"),
    ],
)
def test_what_becomes_looser_or_tighter_is_said(section, way, said):
    from deedbook.charter.changes import _memory
    from deedbook.charter.difference import Difference
    from deedbook.charter.zones import entry_of

    def compared(old, new):
        found = list(_memory(old, new))
        return Difference(*(tuple(text for kind, text in found if kind == each) for each in ("looser", "tighter")))

    before, after = entry_of({}), entry_of(section)
    assert said in getattr(compared(before, after), way)
    back = getattr(compared(after, before), {"looser": "tighter", "tighter": "looser"}[way])
    assert len(back) >= 1
    assert compared(None, before) == Difference(looser=("memory is new",))
    assert compared(before, None) == Difference(tighter=("memory is gone",))


# --- attacks ----------------------------------------------------------------------------------------------------------


def test_session_that_somebody_made_up_or_wrote_anew_proves_nothing(lab):
    remembering(lab)
    with lab.session() as session:
        grounds = declared(session, "I live in Oslo")
    lines = lab.ledger(session).read_bytes().splitlines(keepends=True)
    made_up = "f0" * 16
    place = lab.state / "sessions" / made_up / ".events.jsonl"
    place.parent.mkdir()
    forged = ledgers.forge([line.replace(session.id.encode(), made_up.encode()) for line in lines])
    place.write_bytes(b"".join(forged))
    with lab.session() as later:
        refused = propose(later, "city", "Rome", "world_state", provenance={**grounds, "session": made_up})
        assert (code(refused), "knows no session" in why(refused)) == ("MEMORY_UNPROVEN", True)
    rewritten = ledgers.forge([line.replace(b"Oslo", b"Rome") for line in lines])
    lab.ledger(session).write_bytes(b"".join(rewritten))
    with lab.session() as later:
        refused = propose(later, "city", "Rome", "world_state", provenance=grounds)
        assert (code(refused), "not what the workspace ledger recorded" in why(refused)) == ("MEMORY_UNPROVEN", True)
    lab.damaged = True
    assert folded(lab) == {}


def test_model_that_names_the_persons_own_message_is_no_person(lab):
    """The skill lets it into the zone, and it has found the message: it declares nothing all the same."""
    remembering(lab, zones={"world_state": {"propose": [{"skills": ["go"]}]}})
    said = {}

    def flow(args, run):
        agent = run.agent("worker")
        call = agent.complete({"messages": [{"role": "user", "content": "go"}]})["tool_calls"][0]
        try:
            agent.use(call)
        except Exception as refused:
            said["why"] = str(refused)
        return {"reply": "", "state": "COMPLETED"}

    def model(request, ctx):
        message = next(each for each in lab.events(ctx.session) if each.type == "user.message")
        grounds = {"kind": "user_declared", "session": ctx.session, "span": message.span}
        args = {"zone": "world_state", "key": "owner", "value": "the model", "provenance": grounds}
        return [{"id": "t", "name": "memory/propose", "args": args}]

    lab.model(model)
    lab.role("worker")
    lab.flow("work", flow)
    lab.skill("go", allows="memory/propose")
    with lab.session() as session:
        fine(session.run("go"))
    assert "only a person declares; this was asked by agent agent:worker" in said["why"]
    assert folded(lab) == {}


def test_what_an_agent_says_that_its_own_tool_gave_proves_nothing(lab):
    from deedbook.call.handlers import Outcome
    from deedbook.format.events import split_line

    remembering(lab, verified_by=["**"])
    lab.settings(agents={"claude-code": {}})
    with lab.session() as session:
        opened = fine(session.before("claude-code/Read", {"file_path": "a"}))
        fine(session.after(opened, Outcome("result", {"owner": "eve"})))
        (line,) = (
            found
            for raw in lab.ledger(session).read_bytes().splitlines()
            if (found := split_line(raw)).event_type == "tool.result"
        )
        grounds = {"session": session.id, "seq": line.seq, "hash": line.envelope_hash, "pointer": "/owner"}
        refused = propose(session, "owner", "eve", "world_state", provenance={"kind": "tool_verified", **grounds})
        assert (code(refused), "the agent's own tool" in why(refused)) == ("MEMORY_UNPROVEN", True)


def test_client_is_in_the_zones_that_name_it_and_uses_nothing_that_is_not_exposed(lab):
    remembering(lab, zones={"observation": {"propose": [{"principals": ["agent:helper"]}], "read": []}})
    lab.settings(agents={"helper": {"expose": {"kind": "memory"}}, "other": {"expose": {"kind": ["tool", "flow"]}}})
    with lab.kernel() as kernel:
        for name, wanted in (("helper", None), ("other", "is outside what is exposed to other")):
            with kernel.session(principal=kernel.client(name, via="stdio")) as session:
                result = propose(session, "a", 1)
                assert isinstance(result, Ok) if wanted is None else wanted in why(result)
                assert code(session.call("memory/read", {"zone": "observation"})) == "TOOL_NOT_ALLOWED"
