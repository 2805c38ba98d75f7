"""The part of the contract of adapters about arguments: judged, recorded and used are one and the same values.

Frameworks convert what a model sends, fill in defaults and drop what they do not know. A rule must see what is left.
"""

import asyncio
import inspect
import itertools
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, ClassVar, Final

import pytest
from pydantic import BaseModel, Field

from deedbook.format.reader import read
from deedbook_guard import Guard, guard
from deedbook_guard.adoption.changes import plan, write
from deedbook_guard.agent_tools import find_adapter
from deedbook_guard.arguments import CHANGED, argument_form

from .soundness import assert_sound

_SETTINGS: Final = """\
schema_version: v1
enforcement: {enforcement}
agents:
  crew:
    kind: program
    unknown_tools: deny
    tools:
      {pay}: {{effects: write}}
      {delegate}: {{effects: none}}
policies:
  baseline:
    kind: rules
    rules:
      - {{match: {{abilities: [crew/{pay}], args: {{/amount: {{min: 101}}}}}}, then: deny, reason: more than 100}}
    default: allow
"""
_REWRITE: Final = """\
hooks:
  rewrite:
    event_type: PreToolUse
    handler: {{script: [{python}, -S, rewrite.py]}}
    timeout_ms: 30000
    match: {{abilities: [crew/{pay}]}}
    rewrites: true
"""
_numbers: Final = itertools.count(1)


class Colour(Enum):
    """A colour; its values differ from its names."""

    RED = "r"
    BLUE = "b"


class Part(BaseModel):
    """A model with a field that the caller knows under another name."""

    count: int = Field(1, alias="howMany")
    name: str = "bolt"


class Order(BaseModel):
    """A model with a model in it, and with a default."""

    part: Part
    urgent: bool = False


@dataclass
class Box:
    """A dataclass with a number."""

    width: int
    height: int = 3


