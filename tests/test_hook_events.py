"""The events that flows fire, the binding of those that tasks will fire, and what hooks signal beside their answers."""

import json

import pytest

from deedbook import Decision, Err, Failed, SessionRefused, allow, ask, deny, transform
from deedbook.contract.lifecycle import ALIASES, EVENTS
from deedbook.policy.judge import DecisionContext, make_call

SUBJECTS = {
    "PreCompact": {"messages": [{"role": "user", "content": "hello"}]},
    "WorkflowStart": {"cycle_id": "ship"},
    "PhaseAdvance": {"cycle_id": "ship", "from_phase": "plan", "to_phase": "work"},
    "WorkflowComplete": {"cycle_id": "ship", "verdict": "done"},
}
BLOCKING = ["PreCompact", "WorkflowStart", "PhaseAdvance"]
SILENT = [event.name for event in EVENTS.values() if not event.signals]
BOTH = {"routing_hint": {"ability": "echo"}, "normalized_intent": "greet"}


@pytest.fixture
def running(lab):
    """Declare a flow for the skill greet; `firing` says what it does."""
    lab.role("worker")
    lab.model(lambda request, ctx: "unused")
    lab.skill("greet", triggers="hello")
    return lab


def run(lab, work, prompt="hello"):
    """Run a flow that does *work* with its run; return what it came to."""
    lab.flow("work", lambda args, run: {"reply": json.dumps(work(run))})
    with lab.session("run") as session:
        return session.run(prompt)


def fired(lab, event):
    """Return the one hook.fired of that event."""
    (found,) = (each for each in lab.all("hook.fired") if each.payload["event"] == event)
    return found


# --- what flows fire --------------------------------------------------------------------------------------------------


def test_table_of_events_holds_every_one_that_a_flow_fires():
    assert {event.name for event in EVENTS.values() if event.subject} == set(SUBJECTS)


@pytest.mark.parametrize("event", SUBJECTS)
def test_event_without_hooks_leaves_the_subject_and_no_line(running, event):
    assert json.loads(run(running, lambda run: run.fire(event, SUBJECTS[event])).value.text) == SUBJECTS[event]
    assert "hook.fired" not in running.types()


@pytest.mark.parametrize("event", SUBJECTS)
def test_fired_event_is_recorded_under_the_flow_with_who_was_asked_about_what(running, event):
    seen = []
    running.hook("look", event, lambda *given: (seen.append(given) and None) or allow())
    run(running, lambda run: run.fire(event, SUBJECTS[event]))
    subject, principal, session, now, facts = seen[0]
    said = fired(running, event)
    assert (subject, principal.id, facts) == (SUBJECTS[event], "local", {})
    assert (session, now) == (running.ledger().parent.name, said.ts)
    assert said.parent == running.one("flow.call").span
    assert [each["hook"] for each in said.payload["asked"]] == ["look"]


@pytest.mark.parametrize("event", BLOCKING)
def test_refused_event_fails_the_flow_that_fired_it(running, event):
    running.hook("gate", event, lambda *given: deny("not on a Friday"))
    codes = []

    def work(run):
        try:
            run.fire(event, SUBJECTS[event])
        except Failed as problem:
            codes.append((problem.code, str(problem)))
        return

    run(running, work)
    assert codes == [("GATE_DENIED", f"{event}: not on a Friday")]
    assert fired(running, event).payload["decision"] == "deny"


@pytest.mark.parametrize("answer", [None, "allow", ask("who?"), 7], ids=repr)
@pytest.mark.parametrize("event", BLOCKING)
def test_answer_that_the_event_does_not_permit_denies(running, event, answer):
    running.hook("odd", event, lambda *given: answer)
    assert run(running, lambda run: run.fire(event, SUBJECTS[event])).error.code == "GATE_DENIED"


@pytest.mark.parametrize("event", BLOCKING)
def test_rewriter_leaves_a_new_subject_which_is_recorded_and_returned(running, event):
    new = {**SUBJECTS[event], "note": "shorter"}
    running.hook("rewrite", event, lambda *given: transform(new), rewrites=True)
    assert json.loads(run(running, lambda run: run.fire(event, SUBJECTS[event])).value.text) == new
    assert fired(running, event).payload["output"] == new


@pytest.mark.parametrize("left", [{}, {"cycle": "ship"}, {"cycle_id": 1e400}], ids=repr)
def test_transform_that_is_no_longer_about_the_event_denies(running, left):
    running.hook("rewrite", "WorkflowStart", lambda *given: transform(left), rewrites=True)
    assert run(running, lambda run: run.fire("WorkflowStart", {"cycle_id": "a"})).error.code == "GATE_DENIED"


def test_hook_that_changes_its_subject_without_answering_transform_changes_nothing(running):
    running.hook("sly", "WorkflowStart", lambda subject, *more: subject.update(cycle_id="other") or allow())
    got = run(running, lambda run: run.fire("WorkflowStart", {"cycle_id": "a"}))
    assert json.loads(got.value.text) == {"cycle_id": "a"}


