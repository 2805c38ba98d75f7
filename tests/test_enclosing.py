"""What features put around the recording of an intent: it may deny the call, and it is left after the record."""

import asyncio
from contextlib import contextmanager, suppress
from inspect import signature
from pathlib import Path

import pytest
from ledgers import forge

from deedbook.contract import Failed, Object, allow, ask, deny, views
from deedbook.contract.features import CallPrevented, FactsChanged, FeatureHooks, FeatureSpec, featureimpl
from deedbook.format.errors import BindingError, Err, LedgerError, Ok, fault
from deedbook.format.files import Folder
from deedbook.workspace.declarations import FeatureSection
from deedbook.workspace.documents import parse_yaml
from deedbook.workspace.trees import SourceReader, SourceTree
from deedbook.workspace.workspace import read_workspace
from deedbook_audit.recheck import recheck


def enclose(lab, told, *, prevents=False, effects=(), reserve=None):
    """Activate a feature that notes in *told* when it is entered and left, and the last event recorded by then."""

    class Fence:
        spec = FeatureSpec()

        @featureimpl
        def around_intents(self, ledger):
            @contextmanager
            def around(allowed):
                if prevents:
                    raise CallPrevented("FROZEN", f"{allowed.call.principal.id} may not {allowed.call.ability} now")
                told.append(("enter", allowed.call.ability, None))
                try:
                    yield
                finally:
                    told.append(("leave", allowed.call.ability, lab.types(ledger.session_id)[-1]))

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


# --- what a feature decides ---------------------------------------------------------------------------------------


def read_example():
    """Return the class of the page about features, which a third party would write."""
    page = Path(__file__).parents[1] / "docs/plugins/feature.md"
    code = page.read_text(encoding="utf-8").partition("```python\n# spending_limit.py\n")[2].partition("```")[0]
    space = {}
    exec(code, space)
    return space["SpendingLimit"]


def limit(lab, made=None, **settings):
    """Activate a feature that decides about calls, and return what the tool ``pay`` was paid."""
    paid = []
    lab.allow_irreversible()
    lab.offer("feature", "spending-limit", made or read_example())
    lab.settings(features={"spending-limit": settings})
    lab.tool("pay", lambda args, ctx: paid.append(args["amount"]) or {}, effects="irreversible")
    return paid


def test_feature_that_judges_gets_the_arguments_and_denies_on_the_record(lab):
    paid = limit(lab, most=100)
    with lab.session() as session:
        error = session.call("pay", {"amount": 101}).error
    assert (error.code, error.message, error.kind, paid) == ("GATE_DENIED", "101 is more than 100", "gate", [])
    denied = lab.payload("tool.denied")
    assert denied["by"] == {"feature": "spending-limit"}
    assert denied["args"] == {"amount": 101}
    assert lab.verify().sound


def test_feature_that_counts_denies_with_its_own_code_on_the_record(lab):
    paid = limit(lab, most=100)
    with lab.session() as session:
        assert isinstance(session.call("pay", {"amount": 60}), Ok)
        error = session.call("pay", {"amount": 60}).error
        assert isinstance(asyncio.run(session.acall("pay", {"amount": 40})), Ok)
    assert (error.code, error.message, error.kind) == ("LIMIT_REACHED", "60 of 100 is spent", "gate")
    assert paid == [60, 40]
    assert [each.payload["code"] for each in lab.all("tool.denied")] == ["LIMIT_REACHED"]
    assert lab.verify().sound


def deciding(moment, decide):
    """Return the class of a feature whose *moment* returns *decide*."""

    class Decides:
        spec = FeatureSpec()

    def returns_it(self):
        return decide

    returns_it.__name__ = moment
    setattr(Decides, moment, featureimpl(returns_it))
    return Decides


def crash(_):
    raise ValueError("oops")


def exceed(_):
    raise CallPrevented("NEEDS_HUMAN", "ask")


@pytest.mark.parametrize(
    ("moment", "decide", "why"),
    [
        ("judge_calls", crash, "feature spending-limit failed: ValueError: oops"),
        ("judge_calls", lambda _: None, "feature spending-limit returned None; it can allow or deny, with a Decision"),
        ("judge_calls", lambda _: True, "feature spending-limit returned a bool; it can allow or deny"),
        ("judge_calls", lambda _: ask("sure?"), "feature spending-limit answered ask; it can allow or deny"),
        ("judge_calls", exceed, "NEEDS_HUMAN: ask"),
        ("before_intents", crash, "feature spending-limit failed: ValueError: oops"),
        ("before_intents", lambda _: deny("no"), "feature spending-limit returned a Decision before an intent"),
        ("before_intents", lambda _: False, "feature spending-limit returned a bool before an intent"),
        ("around_intents", crash, "feature spending-limit failed: ValueError: oops"),
        ("around_intents", lambda _: deny("no"), "feature spending-limit returned a Decision, not a context manager"),
        ("around_intents", lambda a, b: None, "feature spending-limit failed: TypeError"),
    ],
)
def test_feature_that_fails_or_answers_wrongly_denies_on_the_record(lab, moment, decide, why):
    paid = limit(lab, deciding(moment, decide))
    with lab.session() as session:
        error = session.call("pay", {"amount": 1}).error
    assert error.code == "GATE_DENIED"
    assert error.message.startswith(why)
    assert paid == []
    assert lab.payload("tool.denied")["by"] == {"feature": "spending-limit"}
    assert lab.verify().sound


