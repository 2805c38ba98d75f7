"""What is judged and recorded about the arguments of a tool is what the tool gets."""

import asyncio
import functools
import json
import os
import threading
from collections import OrderedDict, namedtuple
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, StrEnum
from fractions import Fraction
from types import MappingProxyType

import pytest
from commandline import Place, until
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format import canonical
from deedbook.format.errors import BindingError
from deedbook.format.reader import read
from deedbook_guard import CallDenied, completions, guard
from deedbook_guard.copies import copy_argument

WAIT = 30
"""How many seconds a test waits for another thread or process; then it fails."""
WORKSPACE = """
schema_version: v1
agents:
  shop:
    kind: program
    unknown_tools: allow
    tools: {pay: {effects: write}, ask: {effects: write}}
policies:
  baseline:
    kind: rules
    rules:
      - {match: {abilities: [shop/ask]}, then: ask}
      - {match: {args: {/amount: {min: 101}}}, then: deny, reason: more than 100}
    default: allow
"""
STOP = """
#!/bin/sh
echo > begun
read line < go
echo '{"decision":"allow"}'
"""


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "workspace")


@pytest.fixture
def opened(place):
    """Give a function that opens the guard of the workspace, with more YAML."""
    made = []

    def open_guard(more="", **how):
        place.system("deedbook.yaml", WORKSPACE + more)
        made.append(guard("shop", workspace=place.path, **how))
        return made[-1]

    yield open_guard
    for each in made:
        each.close()
    place.here("verify", status=0)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Give a guard of the workspace for tests that need no other."""
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


def recorded(governed):
    """Return what was recorded of the calls of the conversation: type and payload."""
    place = governed.workspace / ".deedbook/sessions" / governed.current.id
    return [(event.type, event.payload) for event in read(place) if event.type.startswith("tool.")]


def judged(governed):
    """Return the arguments of all calls that ran."""
    return [payload["args"] for kind, payload in recorded(governed) if kind == "tool.call"]


@pytest.fixture
def stopped(place, opened):
    """Give a guard whose hook waits while a call is judged, and a context manager that acts meanwhile."""
    script = place.system("hooks/stop.sh", STOP.lstrip())
    hook = f"hooks: {{stop: {{event_type: PreToolUse, handler: {{script: [/bin/sh, .system/hooks/{script.name}]}}"
    governed = opened(f"{hook}, match: {{kind: [tool, model]}}, timeout_ms: 30000}}}}\n")
    for name in ("begun", "go"):
        os.mkfifo(place.path / name)

    @contextmanager
    def meanwhile(act):
        def run():
            (place.path / "begun").read_text()
            act()
            (place.path / "go").write_text("\n")

        thread = threading.Thread(target=run)
        thread.start()
        yield
        thread.join(WAIT)
        assert not thread.is_alive()

    return governed, meanwhile


@dataclass
class Payment:
    amount: int
    to: dict = field(default_factory=dict)


class Model:
    """A model of a framework, as far as `guard` knows one."""

    def __init__(self, amount):
        self.amount = amount

    def model_dump(self, mode):
        return {"amount": self.amount}


class Account:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"the account of {self.name}"


# --- what changes while a call is judged ------------------------------------------------------------------------------


def test_plain_values_changed_while_a_person_decides_are_not_used(place, opened, tmp_path, monkeypatch):
    """The person approves "1 to ada"; the program, or another thread of it, writes a million to mallory meanwhile."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    place.system("deedbook.yaml", WORKSPACE)
    place.here("keys", "new", "ada", "--out", ".system/ada.pub", status=0)
    governed, paid = opened("principals: {ada: {key: ada.pub, roles: [approver]}}\n", wait=WAIT), []
    order = {"to": [{"name": "ada"}], "amount": 1}

    def approve():
        until(lambda: "waiting" in place.here("approvals", "list").out)
        order["to"][0]["name"], order["amount"] = "mallory", 1_000_000
        place.here("approvals", "approve", place.request(), "--as", "ada", status=0)

    person = threading.Thread(target=approve)
    person.start()
    governed.call("ask", {"order": order}, paid.append)
    person.join(WAIT)
    assert paid == [{"order": {"to": [{"name": "ada"}], "amount": 1}}] == judged(governed)


