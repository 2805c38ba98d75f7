"""What a framework, a program or the machine does wrong: no effect without an intent, and the reason on the screen."""

import asyncio
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from threading import Lock
from traceback import extract_tb

import pytest
from commandline import Place

from deedbook.format.errors import BindingError, DeedbookError, SourceError
from deedbook.format.reader import read
from deedbook.sessions.session import Session
from deedbook_guard import CallDenied, check_framework, guard

CONVERSATIONS = 100
WORKSPACE = """
schema_version: v1
agents:
  shop:
    kind: program
    unknown_tools: deny
    tools: {send: {effects: write}, drop: {effects: irreversible}, ask: {effects: write}}
  desk: {kind: program, unknown_tools: allow}
policies:
  baseline:
    kind: rules
    rules: [{match: {abilities: [shop/drop]}, then: deny, reason: nothing is dropped}]
    default: allow
"""


class Framework:
    """A framework that turns every exception into text for its model, and goes on; its adapter is one line."""

    def __init__(self, governed, **tools):
        self.governed, self.tools = governed, tools

    def run(self, *calls):
        """Return what the model is told about each call: a name and arguments."""
        return [self._call(name, args) for name, args in calls]

    def _call(self, name, args):
        try:
            return self.governed.call(name, args, lambda permitted: self.tools[name](**permitted))
        except Exception as problem:
            return f"error: {problem}"


class Effects:
    """Counts effects in many threads."""

    def __init__(self):
        self.done = []
        self.lock = Lock()

    def send(self, text):
        with self.lock:
            self.done.append(text)
        return f"sent {text}"


@pytest.fixture
def effects():
    return Effects()


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    made.system("deedbook.yaml", WORKSPACE)
    return made


@pytest.fixture
def shop(place):
    governed = guard("shop", workspace=place.path)
    yield governed
    with suppress(DeedbookError):  # a workspace that is gone takes no last event
        governed.close()


def ledgers(place):
    """Return the events of each session by the name of its program, after a check that all ledgers are sound."""
    place.here("verify", status=0)
    found = [list(read(each)) for each in sorted(place.path.glob(".deedbook/sessions/*/.events.jsonl"))]
    return [(events[0].payload["principal"]["id"], events) for events in found]


def calls(events):
    return Counter(event.type for event in events if event.type.startswith("tool."))


def test_misspelt_name_in_a_rule_that_should_guard_is_reported_when_a_guard_starts(place, capsys):
    place.configure("[shop/drop]", "[shop/dorp]")
    guard("shop", workspace=place.path).close()
    why = "does not guard 'shop/dorp': it is no ability of this workspace; did you mean \"shop/drop\"?"
    assert capsys.readouterr().err == f"deedbook: .system/deedbook.yaml:12: rule 1 of policy baseline {why}\n"


@pytest.mark.parametrize("text", ["abilities: [x\n", "abilites: {}\n"])
def test_faulty_workspace_raises_one_message_under_the_line_of_the_program(place, text):
    place.system("deedbook.yaml", text)
    with pytest.raises(SourceError, match=r"\.system/deedbook\.yaml:\d:1: ") as raised:
        guard("shop", workspace=place.path)
    assert (raised.value.__cause__, raised.value.__suppress_context__) == (None, True)
    assert [frame.name for frame in extract_tb(raised.tb)[1:]] == ["guard"]


@pytest.mark.parametrize("gone", [".", ".deedbook", ".deedbook/sessions"])
def test_workspace_that_disappears_under_an_agent_stops_its_effects(shop, place, effects, capsys, gone):
    agent = Framework(shop, send=effects.send)
    assert agent.run(("send", {"text": "a"})) == ["sent a"]
    shutil.rmtree(place.path / gone)
    told = agent.run(*[("send", {"text": "b"})] * 3)
    assert ["its file was removed" in each for each in told] == [True] * 3
    assert effects.done == ["a"]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("deedbook: calls of 'shop' cannot be governed, so they fail. LEDGER_BROKEN: ")


def test_conversation_that_cannot_begin_says_why(shop, place, effects, capsys):
    shutil.rmtree(place.path)
    told = Framework(shop, send=effects.send).run(*[("send", {"text": "b"})] * 2)
    assert ["cannot be written" in each for each in told] == [True] * 2
    assert effects.done == []
    assert capsys.readouterr().err.count("LEDGER_BROKEN") == 1


@pytest.mark.parametrize("way", ["before", "abefore"])
def test_gate_that_crashes_says_why_though_the_framework_swallows_it(shop, effects, capsys, monkeypatch, way):
    def crash(*_args, **_named):
        raise RuntimeError("the gate crashed")

    monkeypatch.setattr(Session, way, crash)

    def call():
        if way == "before":
            return shop.call("send", {"text": "a"}, lambda args: effects.send(**args))
        return asyncio.run(shop.acall("send", {"text": "a"}, lambda args: effects.send(**args)))

    for _ in range(2):
        with pytest.raises(RuntimeError):
            call()
    assert effects.done == []
    assert capsys.readouterr().err.count("the gate crashed") == 1


