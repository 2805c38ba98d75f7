"""Seed 000, "Agent OS Runtime": its end-to-end criteria, core checklist, contract rules and fail-closed table.

Each row of the seed's lists is a test here, the audit's in `test_seed_000_audit`; what is only named is tried in depth
elsewhere.
"""

import json

import pytest
from commandline import SCHEMAS, Place, ask, play, report, run_of, say, verdict

from deedbook.contract import Event, transform
from deedbook.format.errors import Err, SchemaError, SessionRefused
from deedbook.format.families import schema_of
from deedbook.format.folds import SnapshotFold, fold
from deedbook.kernel import open_kernel
from deedbook_audit.upcasting.reader import read
from deedbook_audit.verify import verify_file

NAMED_SCHEMAS = [
    "completion_request_v1", "completion_response_v1", "lead_directive_v1", "plan_v1", "worker_report_v1",
    "review_result_v1", "skill_frontmatter_v1", "write_claim_v1",
]  # fmt: skip
ROLES = ["lead", "planner", "worker", "reviewer"]
CARD = "4111111111111111"


@pytest.fixture(scope="module")
def run(told: Place) -> list[Event]:
    """Give the events of one successful run."""
    return run_of(told)


@pytest.fixture
def kernel(place: Place):
    """Give the kernel of the repository's own workspace."""
    with open_kernel(place.path) as opened:
        yield opened


# --- the eleven end-to-end criteria -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMED_SCHEMAS)
def test_criterion_01_required_schema_is_loaded(kernel, name: str):
    assert kernel.schemas.validator(name).valid({"intent": ""}) is False
    assert kernel.schemas.document(name)["required"]


def test_criterion_02_greet_skill_is_discovered(kernel):
    greet = kernel.bindings.skills["greet"]
    assert greet.allowed == {"echo"}
    assert {"greet", "hello"} <= set(greet.triggers)
    assert greet.source.endswith(".system/skills/greet/SKILL.md")


def test_criterion_03_echo_tool_is_registered(kernel):
    assert kernel.bindings.abilities["echo"].kind == "tool"


def test_criterion_04_pre_tool_use_stop_and_user_prompt_submit_hooks_are_registered(kernel):
    assert [gate.id for gate in kernel.bindings.abilities["echo"].guards] == ["deny-dangerous-tools", "allow"]
    assert [gate.id for gate in kernel.bindings.hooks["Stop"]] == ["stop-after-one"]
    assert [gate.id for gate in kernel.bindings.hooks["UserPromptSubmit"]] == ["redact-pii", "routing"]


def test_criterion_05_provider_is_swapped_by_the_profile_alone(place: Place):
    play(place, [ask("worker", "echo", {"text": "Hello, Ada!"}), report("Hello, Ada!"), verdict("pass")])
    stories = []
    for profile in ("local", "played"):
        ran = place.here("run", "--profile", profile, "Say hello to Ada", status=0)
        assert ran.out == "Hello, Ada!\n"
        stories.append([type_ for type_ in place.types(ran.session) if not type_.startswith("hook.")])
    assert stories[0] == stories[1], "the same story, whoever the provider is"


def test_criterion_06_request_goes_from_lead_to_planner_to_worker_to_reviewer(run):
    assert [event.payload["to"] for event in run if event.type == "agent.transition"] == [*ROLES, "DONE"]
    assert next(event.payload for event in run if event.type == "session.end") == {"ok": True, "reason": "COMPLETED"}


@pytest.mark.parametrize("family", ["session", "llm", "agent", "hook", "skill", "tool"])
def test_criterion_07_ledger_holds_every_family_of_events(run, family: str):
    assert any(event.type.startswith(f"{family}.") for event in run)