@pytest.mark.parametrize("form", ["call", "acall", "tool", "async tool", "before", "abefore"])
def test_every_form_of_a_call_uses_the_values_that_were_judged(stopped, form):
    governed, meanwhile = stopped
    paid, order = [], {"lines": [{"to": "ada", "amount": 1}], "pair": (1, [2]), "set": {1}}

    @governed.tool(name="pay")
    def pay(order):
        paid.append(order)

    @governed.tool(name="pay")
    async def apay(order):
        paid.append(order)

    def take(permit):
        paid.append(permit.args["order"])
        permit.conversation.after(permit, None)

    def change():
        order["lines"][0].update(to="mallory", amount=1_000_000)
        order["lines"].append({"to": "mallory", "amount": 5})
        order["pair"][1].append(3)
        order["set"].add(2)

    async def run():
        await governed.acall("pay", {"order": order}, lambda args: paid.append(args["order"]))

    with meanwhile(change):
        match form:
            case "call":
                governed.call("pay", {"order": order}, lambda args: paid.append(args["order"]))
            case "acall":
                asyncio.run(run())
            case "tool":
                pay(order)
            case "async tool":
                asyncio.run(apay(order))
            case "before":
                take(governed.current.before("pay", {"order": order}))
            case "abefore":
                take(asyncio.run(governed.current.abefore("pay", {"order": order})))
    assert paid == [{"lines": [{"to": "ada", "amount": 1}], "pair": (1, [2]), "set": {1}}]
    assert judged(governed) == [{"order": {"lines": [{"to": "ada", "amount": 1}], "pair": [1, [2]], "set": [1]}}]


@pytest.mark.parametrize("make", [Payment, Model, lambda amount: MappingProxyType(CHANGING), lambda _: Account("ada")])
@pytest.mark.parametrize("inside", [False, True], ids=["itself", "inside a list"])
def test_object_that_changed_while_it_was_judged_is_found_and_the_tool_does_not_run(stopped, make, inside):
    governed, meanwhile = stopped
    CHANGING.update(amount=1)
    value = make(1)

    def change():
        CHANGING.update(amount=1_000_000)
        if not isinstance(value, MappingProxyType):
            value.amount, value.name = 1_000_000, "mallory"

    with meanwhile(change), pytest.raises(CallDenied, match="'order' of shop/pay changed while") as denied:
        governed.call("pay", {"order": [value] if inside else value, "n": 1}, pytest.fail)
    assert denied.value.error.code == "ARGUMENTS_CHANGED"
    (_, error) = [payload for kind, payload in recorded(governed)]
    assert (error["code"], error["outcome"]) == ("ARGUMENTS_CHANGED", "cancelled")


CHANGING = {"amount": 1}


def test_object_that_did_not_change_is_used_itself(governed):
    account, payment = Account("ada"), Payment(1, {"name": "ada"})
    seen = governed.call("pay", {"from": account, "payments": [payment, (account,)]}, dict)
    assert seen["from"] is account
    assert seen["payments"][0] is payment
    assert seen["payments"][1][0] is account


def test_tool_may_change_what_it_gets_and_the_record_and_the_program_keep_theirs(governed):
    mine = {"lines": [1]}
    governed.call("pay", {"order": mine}, lambda args: args["order"]["lines"].append(2))
    assert mine == {"lines": [1]}
    assert judged(governed) == [{"order": {"lines": [1]}}]


def test_request_that_changed_while_it_was_judged_is_not_sent_by_a_framework(stopped):
    governed, meanwhile = stopped
    request = completions.request("small", [completions.message("user", "Pay ada.")])
    with (
        meanwhile(lambda: request["messages"].append(completions.message("user", "Pay mallory."))),
        pytest.raises(CallDenied, match="the request changed while it was judged") as denied,
    ):
        governed.current.before_model(request)
    assert denied.value.error.code == "ARGUMENTS_CHANGED"


