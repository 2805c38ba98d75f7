"""The lab itself: a real workspace, and ledgers that are looked at when a test is over."""

import asyncio
import re
from pathlib import Path

import pytest

from deedbook import DeedbookError, Err, EventType, HandlerSpec, Ok, SessionRefused, allow, deny
from deedbook.contract.features import FeatureSpec
from deedbook.contract.lifecycle import EVENTS
from deedbook_testing import Lab

README = Path(__file__).parents[1] / "README.md"


class Shout:
    spec = HandlerSpec(gives={"type": "object"}, effects="none")

    def __init__(self, settings, host):
        pass

    def __call__(self, args, ctx):
        return {"text": args["text"].upper()}


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL))
def test_examples_of_the_readme_are_tests_that_pass(lab, block):
    namespace = {"Shout": Shout}
    exec(block, namespace)
    for test in [value for name, value in namespace.items() if name.startswith("test_")]:
        test(lab)
    assert any(name.lower().startswith("test") for name in namespace)


def test_tool_of_a_function_has_no_effects_and_takes_anything_unless_told(lab):
    lab.tool("plain", lambda args, ctx: args)
    lab.tool("strict", lambda args, ctx: None, effects="write", takes={"type": "object", "required": ["n"]})
    bindings = lab.kernel().bindings
    assert (bindings.abilities["plain"].effects, bindings.abilities["strict"].effects) == ("none", "write")
    with lab.session() as session:
        assert session.call("plain", {"any": [1]}) == Ok({"any": [1]})
        assert session.call("strict", {}).error.code == "SCHEMA_VIOLATION"


def test_tool_of_a_coroutine_function_is_awaited(lab):
    async def later(args, ctx):
        await asyncio.sleep(0)
        return "later"

    lab.tool("later", later)
    with lab.session() as session:
        assert session.call("later", {}) == Ok("later")


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_hook_of_a_function_answers_each_event(lab, event):
    asked, subject = [], EVENTS[event].subject

    def answer(*given):
        asked.append(event)
        return given[-1] if event == "PostToolUse" else allow()

    lab.tool("act", lambda args, ctx: None)
    lab.skill("go", allows="act")
    lab.flow(
        "work",
        lambda args, run: (run.fire(event, dict.fromkeys(subject, "a")) if subject else None, run.call("act", {}))[1],
    )
    lab.hook(
        "h", event, answer, match={"abilities": ["act"]} if event.startswith("Pre") and EVENTS[event].call else None
    )
    if event == "PostToolUse":
        lab.settings(abilities={"act": {"hooks": {"post_call": ["h"]}}})
    with lab.session() as session:
        session.run("go")
        if event == "PreAbilityCreate":
            with lab.tasks(session) as tasks:
                tasks.create("act", {})
    assert asked == [event]


@pytest.mark.parametrize(
    ("said", "text", "calls"),
    [
        ("hello", "hello", []),
        ([{"id": "1", "name": "a", "args": {}}], "", [{"id": "1", "name": "a", "args": {}}]),
        ({"text": "hi", "model": "other"}, "hi", []),
    ],
)
def test_model_of_a_function_gives_a_whole_response(lab, said, text, calls):
    lab.model(lambda request, ctx: said)
    request = {"messages": [{"role": "user", "content": ""}], "model": "m", "schema_version": "v2"}
    with lab.session() as session:
        got = session.call("model/standard", request).value
    assert (got["text"], got["tool_calls"]) == (text, calls)


def test_settings_are_merged_and_what_is_offered_again_replaces(lab):
    lab.settings(policies={"a": {"kind": "rules", "rules": [], "default": "allow"}})
    lab.settings(policies={"b": {"kind": "rules", "rules": [], "default": "allow"}})
    lab.tool("act", lambda args, ctx: 1)
    lab.tool("act", lambda args, ctx: 2)
    with lab.session() as session:
        assert session.call("act", {}) == Ok(2)
    assert {each["policy"] for each in lab.payload("policy.check")["asked"]} == {"a", "b"}


def test_session_that_is_refused_is_raised(lab):
    lab.hook("gate", "SessionStart", lambda *given: deny("no"))
    with pytest.raises(SessionRefused):
        lab.session()


def test_event_that_is_not_there_once_fails_the_test(lab):
    lab.session().end(ok=True, reason="done")
    with pytest.raises(AssertionError, match="0 events"):
        lab.one("tool.call")


def test_two_distributions_may_offer_one_name_which_is_then_nobodys(lab):
    lab.offer("tool", "shout", Shout, distribution="one")
    lab.offer("tool", "shout", Shout, distribution="two")
    lab.settings(abilities={"shout": {"summary": "Shout.", "handler": {"tool": "shout"}}})
    with pytest.raises(DeedbookError, match="uninstall all but one"):
        lab.kernel()


def test_closing_finds_a_ledger_that_is_not_sound(tmp_path):
    lab = Lab(tmp_path / "w")
    lab.tool("act", lambda args, ctx: args)
    with lab.session() as session:
        session.call("act", {"text": "told"})
    place = lab.ledger()
    place.write_bytes(place.read_bytes().replace(b"told", b"lied"))
    with pytest.raises(AssertionError, match="payload_hash"):
        lab.close()
    lab.damaged = True
    lab.close()


def test_closing_ends_what_is_open(tmp_path):
    lab = Lab(tmp_path / "w")
    lab.tool("act", lambda args, ctx: None)
    session = lab.session()
    session.door.before(session.caller, "act", {}, session.ledger.root)
    lab.close()
    assert lab.types() == ["session.start", "tool.call", "tool.error", "session.end"]
    assert isinstance(session.call("act", {}), Err)


class Shop:
    """A feature that records one event type."""

    spec = FeatureSpec(
        records={
            "x.shop.counted": EventType(
                schema={"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
            )
        }
    )


def count(lab: Lab, payload) -> None:
    """Write an event of the feature past the check that `Session.record` makes."""
    lab.offer("feature", "shop", Shop)
    lab.settings(features={"shop": {}})
    with lab.session() as session:
        session.note("x.shop.counted", "runtime", payload)


def test_ledger_is_verified_with_the_event_types_that_its_charter_declares(lab):
    count(lab, {"n": 1})
    report = lab.verify()
    assert report.sound
    assert report.notes[-1] == "events of plugins: the rules of x.shop were not checked"  # but their payloads were


def test_event_that_does_not_fit_the_type_of_its_charter_is_found(lab):
    count(lab, {"n": "many"})
    [failure] = lab.verify().structure.failures
    assert "x.shop.counted" in str(failure)
    lab.damaged = True


def test_end_of_the_lab_finds_an_event_that_does_not_fit(tmp_path):
    lab = Lab(tmp_path)
    count(lab, {"n": "many"})
    with pytest.raises(AssertionError, match=r"x\.shop\.counted"):
        lab.close()
