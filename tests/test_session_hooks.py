"""Hooks of the events of a session: who is asked, what they may answer, and what never reaches the record."""

import time

import pytest

from deedbook import Ok, allow, ask, deny, transform
from deedbook.format.errors import SessionRefused
from deedbook.format.reader import list_sessions

CARD = "4111111111111111"


@pytest.fixture
def running(lab):
    """Declare a flow that answers with the prompt it was given, and a skill for it."""
    lab.role("worker")
    lab.model(lambda request, ctx: "unused")
    lab.skill("greet", triggers="hello")
    lab.flow("work", lambda args, run: {"reply": args["prompt"]})
    return lab


def run(lab, prompt="hello Ada"):
    with lab.session("run") as session:
        return session.run(prompt)


def fired(lab, event):
    """Return the one hook.fired of that event."""
    (found,) = (each for each in lab.all("hook.fired") if each.payload["event"] == event)
    return found


BROKEN = {
    "nothing": lambda *seen: None,
    "an exception": lambda *seen: 1 / 0,
    "an exit": lambda *seen: exit(),
    "a word": lambda *seen: "allow",
    "late": lambda *seen: time.sleep(0.03) or allow(),
    "ask": lambda *seen: ask("hm"),
}


# --- SessionStart ---------------------------------------------------------------------------------------------------


def test_session_start_is_asked_under_the_root_with_who_wants_to_begin(lab):
    seen = []
    lab.hook("look", "SessionStart", lambda *given: seen.append(given) or allow())
    with lab.session() as session:
        pass
    assert lab.types() == ["session.start", "hook.fired", "session.end"]
    principal, name, now, facts = seen[0]
    assert (principal.id, name, facts) == ("local", session.id, {})
    assert now == fired(lab, "SessionStart").ts


@pytest.mark.parametrize("name", ["deny", *BROKEN])
def test_session_start_that_is_not_allowed_ends_the_session_at_once(lab, name):
    answer = BROKEN.get(name, lambda *seen: deny("not today"))
    lab.hook("gate", "SessionStart", answer, timeout_ms=10)
    kernel = lab.kernel()
    with pytest.raises(SessionRefused) as refused:
        kernel.session()
    assert refused.value.error.code == "SESSION_DENIED"
    (ledger,) = lab.state.glob("sessions/*/.events.jsonl")
    assert lab.types(ledger.parent.name) == ["session.start", "hook.fired", "session.end"]
    end = lab.payload("session.end", ledger.parent.name)
    assert end["ok"] is False
    assert end["reason"].startswith("SessionStart: ")


def test_session_that_was_refused_does_not_keep_its_ledger_locked(lab):
    lab.hook("gate", "SessionStart", lambda *given: deny("not today"))
    kernel = lab.kernel()
    with pytest.raises(SessionRefused):
        kernel.session()
    assert [each.state for each in list_sessions(kernel.state)] == ["ended"]


def test_reason_that_cannot_be_recorded_is_escaped(lab):
    lab.hook("gate", "SessionStart", lambda *given: deny("bad \ud800 words"))
    with pytest.raises(SessionRefused) as refused:
        lab.kernel().session()
    assert refused.value.error.message == "bad \\ud800 words"


# --- UserPromptSubmit -----------------------------------------------------------------------------------------------


def test_prompt_is_asked_about_before_it_is_recorded(running):
    types = []
    running.hook("look", "UserPromptSubmit", lambda *given: types.extend(running.types()) or allow())
    assert run(running).value.text == "hello Ada"
    assert types == ["session.start"]
    assert running.types()[1:3] == ["hook.fired", "user.message"]