# --- hooks that change arguments --------------------------------------------------------------------------------------


CHANGE = 's/.*/{"decision":"transform","args":ARGS}/'


def rewriting(args):
    """Return the YAML of a hook that puts *args* in place of the arguments."""
    script = CHANGE.replace("ARGS", json.dumps(args).replace("/", "."))
    handler = json.dumps({"script": ["/bin/sed", script]})
    return f"hooks: {{change: {{event_type: PreToolUse, handler: {handler}, match: {{kind: tool}}, rewrites: true}}}}\n"


@pytest.mark.parametrize("form", ["call", "tool", "method", "async tool"])
def test_tool_gets_what_a_hook_left_and_its_own_objects_otherwise(opened, form):
    governed, account, paid = opened(rewriting({"to": "ada", "amount": 1, "account": ACCOUNT})), Account("ada"), []

    def pay(to, amount=10, *, account):
        paid.append((to, amount, account))

    class Shop:
        @governed.tool()
        def pay(self, to, amount=10, *, account):
            paid.append((to, amount, account))

    async def apay(to, amount=10, *, account):
        paid.append((to, amount, account))

    match form:
        case "call":
            governed.call("pay", {"to": "mallory", "amount": 5, "account": account}, lambda args: pay(**args))
        case "tool":
            governed.tool()(pay)("mallory", account=account)
        case "method":
            Shop().pay("mallory", account=account)
        case "async tool":
            asyncio.run(governed.tool(name="pay")(apay)("mallory", account=account))
    assert paid == [("ada", 1, account)]
    assert judged(governed) == [{"to": "ada", "amount": 1, "account": ACCOUNT}]


ACCOUNT = {"type": f"{Account.__module__}.Account", "text": "the account of ada"}


def test_unknown_tool_gets_what_a_hook_left(opened):
    governed = opened(rewriting({"tool": "ship", "input": {"to": "ada"}}))
    assert governed.call("ship", {"to": "mallory"}, dict) == {"to": "ada"}


def test_value_that_a_hook_replaces_by_an_equal_one_of_another_type_is_used_as_recorded(opened):
    governed = opened(rewriting({"all": True, "some": 1}))
    assert governed.call("pay", {"all": 1, "some": 1.0}, lambda args: [type(each) for each in args.values()]) == [
        bool,
        float,
    ]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"to": "ada"}, "takes exactly to, amount, rest, more"),
        ({"to": "ada", "amount": 1, "rest": [], "more": {}, "limit": 5}, "takes exactly"),
        ({"to": "ada", "amount": 1, "rest": "abc", "more": {}}, "rest is no list"),
        ({"to": "ada", "amount": 1, "rest": [], "more": [1]}, "more is no object"),
    ],
)
def test_function_that_cannot_take_what_a_hook_left_does_not_run(opened, args, why):
    governed = opened(rewriting(args))

    @governed.tool()
    def pay(to, amount=1_000_000, *rest, **more):
        pytest.fail("it ran with other arguments than those that are recorded")

    with pytest.raises(CallDenied, match=why) as denied:
        pay("mallory")
    assert denied.value.error.code == "GATE_DENIED"
    assert [kind for kind, _ in recorded(governed)] == ["tool.call", "tool.error"]


# --- how functions take arguments -------------------------------------------------------------------------------------


