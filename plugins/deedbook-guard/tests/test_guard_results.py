"""The outcome that is recorded is the outcome: what acts after the tool returned is awaited, or refused."""

import asyncio
import functools
from collections.abc import Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest
from commandline import Place

from deedbook.format.errors import BindingError
from deedbook.format.reader import read
from deedbook_guard import ResultWithheld, guard

WORKSPACE = """
schema_version: v1
agents: {shop: {kind: program, tools: {pay: {effects: write}}}}
policies: {baseline: {kind: rules, rules: [], default: allow}}
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Give the guard of a workspace."""
    place = Place(tmp_path_factory.mktemp("shop"))
    place.system("deedbook.yaml", WORKSPACE)
    with guard("shop", workspace=place.path) as made:
        yield made
    place.here("verify", status=0)


@pytest.fixture
def governed(shop):
    """Give that guard with a conversation of its own."""
    with shop.conversation():
        yield shop


@pytest.fixture
def acts():
    """Give the list of what tools did."""
    return []


def outcomes(governed):
    """Return how the calls of the conversation ended: each intent, and each outcome with its result or end."""
    place = governed.workspace / ".deedbook/sessions" / governed.current.id
    found = [event for event in read(place) if event.type.startswith("tool.")]
    return [each.payload.get("outcome", each.payload.get("result", "begun")) for each in found]


class Coroutines:
    """A tool that is an object."""

    def __init__(self, acts):
        self.acts = acts

    async def __call__(self, to):
        await asyncio.sleep(0)
        self.acts.append(to)
        raise LookupError(to)


class Later:
    """An awaitable that is no coroutine."""

    def __init__(self, coroutine):
        self.coroutine = coroutine

    def __await__(self):
        return self.coroutine.__await__()


def passing(function):
    """Return a plain function that passes everything on, as decorators do."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tool: tool,
        lambda tool: functools.partial(tool, "ada"),
        lambda tool: tool.__call__,
        lambda tool: passing(tool.__call__),
        lambda tool: lambda to: Later(tool(to)),
        lambda tool: lambda to: asyncio.ensure_future(tool(to)),
    ],
    ids=["object", "partial", "method", "decorated", "awaitable", "task"],
)
def test_tool_that_has_to_be_awaited_is_recorded_when_it_was(governed, acts, wrap):
    """Its failure was recorded as a success, before it had begun."""
    tool = wrap(Coroutines(acts))
    args = () if isinstance(tool, functools.partial) else ("ada",)

    async def run():
        await governed.tool(name="pay")(tool)(*args)

    with pytest.raises(LookupError):
        asyncio.run(run())
    assert acts == ["ada"]
    assert outcomes(governed) == ["begun", "failed"]


def test_call_that_returns_a_coroutine_gives_one_with_the_result(governed, acts):
    async def pay(to):
        acts.append(to)
        return f"paid {to}"

    async def run():
        return await governed.call("pay", {"to": "ada"}, lambda args: pay(**args))

    assert asyncio.run(run()) == "paid ada"
    assert outcomes(governed) == ["begun", "paid ada"]


def test_result_that_is_never_awaited_is_unknown(shop):
    """Nothing ran, but nobody can know that: the call stays open until the conversation ends."""
    with shop.conversation() as conversation:
        left = conversation.call("pay", {}, lambda _: Later(None))
        assert outcomes(shop) == ["begun"]
    found = read(shop.workspace / ".deedbook/sessions" / conversation.id)
    assert [event.payload["outcome"] for event in found if event.type == "tool.error"] == ["unknown"]
    left.close()


def test_cancelled_task_that_awaits_a_result_closes_its_call(governed):
    async def run():
        begun = asyncio.Event()

        async def pay():
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(governed.call("pay", {}, lambda _: pay()))
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert outcomes(governed) == ["begun", "cancelled"]


@dataclass
class Answer:
    rows: Any


class Rows(Generator):
    """A generator of its own class."""

    def send(self, _):
        raise StopIteration

    def throw(self, *_):
        raise StopIteration


def later(acts):
    acts.append("acted")
    yield 1


async def alater(acts):
    acts.append("acted")
    yield 1


RESULTS = {
    "generator": later,
    "asynchronous generator": alater,
    "generator of its own class": lambda _: Rows(),
    "map": lambda acts: map(acts.append, "a"),
    "chain": lambda acts: chain(later(acts)),
    "context manager": contextmanager(later),
    "asynchronous context manager": asynccontextmanager(alater),
    "inside a list": lambda acts: [1, {"rows": later(acts)}],
    "inside a dataclass": lambda acts: Answer(later(acts)),
    "coroutine inside a tuple": lambda acts: (Coroutines(acts)("ada"),),
}


@pytest.mark.parametrize("make", RESULTS.values(), ids=RESULTS)
@pytest.mark.parametrize("form", ["call", "acall", "after", "tool", "async tool"])
def test_result_that_acts_later_is_a_failure_of_the_tool(governed, acts, make, form):
    """The caller gets none of it, so nothing acts without a record; what it holds is closed."""

    async def atool():
        return make(acts)

    talk = governed.current
    forms = {
        "call": lambda: talk.call("pay", {}, lambda _: make(acts)),
        "acall": lambda: asyncio.run(talk.acall("pay", {}, lambda _: make(acts))),
        "after": lambda: talk.after(talk.before("pay", {}), make(acts)),
        "tool": governed.tool(name="pay")(lambda: make(acts)),
        "async tool": lambda: asyncio.run(governed.tool(name="pay")(atool)()),
    }
    with pytest.raises(ResultWithheld, match=r"cannot be recorded: a value of the type \w+ acts after") as held:
        forms[form]()
    assert held.value.error.code == "TOOL_ERROR"
    assert acts == []
    assert outcomes(governed) == ["begun", "failed"]


def test_object_whose_call_is_a_generator_is_refused(governed):
    class Tool:
        def __call__(self):
            yield 1

    for tool in (Tool(), functools.partial(Tool())):
        with pytest.raises(BindingError, match="a generator goes on after it returned"):
            governed.tool(name="pay")(tool)


def test_result_is_given_as_it_is_whatever_its_class(governed):
    """The program's own function returns what it always did; the record has its JSON form."""

    class Total(int):
        pass

    total, rows = Total(5), {1: "a", "1": "b"}
    assert governed.call("pay", {}, lambda _: total) is total
    assert governed.call("pay", {}, lambda _: rows) is rows
    first, second = (each for each in outcomes(governed) if each != "begun")
    assert first == 5
    assert "two keys of one object are '1'" in second["refused"]


def test_result_that_cannot_be_read_is_recorded_as_text(governed):
    class Broken(dict):
        @property
        def model_dump(self):
            raise OSError("no connection")

    @dataclass
    class Row:
        at: int

    row = Row(1)
    del row.at
    assert governed.call("pay", {}, lambda _: row) is row
    assert governed.call("pay", {}, lambda _: Broken()) == {}
    first, second = (each for each in outcomes(governed) if each != "begun")
    assert "it cannot be read: AttributeError" in first["refused"]
    assert second == {}