def test_criterion_08_replay_gives_the_closed_snapshot_and_the_workers_output(told: Place, run):
    snapshot = fold(SnapshotFold(), run).as_json()
    assert (snapshot["closed"], snapshot["output"]) == (True, "Hello, Ada!")
    assert snapshot.pop("agents") == {"runtime": "reviewer"}
    assert snapshot["cost"]["input"] > 0
    (name,) = (name for name in told.sessions() if len(told.events(name)) == len(run))
    replayed = told.here("replay", name, "--json", status=0).json
    assert replayed.pop("agents") == {"runtime": "lead", "lead": "planner", "planner": "worker", "worker": "reviewer"}
    assert replayed.pop("verified")
    assert replayed.pop("verdict").startswith("unwitnessed: sound as far as it goes")
    assert replayed == snapshot


def test_criterion_09_protected_write_rejects_a_stale_hash(place: Place):
    claim = {"path": "reports/x.md", "text": "one", "who": "me", "why": "to try", "expected_hash": ""}
    first = place.here("call", "file-write", "--args", json.dumps(claim), status=0).json["hash"]
    assert "[WRITE_CONFLICT]" in place.here("call", "file-write", "--args", json.dumps(claim), status=1).err
    fresh = json.dumps({**claim, "text": "two", "expected_hash": first})
    place.here("call", "file-write", "--args", fresh, status=0)
    assert "[WRITE_CONFLICT]" in place.here("call", "file-write", "--args", fresh, status=1).err
    assert (place.path / "reports/x.md").read_text() == "two"


def test_criterion_10_payload_that_does_not_fit_its_schema_fails_closed(place: Place):
    ran = place.here("call", "echo", "--args", '{"text": 5}', status=1)
    assert "[SCHEMA_VIOLATION]" in ran.err
    assert "tool.call" not in place.types(ran.session)


@pytest.mark.parametrize("card", [CARD, "4111 1111 1111 1111", "4111-1111-1111-1111"])
def test_criterion_11_card_number_leaves_the_request_before_anyone_reads_or_records_it(place: Place, card: str):
    ran = place.here("run", f"Say hello to Ada, card {card}")
    (message,) = place.payloads("user.message", ran.session)
    assert "[REDACTED-CARD]" in message["text"]
    for path in place.path.glob(".deedbook/**/*"):
        assert not path.is_file() or card.encode() not in path.read_bytes()


# --- the core checklist -----------------------------------------------------------------------------------------------


def test_checklist_event_store_only_appends(place: Place):
    place.here("run", "hello", status=0)
    before = place.ledger().read_bytes()
    for command in (["replay"], ["tree"], ["verify"]):
        place.here(*command, place.sessions()[0], status=0)
    place.here("run", "hello", status=0)
    assert [path.read_bytes() for path in place.path.glob(".deedbook/sessions/*/.events.jsonl")].count(before) == 1


def test_checklist_snapshot_is_recalculated_from_the_ledger_alone(run):
    assert fold(SnapshotFold(), run) == fold(SnapshotFold(), list(run))


def test_checklist_at_least_five_schemas_are_loaded_and_an_unknown_one_is_an_error(kernel):
    assert len(kernel.schemas.ids()) >= 5
    with pytest.raises(SchemaError) as problem:
        kernel.schemas.validator("plan_v9")
    assert problem.value.error.code == "SCHEMA_UNKNOWN"


def test_checklist_profile_selects_provider_and_model(place: Place):
    place.configure("model: rules-1", "model: rules-2")
    ran = place.here("run", "hello", status=0)
    assert {payload["request"]["model"] for payload in place.payloads("llm.request", ran.session)} == {"rules-2"}


def test_checklist_run_needs_no_key_and_gives_the_same_each_time(place: Place):
    stories = []
    for _ in range(2):
        ran = place.here("run", "Say hello to Ada", status=0)
        events = place.events(ran.session)
        told = json.dumps([(event.type, event.payload) for event in events])
        for event in events:
            told = told.replace(event.span, f"the span of event {event.seq}")
        stories.append(json.loads(told))
    assert stories[0] == stories[1]