def test_denial_is_told_to_the_model_and_not_to_the_screen(shop, effects, capsys):
    told = Framework(shop, drop=effects.send).run(("drop", {"text": "a"}))
    assert "nothing is dropped" in told[0]
    assert capsys.readouterr().err == ""


def test_agent_that_is_built_at_run_time_is_governed_by_its_names(shop, place, effects):
    """Nobody declared its tools, so they are unknown tools; those that are declared keep their policies."""

    def build(**tools):
        return Framework(shop, **tools)

    def ask(text):
        return build(send=effects.send, made_up=effects.send, drop=effects.send).run(
            ("send", {"text": text}), ("made_up", {"text": text}), ("drop", {"text": text})
        )

    (told,) = build(ask=ask).run(("ask", {"text": "a"}))
    assert ["error" in each for each in told] == [False, True, True]
    assert effects.done == ["a"]
    shop.close()
    ((_, events),) = ledgers(place)
    assert calls(events) == {"tool.call": 2, "tool.result": 2, "tool.denied": 2}


def test_two_programs_in_one_process_keep_their_calls_apart(shop, place, effects):
    """The tool of one framework's agent runs an agent of another framework, in threads and in one conversation each."""
    with guard("desk", workspace=place.path) as desk:
        inner = Framework(desk, post=effects.send)

        def send(text):
            return inner.run(("post", {"text": text}))[0]

        outer = Framework(shop, send=send)
        with shop.conversation(), desk.conversation(), ThreadPoolExecutor(8) as pool:
            contexts = [copy_context() for _ in range(20)]
            told = list(pool.map(lambda each: each.run(outer.run, ("send", {"text": "a"}))[0], contexts))
    assert told == ["sent a"] * 20
    found = ledgers(place)
    assert sorted(name for name, _ in found) == ["agent:desk", "agent:shop"]
    for name, events in found:
        used = {event.payload["tool_name"] for event in events if event.type == "tool.call"}
        assert used == {"shop/send" if name == "agent:shop" else "desk/other"}
        assert calls(events) == {"tool.call": 20, "tool.result": 20}


@pytest.mark.parametrize("how", ["threads", "tasks"])
def test_hundred_conversations_at_once_lose_nothing(shop, place, effects, how):
    """Each conversation has its own ledger, with its own calls and no other's."""

    def talk(number):
        with shop.conversation(str(number)) as conversation:
            conversation.call("send", {"text": f"{number} first"}, lambda args: effects.send(**args))
            shop.call("send", {"text": f"{number} second"}, lambda args: effects.send(**args))
            with pytest.raises(CallDenied):
                shop.call("drop", {"text": str(number)}, pytest.fail)

    async def converse(number):
        with shop.conversation(str(number)) as conversation:
            await conversation.acall("send", {"text": f"{number} first"}, lambda args: effects.send(**args))
            await shop.acall("send", {"text": f"{number} second"}, lambda args: effects.send(**args))
            with pytest.raises(CallDenied):
                await shop.acall("drop", {"text": str(number)}, pytest.fail)

    async def all_at_once():
        await asyncio.gather(*map(converse, range(CONVERSATIONS)))

    if how == "threads":
        with ThreadPoolExecutor(CONVERSATIONS) as pool:
            list(pool.map(talk, range(CONVERSATIONS)))
    else:
        asyncio.run(all_at_once())
    found = [events for _, events in ledgers(place)]
    assert len(found) == CONVERSATIONS
    assert len(effects.done) == 2 * CONVERSATIONS
    for events in found:
        (number,) = [event.payload["said"]["purpose"] for event in events if event.type == "bridge.told"]
        sent = [event.payload["args"]["text"] for event in events if event.type == "tool.call"]
        assert sent == [f"{number} first", f"{number} second"]
        assert calls(events) == {"tool.call": 2, "tool.result": 2, "tool.denied": 1}
        assert events[-1].type == "session.end"


def test_all_conversations_are_ended_though_one_cannot_be(shop, place):
    begun = [shop.conversation(str(number)) for number in range(3)]
    (place.path / ".deedbook/sessions" / begun[0].id / ".events.jsonl").unlink()
    with pytest.raises(DeedbookError, match="its file was removed"):
        shop.close()
    assert [each.session.ended for each in begun[1:]] == [True, True]


@pytest.mark.parametrize(
    ("least", "below", "why"), [("1000", "1001", "is tested with"), ("0", "0.1", "Install a tested one")]
)
def test_framework_of_another_version_is_refused(least, below, why):
    with pytest.raises(BindingError, match=why):
        check_framework("click", least, below, adapter="deedbook-adapter-x")


def test_framework_that_is_missing_is_named_with_its_remedy():
    with pytest.raises(BindingError, match=r"pip install 'deedbook-adapter-x\[framework\]'"):
        check_framework("no-such-framework", "1", "2", adapter="deedbook-adapter-x")