def test_rewritten_prompt_is_what_runs_and_the_raw_one_stands_nowhere(running):
    hide = lambda prompt, *more: transform({"prompt": prompt.replace(CARD, "[card]")}, "a card number")  # noqa: E731
    seen = []
    running.hook("redact", "UserPromptSubmit", hide, rewrites=True)
    running.hook("guard", "UserPromptSubmit", lambda prompt, *more: seen.append(prompt) or allow(), priority=100)
    assert run(running, f"hello {CARD}").value.text == "hello [card]"
    assert seen == ["hello [card]"]
    assert running.payload("user.message") == {"text": "hello [card]"}
    said = fired(running, "UserPromptSubmit").payload
    assert said["output"] == {"prompt": "hello [card]"}
    assert "input" not in said
    for place in running.state.rglob("*"):
        assert place.is_dir() or CARD.encode() not in place.read_bytes(), place


def test_rewriters_of_a_prompt_go_first_each_on_the_last_output(running):
    def append(letter):
        return lambda prompt, *more: transform({"prompt": prompt + letter})

    running.hook("b", "UserPromptSubmit", append("1"), rewrites=True, priority=2)
    running.hook("a", "UserPromptSubmit", append("2"), rewrites=True, priority=1)
    assert run(running).value.text == "hello Ada12"


def test_redacted_prompt_that_is_then_denied_is_recorded_redacted(running):
    running.hook("redact", "UserPromptSubmit", lambda *given: transform({"prompt": "hello [card]"}), rewrites=True)
    running.hook("deny", "UserPromptSubmit", lambda *given: deny("no cards here"))
    got = run(running, f"hello {CARD}")
    assert (got.error.code, got.error.message) == ("PROMPT_DENIED", "no cards here")
    assert CARD.encode() not in running.ledger().read_bytes()
    assert "user.message" not in running.types()


@pytest.mark.parametrize("name", BROKEN)
def test_prompt_that_is_not_allowed_goes_no_further(running, name):
    running.hook("gate", "UserPromptSubmit", BROKEN[name], timeout_ms=10)
    assert run(running).error.code == "PROMPT_DENIED"
    assert running.types() == ["session.start", "hook.fired", "session.end"]
    assert fired(running, "UserPromptSubmit").payload["decision"] == "deny"


@pytest.mark.parametrize(
    "args", [{}, {"prompt": 1}, {"prompt": None}, {"prompt": "x", "more": 1}, {"prompt": "\ud800"}, {"text": "x"}]
)
def test_rewriter_that_leaves_no_prompt_denies(running, args):
    running.hook("broken", "UserPromptSubmit", lambda *given: transform(args), rewrites=True)
    assert run(running).error.code == "PROMPT_DENIED"


def test_guard_may_not_rewrite_a_prompt(running):
    running.hook("sly", "UserPromptSubmit", lambda *given: transform({"prompt": "hello other"}))
    assert run(running).error.code == "PROMPT_DENIED"
    assert b"other" not in running.ledger().read_bytes()


def test_session_goes_on_after_a_prompt_was_denied(running):
    running.hook("gate", "UserPromptSubmit", lambda prompt, *more: allow() if prompt == "hello" else deny("no"))
    with running.session() as session:
        assert session.run("bye").error.code == "PROMPT_DENIED"
        assert isinstance(session.run("hello"), Ok)


# --- SkillStart -----------------------------------------------------------------------------------------------------


def test_skill_start_is_asked_under_the_invocation_with_the_skills_name(running):
    seen = []
    running.hook("look", "SkillStart", lambda skill, prompt, *more: seen.append((skill, prompt)) or allow())
    assert isinstance(run(running), Ok)
    assert seen == [("greet", "hello Ada")]
    assert fired(running, "SkillStart").parent == running.one("skill.invoke").span


@pytest.mark.parametrize("name", ["deny", *BROKEN])
def test_skill_that_is_not_allowed_is_not_run_and_completes_as_refused(running, name):
    running.hook("gate", "SkillStart", BROKEN.get(name, lambda *given: deny("not now")), timeout_ms=10)
    assert run(running).error.code == "SKILL_DENIED"
    assert "flow.call" not in running.types()
    assert running.payload("skill.complete")["ok"] is False