@pytest.mark.parametrize("moment", ["judge_calls", "before_intents", "around_intents"])
def test_feature_that_returns_no_function_stops_the_session(lab, moment):
    limit(lab, deciding(moment, deny("no")))
    with pytest.raises(BindingError, match=f"returned a Decision from {moment}, not a function"):
        lab.session()


def test_feature_cannot_change_what_the_handler_gets(lab):
    def change(allowed):
        allowed.call.args["amount"] = 999
        return allow()

    paid = limit(lab, deciding("judge_calls", change))
    with lab.session() as session:
        assert isinstance(session.call("pay", {"amount": 1}), Ok)
    assert paid == [1]


def test_context_manager_of_a_feature_cannot_suppress_what_prevents_the_call(lab):
    class Suppresses:
        spec = FeatureSpec()

        @featureimpl
        def around_intents(self):
            return lambda allowed: suppress(BaseException)

        @featureimpl
        def before_intents(self):
            return prevent

    paid = limit(lab, Suppresses)
    with lab.session() as session:
        assert session.call("pay", {"amount": 1}).error.code == "LIMIT_REACHED"
    assert paid == []


def prevent(_):
    raise CallPrevented("LIMIT_REACHED", "no more")


@pytest.mark.parametrize("moment", ["leaving", "before the effect"])
def test_feature_that_fails_after_the_intent_keeps_the_effect_from_beginning(lab, moment):
    class Fails:
        spec = FeatureSpec()

        @featureimpl
        def around_intents(self):
            @contextmanager
            def around(allowed):
                yield
                if moment == "leaving":
                    crash(allowed)

            return around

        @featureimpl
        def before_effects(self):
            return {"irreversible": crash} if moment != "leaving" else None

    paid = limit(lab, Fails)
    with lab.session() as session:
        error = session.call("pay", {"amount": 1}).error
    assert error.message.startswith("pay was not begun: a feature failed: ValueError: oops")
    assert paid == []
    assert lab.payload("tool.error")["outcome"] == "failed"
    assert lab.verify().sound


def test_settlement_that_fails_changes_nothing_about_the_call(lab):
    paid = limit(lab, deciding("before_intents", lambda _: crash))
    with lab.session() as session:
        assert isinstance(session.call("pay", {"amount": 1}), Ok)
    assert paid == [1]


def test_fact_that_cannot_be_read_denies_on_the_record(lab):
    class Facts:
        spec = FeatureSpec(facts={"meter.level": {"type": "object"}})

        @featureimpl
        def session_facts(self):
            return {"meter.level": crash}

    lab.offer("feature", "meter", Facts)
    lab.policy("level", lambda call: allow(), reads=["meter.level"])
    lab.tool("a", lambda args, ctx: {})
    with lab.session() as session:
        error = session.call("a", {}).error
    assert error.code == "GATE_DENIED"
    assert error.message.startswith("the fact meter.level cannot be read: ValueError: oops")
    assert lab.payload("tool.denied")["name"] == "a"
    assert lab.verify().sound


@pytest.mark.parametrize(("name", "sound"), [("spending-limit", True), ("another-limit", False)])
def test_denial_by_a_feature_that_the_charter_does_not_name_is_found(lab, name, sound):
    limit(lab, most=0)
    with lab.session() as session:
        session.call("pay", {"amount": 1})
    lines = Path(session.ledger.place).read_bytes().splitlines(keepends=True)
    changed = forge([line.replace(b'"feature":"spending-limit"', b'"feature":"%b"' % name.encode()) for line in lines])
    place = lab.path / "changed" / ".events.jsonl"
    place.parent.mkdir()
    place.write_bytes(b"".join(changed))
    decisions = recheck(place, lambda _: session.bindings)
    wrong = [("decision", "ask GATE_DENIED")]
    assert [(each.check, each.found) for each in decisions.failures] == ([] if sound else wrong)


def test_no_method_of_features_has_an_argument_or_answer_of_any_type():
    for name, method in vars(FeatureHooks).items():
        if not name.startswith("_"):
            assert "Any" not in str(signature(method)).replace(str(Object), "Object"), name


def test_views_name_only_what_the_objects_of_the_kernel_have(lab):
    seen = {}

    class Looks:
        spec = FeatureSpec()

        @featureimpl
        def before_effects(self, kernel, ledger):
            seen.update({views.KernelView: kernel, views.LedgerView: ledger, views.StateView: kernel.state})
            seen[views.SiteView] = kernel.site
            return {"irreversible": lambda it: seen.update({views.TicketView: it, views.AbilityView: it.bound})}

        @featureimpl
        def before_intents(self):
            def reserve(allowed):
                seen[views.CallerView] = allowed.caller
                return lambda outcome: seen.update({views.OutcomeView: outcome})

            return reserve

        @featureimpl
        def session_ended(self, session):
            seen[views.SessionView] = session

    limit(lab, Looks)
    with lab.session() as session:
        assert isinstance(session.call("pay", {"amount": 1}), Ok)
    workspace = read_workspace(lab.path)
    place, tree = lab.path / ".system" / "deedbook.yaml", Folder.at(lab.path)
    with tree as folder:
        seen |= {views.WorkspaceView: workspace, views.TreeView: SourceTree(folder)}
    seen |= {
        views.ReaderView: SourceReader(lab.schemas),
        views.DocumentView: parse_yaml(place.read_bytes(), "deedbook.yaml"),
        views.SectionView: FeatureSection(),
        views.ErrorView: fault("USAGE", "no"),
    }
    for view, thing in seen.items():
        members = [name for name in vars(view) if not name.startswith("_")]
        assert members, view
        assert [name for name in members if not hasattr(thing, name)] == [], view