class Got:
    """What the tools of a test really got: the arguments of each run, by name, as Python objects."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self._lock = Lock()

    def keep(self, args: Mapping[str, Any]) -> str:
        """Remember the arguments of one run."""
        with self._lock:
            self.calls.append(dict(args))
        return "paid"

    def spying(self, function: Callable[..., Any], *, asynchronous: bool) -> Callable[..., Any]:
        """Return *function* as a tool ``pay`` that keeps what it gets; a coroutine function if *asynchronous*."""
        shape = inspect.signature(function)

        def bound(args: Any, kwargs: Any) -> dict[str, Any]:
            filled = shape.bind(*args, **kwargs)
            filled.apply_defaults()
            return dict(filled.arguments)

        @wraps(function)
        def pay(*args: Any, **kwargs: Any) -> str:
            return self.keep(bound(args, kwargs))

        @wraps(function)
        async def apay(*args: Any, **kwargs: Any) -> str:
            await asyncio.sleep(0)
            return self.keep(bound(args, kwargs))

        made = apay if asynchronous else pay
        made.__name__ = made.__qualname__ = "pay"
        return made


def pay_amount(amount: int = 500) -> str:
    """Pay an amount."""
    return str(amount)


def pay_number(amount: Annotated[int, Field(default_factory=lambda: 200 + next(_numbers))]) -> str:
    """Pay an amount that is another one each time, unless one is named."""
    return str(amount)


def pay_exactly(amount: Decimal) -> str:
    """Pay an exact amount."""
    return str(amount)


def pay_on(day: date, amount: int = 5) -> str:
    """Pay on a day."""
    return f"{day} {amount}"


def pay_in(colour: Colour) -> str:
    """Pay in a colour."""
    return colour.name


def pay_for(order: Order, amount: int = 5) -> str:
    """Pay for an order."""
    return f"{order} {amount}"


def pay_boxed(box: Box, amount: int = 5) -> str:
    """Pay for a box."""
    return f"{box} {amount}"


@dataclass(frozen=True)
class Case:
    """What a model sends to a tool, what the tool gets, and what the ledger has.

    *refusable* says that a framework may as well refuse the call.
    """

    function: Callable[..., Any]
    sent: Mapping[str, Any]
    used: Mapping[str, Any]
    recorded: Mapping[str, Any]
    refusable: bool = False


CASES: Final[Mapping[str, Case]] = {
    "text for a number": Case(pay_amount, {"amount": "50"}, {"amount": 50}, {"amount": 50}),
    "text with spaces": Case(pay_amount, {"amount": " 50 "}, {"amount": 50}, {"amount": 50}),
    "a whole float": Case(pay_amount, {"amount": 50.0}, {"amount": 50}, {"amount": 50}),
    "an unknown key": Case(pay_amount, {"amount": 50, "admin": True}, {"amount": 50}, {"amount": 50}, refusable=True),
    "an exact number": Case(pay_exactly, {"amount": "50.10"}, {"amount": Decimal("50.10")}, {"amount": 50.1}),
    "a date": Case(
        pay_on, {"day": "2026-01-02"}, {"day": date(2026, 1, 2), "amount": 5}, {"day": "2026-01-02", "amount": 5}
    ),
    "an enumeration": Case(pay_in, {"colour": "b"}, {"colour": Colour.BLUE}, {"colour": "b"}),
    "a model with an alias, a default and an unknown key": Case(
        pay_for,
        {"order": {"part": {"howMany": "2", "admin": True}}},
        {"order": Order(part=Part(howMany=2)), "amount": 5},
        {"order": {"part": {"howMany": 2, "name": "bolt"}, "urgent": False}, "amount": 5},
    ),
    "a dataclass": Case(
        pay_boxed,
        {"box": {"width": "4"}},
        {"box": Box(4), "amount": 5},
        {"box": {"width": 4, "height": 3}, "amount": 5},
    ),
}
"""What frameworks make of the arguments of a model; none of these is too much for the policy."""
TOO_MUCH: Final[Mapping[str, Case]] = {
    "a number": Case(pay_amount, {"amount": 500}, {}, {}),
    "text": Case(pay_amount, {"amount": "500"}, {}, {}),
    "text with spaces": Case(pay_amount, {"amount": " 500 "}, {}, {}),
    "an exact number": Case(pay_exactly, {"amount": "500.10"}, {}, {}),
    "a default": Case(pay_amount, {}, {}, {}),
    "a default factory": Case(pay_number, {}, {}, {}),
}
"""What becomes more than the policy allows."""


class ValuesContract(ABC):
    """Tests of the values that are judged, recorded and used; `AdapterContract` includes them.

    An adapter whose framework converts nothing says so (`converts`); one that sees no values after the framework's
    own validation gives the reason (`values_hidden`), and its page must have it.
    """

    converts: ClassVar[bool] = True
    """Whether the framework makes 50 of "50"; one that does not refuses it, or hands the text to the tool."""
    makes_objects: ClassVar[bool] = True
    """Whether a tool gets models, dataclasses and the like; if it gets plain objects, these are what is recorded."""
    values_hidden: ClassVar[str] = ""
    """Why the adapter cannot see the values after the framework's own validation; empty if it can."""
    tool_names: ClassVar[Mapping[str, str]]

    @abstractmethod
    def agent(self, governed: Guard, tools: Mapping[str, Callable[..., Any]], turns: Sequence[Any]) -> Any:
        """Return a governed agent; see `AdapterContract`."""

    @abstractmethod
    def team(self, governed: Guard, tools: Mapping[str, Callable[..., Any]], turns: Sequence[Any]) -> Any:
        """Return a governed agent that hands its work to another one."""

    @abstractmethod
    async def run(self, agent: Any) -> str:
        """Run the agent to its end."""

    @abstractmethod
    async def stream(self, agent: Any) -> str:
        """Act like `run`, with a streamed answer."""

    def framework_agent(self, agent: Any) -> Any:
        """Return the framework's own agent."""
        return agent

    def run_sync(self, agent: Any) -> str:
        """Act like `run`, without a coroutine; only if the framework has a way of its own for that."""
        raise NotImplementedError

    def meddled(
        self, governed: Guard, tools: Mapping[str, Callable[..., Any]], turns: Sequence[Any], amount: int
    ) -> Any:
        """Return an agent in which something behind the guard makes each ``amount`` *amount*.

        It is what the framework has for that: middleware, a plugin, a callback, or a wrapper of the tool.
        """
        raise NotImplementedError

    def injecting(self, got: Got) -> tuple[str, Callable[..., Any]]:
        """Return the name of a parameter that the framework fills in, and a tool ``pay`` with it and ``amount: int``.

        The parameter is no argument of the model. The tool keeps its arguments in *got*.
        """
        raise NotImplementedError

    # --- workspaces ---------------------------------------------------------------------------------------------------

    @pytest.fixture
    def visible(self) -> None:
        """Skip a test of values that the adapter cannot see; its page must say so."""
        if self.values_hidden:
            page = (Path(inspect.getfile(type(self))).parents[1] / "README.md").read_text(encoding="utf-8")
            assert self.values_hidden in " ".join(page.split()), "the page does not say what `values_hidden` says"
            pytest.skip(f"values_hidden: {self.values_hidden}")

    @pytest.fixture
    def got(self) -> Got:
        """Give what the tools of the test get."""
        return Got()

    def pay_name(self) -> str:
        """Return the name that the framework gives to the tool ``pay``."""
        return self.tool_names["send"].replace("send", "pay")

    def office(self, root: Path, enforcement: str = "enforce", more: str = "") -> Guard:
        """Return the guard of a workspace whose policy denies amounts above 100."""
        (root / ".system").mkdir(exist_ok=True)
        text = _SETTINGS.format(enforcement=enforcement, pay=self.pay_name(), delegate=self.tool_names["delegate"])
        (root / ".system/deedbook.yaml").write_text(text + more, encoding="utf-8")
        return guard("crew", workspace=root)

    def rewriting(self, root: Path, output: Mapping[str, Any], enforcement: str = "enforce") -> Guard:
        """Return the guard of a workspace with a hook that replaces the arguments by *output*."""
        answer = json.dumps({"decision": "transform", "output": dict(output)})
        (root / "rewrite.py").write_text(f"import sys\nsys.stdin.read()\nprint({answer!r})\n", encoding="utf-8")
        return self.office(root, enforcement, _REWRITE.format(python=sys.executable, pay=self.pay_name()))

    # --- what is judged -----------------------------------------------------------------------------------------------

    @pytest.mark.usefixtures("visible")
    @pytest.mark.parametrize("asynchronous", [False, True], ids=["function", "coroutine"])
    @pytest.mark.parametrize("name", TOO_MUCH)
    def test_rule_sees_the_value_that_the_tool_would_get(
        self, tmp_path: Path, got: Got, name: str, asynchronous: bool
    ) -> None:
        """Neither text, nor spaces, nor a default that is left out hides an amount from a rule."""
        case = TOO_MUCH[name]
        governed = self.office(tmp_path)
        told = asyncio.run(self.run(self._payer(governed, got, case, asynchronous=asynchronous)))
        assert got.calls == []
        denied = [event.payload for event in self._recorded(governed) if event.type == "tool.denied"]
        if self.converts or name in ("a number", "a default", "a default factory"):
            assert "more than 100" in told
            assert len(denied) == 1

    @pytest.mark.usefixtures("visible")
    @pytest.mark.parametrize("way", ["stream", "team", "parallel", "sync"])
    def test_no_way_of_running_hides_a_value_from_a_rule(self, tmp_path: Path, got: Got, way: str) -> None:
        """Streamed, by another agent, many at once, and without a coroutine: each sees the value that is used."""
        governed = self.office(tmp_path)
        sent: list[Mapping[str, Any]] = [{"amount": "500"}, {}, {"amount": "50"}, {"amount": 500}]
        turns = [[("pay", each) for each in sent * (10 if way == "parallel" else 1)]]
        tools = {"pay": got.spying(pay_amount, asynchronous=way != "sync")}
        self._run_by(way, governed, tools, turns)
        ran = 10 if way == "parallel" else 1
        assert got.calls == [{"amount": 50}] * (ran if self.converts else len(got.calls))
        self._assert_recorded_is_used(governed, got)

    @pytest.mark.usefixtures("visible")
    def test_second_attempt_is_judged_with_its_own_values(self, tmp_path: Path, got: Got) -> None:
        """A call that was denied, or that a tool refused, gives no permission to the next one."""
        governed = self.office(tmp_path)
        turns = [[("pay", {"amount": each})] for each in ("50", "500", 60)]
        asyncio.run(self.run(self.agent(governed, {"pay": got.spying(pay_amount, asynchronous=True)}, turns)))
        assert got.calls == [{"amount": 50}, {"amount": 60}] if self.converts else {"amount": 500} not in got.calls
        self._assert_recorded_is_used(governed, got)

    @pytest.mark.usefixtures("visible")
    @pytest.mark.parametrize("asynchronous", [False, True], ids=["function", "coroutine"])
    @pytest.mark.parametrize("name", CASES)
    def test_recorded_arguments_are_those_that_the_tool_got(
        self, tmp_path: Path, got: Got, name: str, asynchronous: bool
    ) -> None:
        """The tool gets its own types, and the ledger has their JSON form, with defaults and without dropped keys."""
        case = CASES[name]
        governed = self.office(tmp_path)
        asyncio.run(self.run(self._payer(governed, got, case, asynchronous=asynchronous)))
        if self.converts and not case.refusable:
            assert len(got.calls) == 1
        if got.calls:
            assert self._intents(governed) == [argument_form(each) for each in got.calls]
        if self.makes_objects and got.calls:
            assert got.calls == [dict(case.used)]
            assert self._intents(governed) == [dict(case.recorded)]

    @pytest.mark.usefixtures("visible")
    def test_default_factory_is_called_once(self, tmp_path: Path, got: Got) -> None:
        """What it made is judged, recorded and used; it is not made again for the tool."""
        governed = self.office(tmp_path, "observe")
        asyncio.run(self.run(self._payer(governed, got, TOO_MUCH["a default factory"], asynchronous=False)))
        (used,) = got.calls
        assert self._intents(governed) == [used]

    @pytest.mark.usefixtures("visible")
    def test_parameter_that_the_framework_fills_in_is_not_judged(self, tmp_path: Path, got: Got) -> None:
        """Only the arguments of the model are recorded, also where the model names the parameter of the framework."""
        governed = self.office(tmp_path)
        try:
            name, function = self.injecting(got)
        except NotImplementedError:
            pytest.skip("the framework fills in no parameter of a tool")
        turns = [[("pay", {"amount": "50"})], [("pay", {"amount": "500", name: "forged"})]]
        asyncio.run(self.run(self.agent(governed, {"pay": function}, turns)))
        assert [each["amount"] for each in got.calls] == [50]
        assert got.calls[0][name] != "forged"
        assert self._intents(governed) == [{"amount": 50}]

    # --- what is used -------------------------------------------------------------------------------------------------

    @pytest.mark.usefixtures("visible")
    @pytest.mark.parametrize("amount", [999, 60])
    @pytest.mark.parametrize("enforcement", ["enforce", "observe"])
    def test_value_that_changes_behind_the_guard_is_found(
        self, tmp_path: Path, got: Got, enforcement: str, amount: int
    ) -> None:
        """A tool gets nothing that a rule denies; what it gets is recorded. Under ``observe`` it runs all the same."""
        governed = self.office(tmp_path, enforcement)
        tools = {"pay": got.spying(pay_amount, asynchronous=True)}
        try:
            agent = self.meddled(governed, tools, [[("pay", {"amount": 5})]], amount)
        except NotImplementedError:
            pytest.skip("nothing of the framework runs behind the guard")
        asyncio.run(self.run(agent))
        if enforcement == "observe":
            assert got.calls == [{"amount": amount}]
        else:
            assert got.calls in ([], [{"amount": 60}])
        self._assert_recorded_is_used(governed, got)

    @pytest.mark.usefixtures("visible")
    def test_arguments_that_a_hook_rewrote_reach_the_tool_in_its_own_types(self, tmp_path: Path, got: Got) -> None:
        """They pass the framework's own schema again, and the ledger has what the hook made of them."""
        governed = self.rewriting(tmp_path, {"day": "2026-02-03", "amount": 7})
        case = Case(pay_on, {"day": "2026-01-02"}, {}, {})
        asyncio.run(self.run(self._payer(governed, got, case, asynchronous=True)))
        assert got.calls == [{"day": date(2026, 2, 3), "amount": 7}]
        assert self._intents(governed) == [{"day": "2026-02-03", "amount": 7}]

    @pytest.mark.usefixtures("visible")
    @pytest.mark.parametrize("output", [{"day": "never", "amount": 7}, {"amount": 7}, {"day": "2026-02-03", "x": 1}])
    def test_arguments_that_a_hook_rewrote_and_the_tool_cannot_take_stop_the_call(
        self, tmp_path: Path, got: Got, output: Mapping[str, Any]
    ) -> None:
        """The tool does not run with anything else than what is recorded."""
        governed = self.rewriting(tmp_path, output)
        case = Case(pay_on, {"day": "2026-01-02"}, {}, {})
        self._run_to_an_end(self._payer(governed, got, case, asynchronous=False))
        assert got.calls == []
        found = self._recorded(governed)
        assert [event.type for event in found if event.type == "tool.result"] == []

    # --- observing ----------------------------------------------------------------------------------------------------

    @pytest.mark.usefixtures("visible")
    @pytest.mark.parametrize("enforcement", ["observe", "enforce"])
    @pytest.mark.parametrize("name", CASES)
    def test_adopted_tool_accepts_what_its_framework_accepts(
        self, tmp_path: Path, got: Got, name: str, enforcement: str
    ) -> None:
        """The schema that ``deedbook adopt`` wrote is asked about the values after the framework's own validation."""
        framework = getattr(self, "framework", "")
        if not framework:
            pytest.skip("the adapter has no entry point for `deedbook adopt`")
        case = CASES[name]
        without = self._payer(self.office(tmp_path, "observe"), Got(), case, asynchronous=False)
        listed = find_adapter(framework)(self.framework_agent(without))
        root = tmp_path / "adopted"
        root.mkdir()
        write(root, plan(root, "crew", listed.tools)[0])
        source = root / ".system/deedbook.yaml"
        text = source.read_text(encoding="utf-8")
        assert "enforcement: observe" in text
        source.write_text(text.replace("enforcement: observe", f"enforcement: {enforcement}"), encoding="utf-8")
        governed = guard("crew", workspace=root)
        asyncio.run(self.run(self._payer(governed, got, case, asynchronous=False)))
        if self.converts and not case.refusable:
            assert len(got.calls) == 1
        self._assert_recorded_is_used(governed, got)
        assert [event.payload for event in self._recorded(governed) if event.type == "tool.denied"] == []

    # --- parts --------------------------------------------------------------------------------------------------------

    def _payer(self, governed: Guard, got: Got, case: Case, *, asynchronous: bool) -> Any:
        tools = {"pay": got.spying(case.function, asynchronous=asynchronous)}
        return self.agent(governed, tools, [[("pay", case.sent)]])

    def _run_by(self, way: str, governed: Guard, tools: Mapping[str, Any], turns: Sequence[Any]) -> None:
        if way == "team":
            asyncio.run(self.run(self.team(governed, tools, turns)))
        elif way == "stream":
            asyncio.run(self.stream(self.agent(governed, tools, turns)))
        elif way == "parallel":
            asyncio.run(self.run(self.agent(governed, tools, turns)))
        else:
            agent = self.agent(governed, tools, turns)
            try:
                self.run_sync(agent)
            except NotImplementedError:
                pytest.skip("the framework has coroutines only")

    def _run_to_an_end(self, agent: Any) -> None:
        """Run an agent whose call cannot be made: the framework may raise, or tell the model."""
        with suppress(Exception):  # each framework has its own
            asyncio.run(self.run(agent))

    def _recorded(self, governed: Guard) -> list[Any]:
        governed.close()
        assert_sound(governed.workspace)
        places = sorted((governed.workspace / ".deedbook/sessions").glob("*/.events.jsonl"))
        return list(itertools.chain.from_iterable(read(place) for place in places))

    def _intents(self, governed: Guard) -> list[Any]:
        """Return the recorded arguments of ``pay``."""
        name = f"crew/{self.pay_name()}"
        found = self._recorded(governed)
        return [e.payload["args"] for e in found if e.type == "tool.call" and e.payload["tool_name"] == name]

    def _assert_recorded_is_used(self, governed: Guard, got: Got) -> None:
        """Check that each run of the tool has a recorded call, or a note, with what it got."""
        found = self._recorded(governed)
        name = f"crew/{self.pay_name()}"
        stopped = {e.parent for e in found if e.type == "tool.error" and e.payload["outcome"] != "failed"}
        calls = [e for e in found if e.type == "tool.call" and e.payload["tool_name"] == name]
        notes = {e.parent: e.payload["said"] for e in found if e.payload.get("event") == CHANGED}
        recorded = [
            notes[e.span]["args"] if e.span in notes else e.payload["args"] for e in calls if e.span not in stopped
        ]
        assert sorted(map(_text, recorded)) == sorted(_text(argument_form(each)) for each in got.calls)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