def test_skill_start_may_rewrite_what_the_flow_is_given(running):
    running.hook("rewrite", "SkillStart", lambda *given: transform({"prompt": "hello you"}), rewrites=True)
    assert run(running).value.text == "hello you"
    assert running.payload("flow.call")["args"] == {"prompt": "hello you"}
    assert running.payload("user.message")["text"] == "hello Ada"


def test_skill_start_is_not_asked_where_no_skill_fits(running):
    running.hook("look", "SkillStart", lambda *given: deny("never asked"))
    assert isinstance(run(running, "goodbye"), Ok)


# --- Stop and SessionStop -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "ok"), [("COMPLETED", True), ("HALTED", False)])
def test_stop_is_asked_once_before_the_reply_with_how_it_went(running, state, ok):
    seen = []
    running.flow("work", lambda args, run: {"reply": "x", "state": state})
    running.hook("stop", "Stop", lambda session, ok, now, facts: seen.append(ok) or deny("one is enough"))
    reply = run(running).value
    assert (seen, reply.text, reply.state) == ([ok], "x", state)
    types = running.types()
    assert types.index("hook.fired") < types.index("agent.reply") < types.index("skill.complete")
    assert fired(running, "Stop").payload["decision"] == "deny"
    assert running.payload("skill.complete")["ok"] is ok


def test_stop_that_allows_without_a_reason_ends_the_run(running):
    running.hook("stop", "Stop", lambda *given: allow())
    assert run(running).value.text == "hello Ada"
    assert len(running.all("flow.call")) == 1


def test_stop_with_a_reason_gives_the_flow_another_round_under_the_same_skill(running):
    answers = [allow("say it louder"), allow()]
    running.hook("stop", "Stop", lambda *given: answers.pop(0))
    reply = run(running).value
    assert reply.text == "hello Ada\n\nsay it louder"
    first, second = running.all("flow.call")
    invoked = running.one("skill.invoke").span
    assert [(each.parent, each.payload["args"]["prompt"]) for each in (first, second)] == [
        (invoked, "hello Ada"),
        (invoked, "hello Ada\n\nsay it louder"),
    ]
    assert reply.context.run == second.span
    assert running.payload("agent.reply")["reply"] == reply.text
    assert [each.payload["event"] for each in running.all("hook.fired")] == ["Stop", "Stop"]


def test_stop_gives_a_failed_flow_another_round(running):
    tries = []
    running.flow("work", lambda args, run: {"reply": "done"} if tries.append(1) or len(tries) > 1 else 1 / 0)
    running.hook("stop", "Stop", lambda session, ok, now, facts: allow() if ok else allow("try again"))
    assert (run(running).value.text, len(tries)) == ("done", 2)
    assert [context.payload["reason"][:17] for context in running.all("context.failed")] == ["ZeroDivisionError"]
    assert running.payload("skill.complete")["ok"] is True


@pytest.mark.parametrize(("settings", "rounds"), [({}, 3), ({"max_rounds": 0}, 0), ({"max_rounds": 5}, 5)])
def test_rounds_that_stop_asks_for_are_bounded(running, settings, rounds):
    running.settings(profiles={"lab": settings})
    running.hook("stop", "Stop", lambda *given: allow("again"))
    reply = run(running).value
    assert reply.text.count("hello Ada") == 1
    assert len(running.all("flow.call")) == len(running.all("hook.fired")) == rounds + 1
    assert (len(running.all("agent.reply")), reply.state) == (1, "COMPLETED")


def test_stop_that_denies_ends_the_run_although_another_hook_wants_a_round(running):
    running.hook("on", "Stop", lambda *given: allow("again"))
    running.hook("off", "Stop", lambda *given: deny("enough"))
    assert run(running).value.state == "COMPLETED"
    assert len(running.all("flow.call")) == 1