def test_checklist_dispatch_enforces_scope_schema_hooks_and_events(run):
    (call,) = (event for event in run if event.type == "tool.call")
    beside = {event.type: event.payload for event in run if event.parent == call.parent}
    assert [asked["hook"] for asked in beside["hook.fired"]["asked"]] == ["deny-dangerous-tools", "allow"]
    assert beside["policy.check"]["decision"] == "allow"
    (skill,) = (event for event in run if event.type == "skill.invoke")
    assert skill.payload["allowed"] == ["echo"]


def test_checklist_three_hooks_fire_in_one_run(run):
    assert {event.payload["event"] for event in run if event.type == "hook.fired"} == {
        "UserPromptSubmit", "PreToolUse", "Stop",
    }  # fmt: skip


@pytest.mark.parametrize(
    "front",
    ["name: bad\n", "description: no name\n", "name: bad\ndescription: x\nallowed-tools: 5\n", "name: [\n", ""],
    ids=["no description", "no name", "odd tools", "no YAML", "nothing"],
)
def test_checklist_skill_with_bad_front_matter_is_never_registered(place: Place, front: str):
    place.system("skills/bad/SKILL.md", f"---\n{front}---\n# Bad\n")
    with open_kernel(place.path) as kernel:
        assert "bad" not in kernel.bindings.skills
        assert any(".system/skills/bad/SKILL.md" in why for why in kernel.active_charter.charter.set_aside)


def test_checklist_protected_write_finds_the_conflict_of_two_writers(place: Place):
    claims = [{"path": "reports/x.md", "text": text, "who": text, "why": "race", "expected_hash": ""} for text in "ab"]
    writers = [place.start_fork("call", "file-write", "--args", json.dumps(claim)) for claim in claims]
    assert sorted(writer.wait(60) for writer in writers) == [0, 1]
    for writer in writers:
        writer.communicate()
    assert (place.path / "reports/x.md").read_text() in ("a", "b")


# --- contract rules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["Sure! Here is the JSON:", '```json\n{"intent":"x","constraints":[],"schema_version":"v1"}\n```', "", "[]", "{}",
     '{"intent":"","constraints":[],"schema_version":"v1"}', '{"intent":"x","intent":"y","constraints":[]}'],
)  # fmt: skip
def test_rule_1_role_outputs_are_json_of_their_schema_and_nothing_else(place: Place, text: str):
    play(place, [{"role": "lead", "response": {"text": text}} for _ in range(5)], usual=False)
    ran = place.here("run", "--profile", "played", "Say hello to Ada", status=1)
    assert "[MALFORMED_AGENT_MESSAGE]" in ran.err
    violations = place.payloads("schema.violation", ran.session)
    assert {(v["subject"], v["role"], v["schema"]) for v in violations} == {("message", "lead", "lead_directive_v1")}
    assert len(violations) == 2, "asked once more, then no further"
    assert "planner" not in [payload["to"] for payload in place.payloads("agent.transition", ran.session)]


def test_rule_2_schema_failure_fails_closed_on_arguments_and_results(lab):
    number = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    ran = []
    lab.tool("odd", lambda args, ctx: ran.append(args) or {"n": "one"}, takes=number, gives=number)
    with lab.session() as session:
        assert session.call("odd", {"n": "x"}).error.code == "SCHEMA_VIOLATION"
        assert ran == []
        assert session.call("odd", {"n": 1}).error.code == "SCHEMA_VIOLATION"
    assert [event.payload["subject"] for event in lab.all("schema.violation")] == ["arguments", "result"]


def test_rule_4_tool_calls_are_inside_the_skills_allowed_tools(place: Place):
    """Rule 3, bad front matter, stands in the checklist."""
    play(place, [ask("worker", "file-list", {"path": "."}), report("done"), verdict("pass")])
    ran = place.here("run", "--profile", "played", "Say hello to Ada")
    (denied,) = place.payloads("tool.denied", ran.session)
    assert (denied["name"], denied["code"]) == ("file-list", "TOOL_NOT_ALLOWED")
    assert "tool.call" not in place.types(ran.session)