def test_completion_cannot_be_refused_and_a_failing_observer_is_recorded(running):
    running.hook("broken", "WorkflowComplete", lambda *given: 1 / 0)
    got = run(running, lambda run: run.fire("WorkflowComplete", SUBJECTS["WorkflowComplete"]))
    assert json.loads(got.value.text) == SUBJECTS["WorkflowComplete"]
    (asked,) = fired(running, "WorkflowComplete").payload["asked"]
    assert (asked["decision"], asked["reason"][:35]) == ("deny", "ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("event", "subject", "code"),
    [
        ("SessionStart", {}, "NOT_AVAILABLE"),
        ("PreToolUse", {}, "NOT_AVAILABLE"),
        ("WorkflowStrat", {}, "NOT_AVAILABLE"),
        ("WorkflowStart", {}, "SCHEMA_VIOLATION"),
        ("PhaseAdvance", {"cycle_id": "a", "to_phase": "b"}, "SCHEMA_VIOLATION"),
    ],
)
def test_what_a_flow_may_not_fire_is_refused_with_the_reason(running, event, subject, code):
    error = run(running, lambda run: run.fire(event, subject)).error
    assert error.code == code
    assert event in error.message


def test_flow_whose_call_is_over_fires_nothing(running):
    kept = []
    running.hook("look", "WorkflowStart", lambda *given: allow())
    running.flow("work", lambda args, run: kept.append(run) or {"reply": ""})
    with running.session("run") as session:
        session.run("hello")
        with pytest.raises(Failed, match="a call that is over"):
            kept[0].fire("WorkflowStart", {"cycle_id": "a"})


# --- PreAbilityCreate -------------------------------------------------------------------------------------------------


@pytest.fixture
def creating(lab):
    """Return a function that asks whether a task for `shout` may be made."""
    lab.tool("shout", lambda args, ctx: args, effects="read")

    def create(args, **ability):
        lab.settings(abilities={"shout": ability})
        session = lab.session()
        bound = session.bindings.abilities["shout"]
        when = DecisionContext(session.ledger.now(), session.id, {})
        call = make_call(session.bindings, session.caller, bound, args, json.dumps(args).encode(), when)
        with session:
            return session.hooks.pre_ability_create(bound, call, session._root)

    lab.create = create
    return lab


def test_hook_that_an_ability_names_is_asked_before_a_task_is_made(creating):
    creating.hook("preflight", "PreAbilityCreate", lambda call: deny(f"no {call.args['text']}"))
    got = creating.create({"text": "hi"}, hooks={"pre_create": ["preflight"]})
    assert got.refusal == "no hi"
    assert fired(creating, "PreAbilityCreate").payload["ability"] == "shout"


def test_hook_whose_match_fits_another_ability_is_not_asked_before_a_task_is_made(creating):
    creating.hook("preflight", "PreAbilityCreate", lambda call: deny("never"), match={"abilities": ["other"]})
    assert creating.create({}).refusal is None
    assert "hook.fired" not in creating.types()


def test_hook_of_creation_is_asked_where_its_match_holds_with_its_facts(creating):
    seen = []
    creating.hook(
        "look", "PreAbilityCreate", lambda call: seen.append(call) or allow(),
        reads={"session.calls"}, match={"args": {"/text": "hi"}},
    )  # fmt: skip
    creating.create({"text": "no"})
    creating.create({"text": "hi"})
    assert [(call.args, call.facts) for call in seen] == [({"text": "hi"}, {"session.calls": {}})]


# --- signals ----------------------------------------------------------------------------------------------------------


def test_signals_of_a_prompt_reach_the_flow_and_the_caller_in_the_order_of_asking(running):
    running.hook("b", "UserPromptSubmit", lambda *given: Decision("allow", signals=BOTH), priority=5)
    running.hook("a", "UserPromptSubmit", lambda *given: Decision("allow", signals={"routing_hint": 1}))
    got = run(running, lambda run: run.signals)
    wanted = {
        "normalized_intent": [{"hook": "b", "value": "greet"}],
        "routing_hint": [{"hook": "b", "value": {"ability": "echo"}}, {"hook": "a", "value": 1}],
    }
    assert json.loads(got.value.text) == wanted
    assert got.value.signals == wanted
    assert list(got.value.signals) == sorted(wanted)


def test_normalized_intent_chooses_the_skill_and_leaves_the_prompt(running):
    running.hook("say", "UserPromptSubmit", lambda *given: Decision("allow", signals={"normalized_intent": "greet"}))
    run(running, lambda run: None, "Bonjour !")
    invoked = running.payload("skill.invoke")
    assert (invoked["skill"], invoked["candidates"][0]["reason"]) == ("greet", 'the intent names "greet"')
    assert running.payload("user.message") == {"text": "Bonjour !"}


def test_normalized_intent_that_fits_no_skill_leaves_the_choice_to_the_prompt(running):
    running.hook("say", "UserPromptSubmit", lambda *given: Decision("allow", signals={"normalized_intent": "bake"}))
    run(running, lambda run: None)
    assert running.payload("skill.invoke")["skill"] == "greet"


