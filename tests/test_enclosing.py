"""What features put around the recording of an intent: it may deny the call, and it is left after the record."""

import asyncio
from contextlib import contextmanager

import pytest

from deedbook.contract import Failed, allow, ask, deny
from deedbook.contract.features import CallPrevented, FactsChanged, FeatureSpec, featureimpl
from deedbook.format.errors import Err, LedgerError, Ok, fault


def enclose(lab, told, *, prevents=False, effects=(), reserve=None):
    """Activate a feature that notes in *told* when it is entered and left, and the last event recorded by then."""

    class Fence:
        spec = FeatureSpec()

        @featureimpl
        def around_intents(self, ledger):
            @contextmanager
            def around(caller, ability):
                if prevents:
                    raise CallPrevented("FROZEN", f"{caller.principal.id} may not {ability} now")
                told.append(("enter", ability, None))
                try:
                    yield
                finally:
                    told.append(("leave", ability, lab.types(ledger.session_id)[-1]))

            return around

        @featureimpl
        def before_effects(self):
            return dict.fromkeys(effects, refuse)

        @featureimpl
        def before_intents(self):
            return reserve

    lab.offer("feature", "fence", Fence)
    lab.settings(features={"fence": {}})


def refuse(_):
    raise LedgerError(fault("LEDGER_BROKEN", "not now"))


def test_feature_is_left_when_the_intent_is_recorded_and_before_the_handler_runs(lab):
    told = []
    enclose(lab, told)
    lab.tool("a", lambda args, ctx: told.append("ran") or {}, effects="write")
    with lab.session() as session:
        assert isinstance(session.call("a", {}), Ok)
    assert told == [("enter", "a", None), ("leave", "a", "tool.call"), "ran"]


def test_asynchronous_call_is_enclosed_too(lab):
    told = []
    enclose(lab, told)
    lab.tool("a", lambda args, ctx: {})
    with lab.session() as session:
        assert isinstance(asyncio.run(session.acall("a", {})), Ok)
    assert [each[0] for each in told] == ["enter", "leave"]


def test_feature_denies_a_call_and_the_record_has_its_gates_code_and_arguments(lab):
    ran = []
    enclose(lab, [], prevents=True)
    lab.policy("fine", lambda call: allow())
    lab.tool("a", lambda args, ctx: ran.append(args), effects="write")
    with lab.session() as session:
        error = session.call("a", {"n": 1}).error
    assert (error.code, error.message, ran) == ("FROZEN", "local may not a now", [])
    assert lab.types()[1:3] == ["policy.check", "tool.denied"]
    assert lab.payload("tool.denied")["args"] == {"n": 1}
    assert lab.verify().sound


def test_request_for_a_person_is_enclosed_and_can_be_prevented(lab):
    told = []
    enclose(lab, told)
    lab.policy("careful", lambda call: ask("is it right?"))
    lab.tool("a", lambda args, ctx: {})
    with lab.session() as session:
        assert session.call("a", {}).error.code == "NEEDS_HUMAN"
    assert told == [("enter", "a", None), ("leave", "a", "approval.requested")]


def test_prevented_request_is_not_filed(lab):
    enclose(lab, [], prevents=True)
    lab.policy("careful", lambda call: ask("is it right?"))
    lab.tool("a", lambda args, ctx: {})
    with lab.session() as session:
        assert session.call("a", {}).error.code == "FROZEN"
    assert "approval.requested" not in lab.types()


def test_denied_call_is_not_enclosed(lab):
    told = []
    enclose(lab, told)
    lab.policy("never", lambda call: deny("no"))
    lab.tool("a", lambda args, ctx: {})
    with lab.session() as session:
        assert session.call("a", {}).error.code == "GATE_DENIED"
    assert told == []


@pytest.mark.parametrize("problem", [FactsChanged(), LedgerError(fault("LEDGER_BROKEN", "no")), KeyboardInterrupt()])
def test_feature_is_left_whatever_prevents_the_intent(lab, problem):
    told = []

    def reserve(allowed):
        raise problem

    enclose(lab, told, reserve=reserve)
    lab.tool("a", lambda args, ctx: {})
    with lab.session() as session:
        if isinstance(problem, KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                session.call("a", {})
        else:
            assert isinstance(session.call("a", {}), Err)
    assert [each[0] for each in told] == ["enter", "leave"] * (len(told) // 2)
    assert told


def test_failing_handler_and_refused_effect_leave_it_as_well(lab):
    def fail(args, ctx):
        raise Failed("BROKEN", "it is broken")

    told = []
    enclose(lab, told, effects=("write",))
    lab.tool("a", fail)
    lab.tool("b", lambda args, ctx: {}, effects="write")
    with lab.session() as session:
        assert isinstance(session.call("a", {}), Err)
        assert isinstance(session.call("b", {}), Err)
    assert [each[:2] for each in told] == [("enter", "a"), ("leave", "a"), ("enter", "b"), ("leave", "b")]


def test_feature_is_left_before_others_are_asked_about_the_effect(lab):
    """A checkpoint may take long; the intent is durable by then."""
    told = []
    enclose(lab, told)

    class Slow:
        spec = FeatureSpec()

        @featureimpl
        def before_effects(self):
            return {"write": lambda ticket: told.append(("effect", ticket.bound.id))}

    lab.offer("feature", "slow", Slow)
    lab.settings(features={"slow": {}})
    lab.tool("a", lambda args, ctx: {}, effects="write")
    with lab.session() as session:
        assert isinstance(session.call("a", {}), Ok)
    assert [each[0] for each in told] == ["enter", "leave", "effect"]