def doubled(function):
    """Return a wrapper that passes everything on."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def reordered(function):
    """Return a wrapper with parameters of its own, which claims those of *function*."""

    @functools.wraps(function)
    def wrapper(amount, to):
        return function(to, amount)

    return wrapper


def pay(to, amount=5, *rest, note="", **more):
    """Return the arguments."""
    return [to, amount, list(rest), note, more]


def positional(to, /, amount, *, note="n", **more):
    """Return the arguments; *more* may have the name of the positional one."""
    return [to, amount, note, more]


class Caller:
    def __call__(self, to, amount=5):
        return [to, amount]

    def method(self, to, amount=5):
        return [to, amount]

    @classmethod
    def made(cls, to, amount=5):
        return [to, amount]

    @staticmethod
    def plain(to, amount=5):
        return [to, amount]


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "by_name"),
    [
        (pay, ("a",), {}, {"to": "a", "amount": 5, "rest": [], "note": "", "more": {}}),
        (pay, ("a", 1, 2, 3), {"x": 4}, {"to": "a", "amount": 1, "rest": [2, 3], "note": "", "more": {"x": 4}}),
        (positional, ("a", 1), {"to": "b"}, {"to": "a", "amount": 1, "note": "n", "more": {"to": "b"}}),
        (functools.partial(Caller.plain, "fixed"), (1,), {}, {"to": "fixed", "amount": 1}),
        (functools.partial(functools.partial(Caller.plain, "fixed"), amount=7), (), {}, {"to": "fixed", "amount": 7}),
        (functools.partial(Caller.plain, amount=7), ("a",), {"amount": 8}, {"to": "a", "amount": 8}),
        (Caller(), ("a",), {}, {"to": "a", "amount": 5}),
        (Caller().method, ("a",), {}, {"to": "a", "amount": 5}),
        (functools.partial(Caller().method, "fixed"), (), {}, {"to": "fixed", "amount": 5}),
        (Caller.made, ("a",), {}, {"to": "a", "amount": 5}),
        (Caller.plain, ("a",), {}, {"to": "a", "amount": 5}),
        (functools.lru_cache(Caller.plain), ("a",), {}, {"to": "a", "amount": 5}),
        (doubled(Caller.plain), ("a",), {}, {"to": "a", "amount": 5}),
        (reordered(Caller.plain), (1, "a"), {}, {"amount": 1, "to": "a"}),
    ],
)
def test_arguments_are_judged_by_name_as_the_function_gets_them(governed, function, args, kwargs, by_name):
    assert governed.tool(name="pay")(function)(*args, **kwargs) == function(*args, **kwargs)
    assert judged(governed) == [by_name]


def test_argument_that_a_partial_fixes_is_judged(governed):
    with pytest.raises(CallDenied, match="more than 100"):
        governed.tool(name="pay")(functools.partial(lambda amount, to: pytest.fail("it ran"), 500))("ada")


@pytest.mark.parametrize("name", ["self", "cls"])
def test_parameter_of_a_plain_function_is_judged_whatever_its_name(governed, name):
    functions = {
        "self": lambda self, amount=1: [self, amount],
        "cls": lambda cls, amount=1: [cls, amount],
    }
    assert governed.tool(name="pay")(functions[name])("ada") == ["ada", 1]
    assert governed.tool(name="pay")(functions[name])(**{name: "bob"}) == ["bob", 1]
    assert judged(governed) == [{name: "ada", "amount": 1}, {name: "bob", "amount": 1}]


def test_owner_of_a_method_is_no_argument_whatever_its_name(governed):
    """Only a call through the object or the class has an owner; a plain call of the function judges what it gets."""

    class Shop:
        @governed.tool(name="pay")
        def method(this, to):  # noqa: N805 - the name does not make it a method
            return [type(this), to]

        @classmethod
        @governed.tool(name="pay")
        def made(kind, to):  # noqa: N804 - as above
            return [kind, to]

        @staticmethod
        @governed.tool(name="pay")
        def plain(self, to):  # noqa: PLW0211 - as above
            return [self, to]

        @doubled
        @governed.tool(name="pay")
        def decorated(self, to):
            return [type(self), to]

    class Branch(Shop):
        pass

    branch = Branch()
    assert branch.method("a") == Shop.method(branch, "a") == [Branch, "a"]
    assert branch.made("b") == Branch.made("b") == [Branch, "b"]
    assert branch.plain("x", "c") == ["x", "c"]
    assert branch.decorated("d") == [Branch, "d"]
    assert judged(governed) == [{"to": "a"}] * 2 + [{"to": "b"}] * 2 + [{"self": "x", "to": "c"}, {"to": "d"}]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (classmethod(lambda cls: None), "write @classmethod above"),
        (staticmethod(lambda: None), "write @staticmethod above"),
        (max, "its parameters are not known"),
        (functools.partial(pay), "no name of its own"),
    ],
)
def test_function_that_cannot_be_governed_as_written_is_refused(governed, function, why):
    name = None if "name" in why else "pay"
    with pytest.raises(BindingError, match=why):
        governed.tool(name=name)(function)


# --- values that Python compares and shows in their own way -----------------------------------------------------------


class Number(int):
    """A number that looks small."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1

    def __int__(self):
        return 1

    __index__ = __int__

    def __str__(self):
        return "1"

    def __format__(self, _):
        return "1"