def test_rule_5_what_a_hook_transforms_passes_the_next_schema_or_nothing_runs(lab):
    ran = []
    text = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "maxLength": 5}}}
    lab.tool("say", lambda args, ctx: ran.append(args), takes=text)
    lab.hook("rewrite", "PreToolUse", lambda call: transform({"text": "far too long"}), rewrites=True)
    lab.hook("prompt", "UserPromptSubmit", lambda prompt, *_: transform({"prompt": 5}), rewrites=True)
    with lab.session() as session:
        assert session.call("say", {"text": "hi"}).error.code == "SCHEMA_VIOLATION"
        assert session.run("hi").error.code == "PROMPT_DENIED"
    assert ran == []
    assert lab.payload("schema.violation")["subject"] == "transform"


def test_rule_6_event_payloads_are_routed_by_their_type_to_a_schema(told: Place, run):
    for event in run:
        schema = schema_of(event.type, event.payload)
        assert schema.startswith(f"event_{event.type.replace('.', '_')}_v")
        validator = SCHEMAS.validator(schema)
        assert validator.valid(event.payload)
        assert not validator.valid({}), event.type


# --- the fail-closed table --------------------------------------------------------------------------------------------


def test_fail_closed_unknown_tool(place: Place):
    assert "[TOOL_NOT_FOUND]" in place.here("call", "rm", status=3).err


def test_fail_closed_unknown_tool_that_a_model_asks_for(place: Place):
    play(place, [ask("worker", "rm", {"path": "/"}), report("done"), verdict("pass")])
    ran = place.here("run", "--profile", "played", "Say hello to Ada")
    assert [denied["code"] for denied in place.payloads("tool.denied", ran.session)] == ["TOOL_NOT_FOUND"]


def test_fail_closed_tool_outside_the_selected_skill(place: Place):
    play(place, [ask("worker", "file-write", {"path": "reports/x", "text": "x"}), report("done"), verdict("pass")])
    ran = place.here("run", "--profile", "played", "Say hello to Ada", status=0)
    assert "denied: file-write: 'file-write' is outside what skill greet allows [TOOL_NOT_ALLOWED]" in ran.err
    assert "error:" not in ran.err, "the run went on without the call, and completed"
    assert not (place.path / "reports").exists()


def test_fail_closed_invalid_role_json(place: Place):
    play(place, [{"role": "worker", "response": {"text": '{"output": '}} for _ in range(9)])
    ran = place.here("run", "--profile", "played", "Say hello to Ada", status=1)
    assert "[MALFORMED_AGENT_MESSAGE]" in ran.err
    assert "worker.report" not in place.types(ran.session)


def test_fail_closed_missing_schema_id():
    with pytest.raises(SchemaError) as problem:
        SCHEMAS.validator("lead_directive_v9")
    assert problem.value.error.code == "SCHEMA_UNKNOWN"
    assert 'did you mean "lead_directive_v' in str(problem.value)


def _raises(*_):
    raise RuntimeError("the hook fell over")


def _answers_late(*_):
    import time

    time.sleep(0.05)
    from deedbook.contract import allow

    return allow()


@pytest.mark.parametrize(
    ("answer", "timeout_ms"),
    [(_raises, 1000), (_answers_late, 1), (lambda *_: None, 1000), (lambda *_: True, 1000)],
    ids=["exception", "timeout", "nothing", "no decision"],
)
def test_fail_closed_hook(lab, answer, timeout_ms: int):
    ran = []
    lab.tool("act", lambda args, ctx: ran.append(args), effects="write")
    lab.hook("guard", "PreToolUse", answer, timeout_ms=timeout_ms)
    with lab.session() as session:
        assert session.call("act", {}).error.code == "GATE_DENIED"
    assert ran == []
    assert lab.types() == ["session.start", "hook.fired", "tool.denied", "session.end"]


