"""What features add between a judgement and its intent: facts for gates, and reservations that an outcome settles."""

import asyncio

import pytest

from deedbook.contract import Failed, allow, deny
from deedbook.contract.features import FactsChanged, FeatureSpec, featureimpl
from deedbook.format.errors import BindingError, Err, LedgerError, Ok, fault


def meter(told, *, changes=0, prevents=False, effects=()):
    """Return the class of a feature that offers the fact ``meter.level``, and notes in *told* what it is told."""

    class Meter:
        spec = FeatureSpec(facts={"meter.level": {"type": "object"}})

        @featureimpl
        def session_facts(self):
            return {"meter.level": lambda caller: {"depth": caller.depth, "asked": len(told)}}

        @featureimpl
        def before_intents(self):
            return self.reserve

        @featureimpl
        def before_effects(self):
            return dict.fromkeys(effects, prevent)

        def reserve(self, allowed):
            told.append(("reserve", allowed.call.ability, dict(allowed.answers)))
            if sum(each[0] == "reserve" for each in told) <= changes:
                raise FactsChanged
            if prevents:
                prevent(None)
            return lambda outcome: told.append(("settle", allowed.call.ability, outcome and outcome.end))

    return Meter


def prevent(_):
    raise LedgerError(fault("LEDGER_BROKEN", "not now"))


def metered(lab, decide=lambda call: allow(), **more):
    """Offer the feature, with a policy that reads its fact; return what the feature is told."""
    told = []
    lab.offer("feature", "meter", meter(told, **more))
    lab.policy("level", decide, reads=["meter.level"], match={"kind": ["tool", "flow", "model"]})
    return told


def test_fact_of_a_feature_activates_it_and_is_recorded(lab):
    metered(lab)
    lab.tool("a", lambda args, ctx: {})
    lab.tool("b", lambda args, ctx: ctx.call("a", {}), uses=["a"])
    with lab.session() as session:
        assert isinstance(session.call("b", {}), Ok)
    assert "feature/meter" in session.bindings.charter.document["plugins"]
    facts = [each.payload["facts"]["meter.level"] for each in lab.all("policy.check")]
    assert facts == [{"depth": 0, "asked": 0}, {"depth": 1, "asked": 1}]


@pytest.mark.parametrize("name", ["meter.other", "metre.level", "session.cals"])
def test_fact_that_no_feature_offers_is_refused(lab, name):
    metered(lab)
    lab.policy("wrong", lambda call: allow(), reads=[name])
    with pytest.raises(BindingError) as caught:
        lab.kernel()
    assert any(f"reads '{name}', which is no fact" in each.message for each in caught.value.errors)


def test_every_kind_of_call_is_reserved_before_its_intent_and_settled_by_its_outcome(lab):
    told = metered(lab)

    def ask(args, run):
        return {"reply": run.agent("lead").complete({"messages": [{"role": "user", "content": "x"}]})["text"]}

    lab.tool("a", lambda args, ctx: {})
    lab.role("lead")
    lab.flow("ask", ask)
    lab.model(lambda request, ctx: "hi")
    with lab.session() as session:
        assert isinstance(session.call("ask", {"prompt": "x"}), Ok)
        assert isinstance(session.call("a", {}), Ok)
    assert [each[:2] for each in told] == [
        ("reserve", "ask"), ("reserve", "model/standard"), ("settle", "model/standard"), ("settle", "ask"),
        ("reserve", "a"), ("settle", "a"),
    ]  # fmt: skip
    assert {each[2] for each in told if each[0] == "settle"} == {"result"}


def test_failure_settles_and_a_denial_reserves_nothing(lab):
    def fail(args, ctx):
        raise Failed("BROKEN", "it is broken")

    told = metered(lab, lambda call: deny("no") if call.ability == "b" else allow())
    lab.tool("a", fail)
    lab.tool("b", lambda args, ctx: {})
    with lab.session() as session:
        assert isinstance(session.call("a", {}), Err)
        assert isinstance(session.call("b", {}), Err)
    assert told == [("reserve", "a", {"level": "allow"}), ("settle", "a", "failed")]


def test_asynchronous_calls_are_reserved_and_settled(lab):
    told = metered(lab)
    lab.tool("a", lambda args, ctx: {})
    with lab.session() as session:
        assert isinstance(asyncio.run(session.acall("a", {})), Ok)
    assert [each[0] for each in told] == ["reserve", "settle"]


def test_call_is_judged_again_when_facts_changed(lab):
    told = metered(lab, changes=2)
    lab.tool("a", lambda args, ctx: {})
    with lab.session() as session:
        assert isinstance(session.call("a", {}), Ok)
    assert [each[0] for each in told] == ["reserve"] * 3 + ["settle"]
    assert lab.payload("policy.check")["facts"]["meter.level"]["asked"] == 2
    assert lab.types().count("tool.call") == 1


def test_facts_that_change_without_end_prevent_the_call(lab):
    metered(lab, changes=99)
    ran = []
    lab.tool("a", lambda args, ctx: ran.append(args))
    with lab.session() as session:
        error = session.call("a", {}).error
        assert lab.types() == ["session.start"]
    assert (error.code, error.retryable, ran) == ("LEDGER_LOCKED", True, [])


def test_feature_that_cannot_reserve_prevents_the_call(lab):
    told = metered(lab, prevents=True)
    ran = []
    lab.tool("a", lambda args, ctx: ran.append(args))
    with lab.session() as session:
        assert session.call("a", {}).error.code == "LEDGER_BROKEN"
    assert ran == []
    assert [each[0] for each in told] == ["reserve"]
    assert "tool.call" not in lab.types()


def test_effect_that_does_not_begin_gives_its_reservation_back(lab):
    told = metered(lab, effects=("write",))
    ran = []
    lab.tool("a", lambda args, ctx: ran.append(args), effects="write")
    with lab.session() as session:
        assert isinstance(session.call("a", {}), Err)
    assert ran == []
    assert told[1:] == [("settle", "a", None)]


def test_call_that_is_left_open_is_settled_as_unknown(lab):
    told = metered(lab)
    lab.tool("a", lambda args, ctx: {})
    with lab.session() as session:
        assert isinstance(session.before("a", {}), Ok)
    assert told[1:] == [("settle", "a", "unknown")]