class Text(str):
    __slots__ = ()

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1

    def __str__(self):
        return "ada"

    def __format__(self, _):
        return "ada"


class Real(float):
    def __float__(self):
        return 1.0


class Dict(dict):
    def __getitem__(self, _):
        return "ada"

    def items(self):
        return [("to", "ada")]

    def __iter__(self):
        return iter(["to"])


class List(list):
    def __iter__(self):
        return iter(["ada"])

    def __getitem__(self, _):
        return "ada"


class Pair(tuple):
    __slots__ = ()

    def __iter__(self):
        return iter(["ada"])


Point = namedtuple("Point", "x y")  # noqa: PYI024 - as old code has them


class Crooked(Point):
    @property
    def x(self):
        return "ada"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Number(500), 500),
        (Text("mallory"), "mallory"),
        (Real(500.5), 500.5),
        (Dict(to="mallory"), {"to": "mallory"}),
        (List(["mallory"]), ["mallory"]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        ({Text("to"): Number(3)}, {"to": 3}),
        ({Number(2): 1}, {2: 1}),
        (Pair(("mallory",)), ("mallory",)),
        (Crooked("mallory", 1), ("mallory", 1)),
        ({Number(5)}, {5}),
        (frozenset({Text("mallory")}), frozenset({"mallory"})),
        ([{"deep": (Number(7),)}], [{"deep": (7,)}]),
    ],
)
def test_value_of_a_subclass_is_judged_and_used_as_the_plain_value(governed, value, plain):
    used = governed.call("pay", {"value": value}, lambda args: args["value"])

    def types(each):
        inner = [*each.keys(), *each.values()] if type(each) is dict else each
        return [type(each), *(map(types, inner) if isinstance(each, dict | list | tuple | set | frozenset) else ())]

    assert (used, types(used)) == (plain, types(plain))
    assert judged(governed) == [
        {"value": json.loads(json.dumps(sorted(plain) if isinstance(plain, set | frozenset) else plain))}
    ]


def test_named_tuple_stays_what_it_is(governed):
    assert governed.call("pay", {"at": Point(1, [2])}, lambda args: args["at"]) == Point(1, [2])


def test_rule_holds_for_the_number_that_the_tool_would_use(governed):
    for amount in (Number(500), Decimal(500), Decimal("500.5"), Real(500), Fraction(1001, 2)):
        with pytest.raises(CallDenied, match="more than 100"):
            governed.call("pay", {"amount": amount}, pytest.fail)


class Colour(StrEnum):
    RED = "red"