@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit", "SkillStart"])
def test_fail_closed_hook_of_the_session(lab, event: str):
    lab.hook("guard", event, _raises)
    lab.skill("greet", triggers="hello")
    lab.flow("talk", lambda args, run: {"reply": "hi", "state": "COMPLETED"})
    try:
        session = lab.kernel().session("run")
    except SessionRefused as problem:
        result = problem.refusal
    else:
        result = session.run("hello")
        session.end(ok=False, reason="denied")
    assert isinstance(result, Err)
    assert result.error.code in ("SESSION_DENIED", "PROMPT_DENIED", "SKILL_DENIED")
    assert "the hook fell over" in result.error.message


def test_fail_closed_stale_file_hash(place: Place):
    claim = {"path": "reports/x.md", "text": "one", "who": "me", "why": "to try", "expected_hash": "0" * 64}
    assert "[WRITE_CONFLICT]" in place.here("call", "file-write", "--args", json.dumps(claim), status=1).err
    assert not (place.path / "reports/x.md").exists()


def test_fail_closed_provider_that_is_exhausted(place: Place):
    play(place, [])
    ran = place.here("run", "--profile", "played", "Say hello to Ada", status=1)
    assert "[PROVIDER_ERROR]" in ran.err
    assert place.payloads("llm.error", ran.session)[-1]["code"] == "PROVIDER_ERROR"
    assert place.payloads("session.end", ran.session)[0]["ok"] is False


def test_fail_closed_reviewer_verdict_fail_leads_to_rework_and_then_to_a_person(place: Place):
    play(place, [entry for _ in range(3) for entry in (report("no"), verdict("fail", "say her name"))])
    ran = place.here("run", "--profile", "played", "Say hello to Ada", status=3)
    assert "the last feedback: say her name" in ran.out
    assert [payload["attempt"] for payload in place.payloads("context.executing", ran.session)] == [1, 2, 3]
    requests = [payload["request"] for payload in place.payloads("llm.request", ran.session)]
    assert any("say her name" in json.dumps(request) for request in requests if request["role"] == "worker")


def test_fail_closed_reviewer_may_pass_only_what_it_did_not_do(run):
    by_role = {event.payload["request"]["role"] for event in run if event.type == "llm.request"}
    assert by_role == set(ROLES)
    reviewed = [
        event for event in run if event.type == "llm.request" and event.payload["request"]["role"] == "reviewer"
    ]
    assert all(event.principal == "agent:reviewer" for event in reviewed)


# --- six roles --------------------------------------------------------------------------------------------------------


def test_advisor_and_scaffolder_are_called_when_they_are_asked_for(place: Place):
    steps = {"steps": [{"id": "s1", "description": "greet"}], "risks": [], "needs_advisor": True}
    play(place, [
        say("lead", {"intent": "greet", "constraints": [], "needs_advisor": True, "needs_scaffolder": True}),
        say("advisor", {"advice": "be brief"}),
        say("planner", steps),
        say("advisor", {"advice": "be kind"}),
        say("scaffolder", {"summary": "nothing to prepare", "created": [], "tool_calls_made": []}),
        report("Hello, Ada!"),
        verdict("pass"),
    ], usual=False)  # fmt: skip
    ran = place.here("run", "--profile", "played", "Say hello to Ada", status=0)
    moves = [payload["to"] for payload in place.payloads("agent.transition", ran.session)]
    assert moves == ["lead", "advisor", "planner", "advisor", "scaffolder", "worker", "reviewer", "DONE"]


def test_every_ledger_of_this_page_verifies(told: Place):
    for session in told.sessions():
        assert verify_file(told.ledger(session), schemas=SCHEMAS).sound
        assert list(read(told.ledger(session)))