def test_stop_is_asked_after_a_failure_too(running):
    seen = []
    running.flow("work", lambda args, run: 1 / 0)
    running.hook("stop", "Stop", lambda session, ok, now, facts: seen.append(ok) or allow())
    run(running)
    assert seen == [False]


@pytest.mark.parametrize("name", BROKEN)
def test_stop_that_fails_is_recorded_as_stopping_and_takes_nothing_back(running, name):
    running.hook("stop", "Stop", BROKEN[name], timeout_ms=10)
    assert run(running).value.text == "hello Ada"
    assert fired(running, "Stop").payload["decision"] == "deny"


def test_session_stop_hears_of_the_end_before_it_is_written(lab):
    seen = []
    lab.hook("bye", "SessionStop", lambda session, ok, now, facts: seen.append((session, ok)))
    with lab.session() as session:
        pass
    assert seen == [(session.id, True)]
    assert lab.types() == ["session.start", "hook.fired", "session.end"]


@pytest.mark.parametrize("name", ["nothing", "an exception", "an exit", "late"])
def test_session_stop_that_fails_changes_nothing(lab, name):
    lab.hook("bye", "SessionStop", BROKEN[name], timeout_ms=10)
    with lab.session():
        pass
    assert lab.payload("session.end") == {"ok": True, "reason": "done"}


def test_session_stop_is_told_of_a_session_that_was_refused(lab):
    seen = []
    lab.hook("gate", "SessionStart", lambda *given: deny("no"))
    lab.hook("bye", "SessionStop", lambda session, ok, now, facts: seen.append(ok))
    with pytest.raises(SessionRefused):
        lab.kernel().session()
    assert seen == [False]


# --- all of them ----------------------------------------------------------------------------------------------------


def test_everyone_is_asked_in_order_of_priority_and_recorded_with_what_they_said(lab):
    order = []
    for name, priority, decision in (("c", 0, allow()), ("a", 0, deny("no")), ("b", 5, ask("hm"))):
        lab.hook(
            name,
            "SessionStart",
            lambda *given, name=name, decision=decision: order.append(name) or decision,
            priority=priority,
        )
    with pytest.raises(SessionRefused):
        lab.kernel().session()
    assert order == ["b", "a", "c"]
    (ledger,) = lab.state.glob("sessions/*/.events.jsonl")
    asked = lab.payload("hook.fired", ledger.parent.name)["asked"]
    assert [(each["hook"], each["decision"]) for each in asked] == [("b", "deny"), ("a", "deny"), ("c", "allow")]
    assert all(len(each["digest"]) == 64 for each in asked)


def test_facts_of_session_hooks_are_given_and_recorded_as_declared(running):
    seen = []

    def look(prompt, principal, session, now, facts):
        seen.append(dict(facts["session.calls"]))
        facts["session.calls"]["work"] = 99
        return allow()

    running.hook("a", "UserPromptSubmit", look, reads=["session.calls"])
    running.hook("b", "UserPromptSubmit", lambda *given: seen.append(given[-1]) or allow())
    with running.session() as session:
        session.run("hello")
        session.run("bye")
    assert seen == [{}, {}, {"work": 1}, {}]
    facts = [e.payload["facts"] for e in running.all("hook.fired") if e.payload["event"] == "UserPromptSubmit"]
    assert facts == [{"session.calls": {}}, {"session.calls": {"work": 1}}]


def test_events_without_hooks_are_not_recorded(running):
    run(running)
    assert "hook.fired" not in running.types()


def test_interrupt_while_a_hook_is_asked_ends_the_session_as_interrupted(running):
    def stop(*given):
        raise KeyboardInterrupt

    running.hook("stop", "UserPromptSubmit", stop)
    with pytest.raises(KeyboardInterrupt):
        run(running)
    assert running.payload("session.end") == {"ok": False, "reason": "interrupted"}