class Wrong(int, Enum):
    ONE = 1

    def __new__(cls, value):
        made = int.__new__(cls, value * 1_000_000)
        made._value_ = value
        return made


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1: "ada", "1": "mallory"}, "two keys of one object are '1'"),
        ([{"deep": {None: 1, "None": 2}}], "two keys"),
        (MappingProxyType({1: 1, "1": 2}), "two keys"),
        ({Account("ada"): 1}, "a key is Account"),
        (Decimal("1000.0000000000000000001"), "Decimal 1000.0000000000000000001 is no number"),
        (Fraction(1000, 3), "Fraction 1000/3 is no number"),
        (Decimal("NaN"), "Decimal NaN is no number"),
        (Decimal("1E+40000000"), "is no number"),
        (Wrong.ONE, "Wrong.ONE is 1000000 with the value 1"),
        (float("nan"), "nan"),
        (2**53, "2\\^53"),
        ("\ud800", "surrogate"),
    ],
)
def test_value_that_cannot_be_judged_as_it_is_used_is_refused_and_recorded(governed, value, why):
    with pytest.raises(CallDenied, match=why) as denied:
        governed.call("pay", {"value": value}, pytest.fail)
    assert denied.value.error.code == "INTAKE_REFUSED"
    assert [(kind, payload["code"]) for kind, payload in recorded(governed)] == [("tool.denied", "INTAKE_REFUSED")]


def bomb():
    made = [0]
    for _ in range(60):
        made = [made, made]
    return made


def loop():
    made = []
    made.append(made)
    return made


@pytest.mark.parametrize("make", [bomb, loop, lambda: list(range(200_000))], ids=["bomb", "loop", "large"])
def test_value_without_end_is_refused_at_once_as_an_argument_and_recorded_as_text_as_a_result(governed, make):
    value = make()
    with pytest.raises(CallDenied, match="more than"):
        governed.call("pay", {"value": value}, pytest.fail)
    assert governed.call("pay", {}, lambda _: value) is value
    (result,) = [payload["result"] for kind, payload in recorded(governed) if kind == "tool.result"]
    assert result["type"] == "builtins.list"
    assert "more than" in result["refused"]


def test_keys_that_are_no_text_are_judged_as_text_and_used_as_they_are(governed):
    given = {1: "a", (2, "b"): "c", Colour.RED: "d", None: "e", 1.5: "f"}
    assert governed.call("pay", {"value": given}, lambda args: args["value"]) == given
    assert judged(governed) == [{"value": {"1": "a", "(2, 'b')": "c", "red": "d", "None": "e", "1.5": "f"}}]


def test_texts_that_differ_after_what_is_recorded_are_different_calls(governed):
    """An approval of one is none of the other: the record has the hash of a long text."""
    for last in b"ab":
        governed.call("pay", {"file": b"\xff" * 5000 + bytes([last])}, dict)
    first, second = judged(governed)
    assert first["file"]["text"] == second["file"]["text"]
    assert first["file"]["sha256"] != second["file"]["sha256"]


def test_name_of_a_tool_is_read_once(governed):

    class Name(str):
        __slots__ = ()

        def __format__(self, _):
            return "other"

        def __hash__(self):
            return hash("other")

        def __eq__(self, other):
            return other == "other"

    assert governed.call(Name("pay"), {Text("to"): 1}, dict) == {"to": 1}
    (call,) = [payload for kind, payload in recorded(governed) if kind == "tool.call"]
    assert call == {"tool_name": "shop/pay", "args": {"to": 1}}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-1e6, 1e6)
    | st.text(max_size=5)
    | st.builds(Number, st.integers(0, 9))
    | st.builds(Text, st.text("ab", max_size=3))
    | st.just(Colour.RED),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(List)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3)
        | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3).map(Dict)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=12,
)


def containers(value):
    """Return the identities of all lists and objects in *value*."""
    if isinstance(value, dict):
        return {id(value)}.union(*map(containers, dict.values(value)))
    if isinstance(value, list | tuple):
        parts = list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value)
        return ({id(value)} if isinstance(value, list) else set()).union(*map(containers, parts))
    return set()


@given(VALUES)
def test_copy_is_judged_as_its_source_and_shares_nothing_that_can_change(value):
    made = copy_argument(value)
    assert copy_argument(made.value).json == made.json
    assert not made.shared
    assert not containers(value) & containers(made.value)
    assert canonical.decode(canonical.admit(made.json)) == made.json