@pytest.mark.parametrize("value", [1, None, ["greet"], {"intent": "greet"}], ids=repr)
def test_normalized_intent_that_is_no_text_denies(running, value):
    running.hook("say", "UserPromptSubmit", lambda *given: Decision("allow", signals={"normalized_intent": value}))
    assert run(running, lambda run: None).error.code == "PROMPT_DENIED"


@pytest.mark.parametrize("signals", [{"ability_guard": 1}, {"x": 1}, {1: 1}, {"routing_hint": {1, 2}}], ids=repr)
def test_signal_that_is_not_the_events_own_denies(running, signals):
    running.hook("odd", "UserPromptSubmit", lambda *given: Decision("allow", signals=signals))
    assert run(running, lambda run: None).error.code == "PROMPT_DENIED"
    (asked,) = fired(running, "UserPromptSubmit").payload["asked"]
    assert "signals" not in asked


def test_guard_signals_are_recorded_whether_the_call_is_allowed_or_denied(lab):
    lab.tool("shout", lambda args, ctx: args)
    lab.hook("warn", "PreToolUse", lambda call: Decision("allow", signals={"ability_guard": {"risk": "low"}}))
    lab.hook(
        "stop", "PreToolUse",
        lambda call: Decision("deny", "no", signals={"ability_guard": "no"}) if call.args else allow(),
    )  # fmt: skip
    with lab.session() as session:
        session.call("shout", {})
        assert isinstance(session.call("shout", {"a": 1}), Err)
    allowed, denied = lab.all("hook.fired")
    assert [each.get("signals") for each in allowed.payload["asked"]] == [None, {"ability_guard": {"risk": "low"}}]
    assert [each.get("signals") for each in denied.payload["asked"]] == [
        {"ability_guard": "no"}, {"ability_guard": {"risk": "low"}},
    ]  # fmt: skip


@pytest.mark.parametrize("event", sorted(set(SILENT) & {"SessionStart", "Stop", "SkillStart"}))
def test_signal_at_an_event_that_carries_none_is_a_refusal(running, event):
    running.hook("odd", event, lambda *given: Decision("allow", signals={"routing_hint": 1}))
    running.flow("work", lambda args, run: {"reply": ""})
    if event == "SessionStart":
        with pytest.raises(SessionRefused) as refused:
            running.kernel().session("run")
        assert refused.value.error.code == "SESSION_DENIED"
        return
    with running.kernel().session("run") as session:
        session.run("hello")
    (said,) = (each.payload for each in running.all("hook.fired", session) if each.payload["event"] == event)
    assert said["decision"] == "deny"
    assert "may carry none, which is a configuration error" in said["asked"][0]["reason"]


@pytest.mark.parametrize("event", ["SessionStop", "WorkflowComplete"])
def test_signal_of_a_hook_that_only_watches_is_recorded_as_a_configuration_error(running, event):
    running.hook("odd", event, lambda *given: Decision("allow", signals={"routing_hint": 1}))
    run(running, lambda run: run.fire("WorkflowComplete", SUBJECTS["WorkflowComplete"]))
    (asked,) = fired(running, event).payload["asked"]
    assert asked["decision"] == "deny"
    assert asked["reason"] == f"carried signals; {event} is not blocking, so that is a configuration error"


@pytest.mark.parametrize(
    "decision", [allow(), Decision("allow", signals={"hook_signals": 1})], ids=["plain", "signals"]
)
def test_decision_of_an_observer_of_results_withholds_the_result(lab, decision):
    lab.tool("shout", lambda args, ctx: args)
    lab.hook("odd", "PostToolUse", lambda call, result: decision)
    with lab.session() as session:
        error = session.call("shout", {"a": 1}).error
    assert error.code == "GATE_DENIED"
    assert "configuration error" in error.message


# --- aliases, and the command -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alias", "event"), ALIASES.items())
def test_alias_in_yaml_is_the_event_itself(lab, alias, event):
    lab.tool("shout", lambda args, ctx: args)
    lab.hook("look", event, lambda *given: given[1] if event == "PostToolUse" else allow())
    lab.settings(hooks={"look": {"event_type": alias}})
    assert lab.kernel().bindings.charter.document["hooks"]["look"]["event"] == event


SIGNALLING = """
    from deedbook import Decision, GateSpec, deny, hookimpl


    class Plugin:
        spec = GateSpec()

        def __init__(self, settings, host):
            pass

        @hookimpl
        def pre_tool_use(self, call):
            return Decision("deny" if call.args["text"] == "no" else "allow", signals={"ability_guard": call.args})
"""


@pytest.mark.parametrize(("text", "status"), [("hi", 0), ("no", 3)])
def test_json_of_a_call_shows_the_signals(place, text, status):
    place.offer("hooks", "warn", SIGNALLING)
    place.system(
        "hooks/warn.yaml",
        "schema_version: v1\nid: warn\nevent_type: PreToolUse\nhandler: {hook: warn}\nmatch: {abilities: echo}\n",
    )
    said = place.run("call", "echo", "--args", json.dumps({"text": text}), "--json", status=status)
    assert said.fits("output_call_v1")["signals"] == {"ability_guard": [{"hook": "warn", "value": {"text": text}}]}
