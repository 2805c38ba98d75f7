"""What keeps a class from being a plugin is said when it is loaded, not at the first call that it should deny."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from cases import for_each

from deedbook.contract import ALLOW, Call, Decision, GateSpec, HandlerSpec, Host, Json, Object, Skill, hookimpl
from deedbook.plugins.shape import find_misfits
from deedbook_policy_standard.rules import Rules

ACTING = ["tool", "provider", "flow"]
NO_GIVES = (
    "`spec.gives` is missing; write the JSON Schema of its results, or gives={} if only the YAML of an ability can say "
    "what they are"
)


class Tool:
    """A class that every check likes, to be spoilt."""

    spec: Any = HandlerSpec(gives={"type": "object"})

    def __init__(self, settings: Object, host: Host) -> None: ...

    def __call__(self, args: Object, ctx: Any) -> Json:
        return None


class Policy(Tool):
    spec = GateSpec()

    def __call__(self, call: Call) -> Decision:  # type: ignore[override]
        return ALLOW


class Hook:
    spec: Any = GateSpec()

    def __init__(self, settings: Object, host: Host) -> None: ...

    @hookimpl
    def pre_tool_use(self, call: Call) -> Any:
        return ALLOW


class Loader(Tool):
    spec = GateSpec()

    def __call__(self) -> Iterator[Skill]:  # type: ignore[override]
        yield from ()


def problems(kind: str, base: Any, **members: Any) -> list[str]:
    return list(find_misfits(kind, type("Made", (base,), members)))


# --- what fits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "made"),
    [*((kind, Tool) for kind in ACTING), ("policy", Policy), ("policy", Rules), ("hook", Hook), ("skill", Loader)],
)
def test_class_that_is_what_its_kind_needs_has_no_problems(kind: str, made: Any) -> None:
    assert list(find_misfits(kind, made)) == []


def test_handler_may_be_asynchronous_and_name_its_arguments_as_it_likes() -> None:
    async def call(self: Any, request: Object, _: Any, *, retries: int = 3) -> Json:
        return None

    assert problems("provider", Tool, __call__=call) == []


def test_flow_that_keeps_a_context_gives_nothing() -> None:
    assert problems("flow", Tool, spec=HandlerSpec()) == []


def test_provider_need_not_say_what_it_gives_since_the_completion_contract_binds_it() -> None:
    assert problems("provider", Tool, spec=HandlerSpec()) == []


def test_class_may_be_made_by_attrs() -> None:
    @attrs.frozen
    class Made:
        settings: Object
        host: Host
        spec = HandlerSpec(gives=MappingProxyType({}), settings=MappingProxyType({}))

        def __call__(self, args: Object, ctx: Any) -> Json:
            return None

    assert list(find_misfits("tool", Made)) == []


def test_hook_may_inherit_its_answers_and_give_them_other_names() -> None:
    class Child(Hook):
        @hookimpl(specname="session_stop")
        def goodbye(self, session: str, ok: bool, now: str, facts: Object) -> None: ...

        def helper(self, anything: Any) -> None: ...

    assert list(find_misfits("hook", Child)) == []


# --- what does not ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [Tool({}, None), problems, None, "Tool"], ids=["object", "function", "none", "text"])
def test_what_is_no_class_is_refused(made: Any) -> None:
    assert list(find_misfits("tool", made)) == [f"it is {type(made).__name__}, not a class"]


@for_each(
    ("kind", "base", "spec", "says"),
    [
        ("tool", Tool, GateSpec(), "its `spec` is GateSpec, not a HandlerSpec"),
        ("policy", Policy, HandlerSpec(), "its `spec` is HandlerSpec, not a GateSpec"),
        ("hook", Hook, None, "its `spec` is NoneType, not a GateSpec"),
        ("tool", Tool, HandlerSpec, "its `spec` is type, not a HandlerSpec"),
        ("tool", Tool, property(lambda _: HandlerSpec()), "its `spec` is property, not a HandlerSpec"),
        (
            "tool",
            Tool,
            HandlerSpec(gives={}, effects="wriet"),
            "`spec.effects` is 'wriet', not one of none, read, write, irreversible",
        ),
        (
            "tool",
            Tool,
            HandlerSpec(gives={}, effects=[]),
            "`spec.effects` is [], not one of none, read, write, irreversible",
        ),
        ("tool", Tool, HandlerSpec(gives={}, interruptible=1), "`spec.interruptible` is int, not True or False"),
        ("tool", Tool, HandlerSpec(gives={}, takes="{}"), "`spec.takes` is str, not a JSON Schema"),
        ("tool", Tool, HandlerSpec(gives=[]), "`spec.gives` is list, not a JSON Schema"),
        ("tool", Tool, HandlerSpec(), NO_GIVES),
        ("tool", Tool, HandlerSpec(gives={}, settings=[]), "`spec.settings` is list, not a JSON Schema"),
        ("policy", Policy, GateSpec(pure="yes"), "`spec.pure` is str, not True or False"),
        ("hook", Hook, GateSpec(rewrites=None), "`spec.rewrites` is NoneType, not True or False"),
        ("hook", Hook, GateSpec(reads="session.calls"), "`spec.reads` is not a frozenset of names of facts"),
        ("hook", Hook, GateSpec(reads=["session.calls"]), "`spec.reads` is not a frozenset of names of facts"),
        ("hook", Hook, GateSpec(reads=frozenset({1})), "`spec.reads` is not a frozenset of names of facts"),
    ],
)
def test_spec_that_is_not_what_it_declares_to_be_is_refused(kind: str, base: Any, spec: Any, says: str) -> None:
    assert problems(kind, base, spec=spec) == [says]


def test_class_without_a_spec_is_refused() -> None:
    class Bare:
        def __init__(self, settings: Object, host: Host) -> None: ...

        def __call__(self, args: Object, ctx: Any) -> Json:
            return None

    assert list(find_misfits("tool", Bare)) == ["its `spec` is NoneType, not a HandlerSpec"]


def none(self: Any) -> None: ...
def one(self: Any, settings: Any) -> None: ...
def three(self: Any, settings: Any, host: Any, more: Any) -> None: ...
def named(self: Any, settings: Any, host: Any, *, more: Any) -> None: ...
def generous(self: Any, *args: Any, **more: Any) -> None: ...
def optional(self: Any, settings: Any, host: Any, more: Any = None) -> None: ...


@for_each("init", [none, one, three, named])
@for_each(("kind", "base"), [("tool", Tool), ("hook", Hook), ("policy", Policy), ("skill", Loader)])
def test_constructor_that_cannot_be_called_with_settings_and_host_is_refused(kind: str, base: Any, init: Any) -> None:
    (problem,) = problems(kind, base, __init__=init)
    assert problem.startswith("`Made(")
    assert problem.endswith(" should take (settings, host)")


@pytest.mark.parametrize("init", [generous, optional])
def test_constructor_may_take_more_that_is_optional(init: Any) -> None:
    assert problems("tool", Tool, __init__=init) == []


def test_class_without_a_constructor_is_refused() -> None:
    class Made:
        spec = HandlerSpec(gives={})

        def __call__(self, args: Object, ctx: Any) -> Json:
            return None

    assert list(find_misfits("tool", Made)) == ["`Made()` should take (settings, host)"]


@for_each("kind", ACTING)
@for_each("call", [none, one, three, named])
def test_handler_that_cannot_be_called_with_arguments_and_context_is_refused(kind: str, call: Any) -> None:
    (problem,) = problems(kind, Tool, __call__=call)
    assert problem.startswith("`__call__(")
    assert problem.endswith(" should take (self, args, ctx)")


@pytest.mark.parametrize("kind", [*ACTING, "policy", "skill"])
def test_class_whose_objects_cannot_be_called_is_refused(kind: str) -> None:
    class Made:
        spec = HandlerSpec(gives={}) if kind in ACTING else GateSpec()

        def __init__(self, settings: Object, host: Host) -> None: ...

    assert list(find_misfits(kind, Made)) == ["it has no method `__call__`"]


def test_policy_must_be_a_plain_function() -> None:
    async def later(self: Any, call: Call) -> Decision:
        return ALLOW

    def generating(self: Any, call: Call) -> Iterator[Decision]:
        yield ALLOW

    for call in (later, generating):
        assert problems("policy", Policy, __call__=call) == [
            "`__call__` must be a plain function, neither async nor a generator"
        ]


@pytest.mark.parametrize(
    ("reconcile", "says"),
    [
        (None, "it has no method `reconcile`"),
        (one, "`reconcile(self: Any, settings: Any) -> None` should take (self, args, idempotency_key)"),
    ],
)
def test_handler_that_reconciles_must_be_able_to(reconcile: Any, says: str) -> None:
    members = {"reconcile": reconcile} if reconcile else {}
    assert problems("tool", Tool, spec=HandlerSpec(gives={}, reconciles=True), **members) == [says]


def test_handler_that_reconciles_fits() -> None:
    def reconcile(self: Any, args: Object, idempotency_key: str) -> Json:
        return None

    assert problems("tool", Tool, spec=HandlerSpec(gives={}, reconciles=True), reconcile=reconcile) == []


# --- hooks ------------------------------------------------------------------------------------------------------------


def test_hook_without_a_marked_method_is_refused() -> None:
    def pre_tool_use(self: Any, call: Call) -> Decision:
        return ALLOW

    assert problems("hook", Hook, pre_tool_use=pre_tool_use) == [
        "it answers no event of the life cycle; mark its methods with @hookimpl"
    ]


def test_hook_of_an_event_that_there_is_not_is_refused_with_the_nearest() -> None:
    @hookimpl
    def pre_tool_user(self: Any, call: Call) -> Decision:
        return ALLOW

    assert problems("hook", Hook, pre_tool_user=pre_tool_user) == [
        '`pre_tool_user` answers no event of the life cycle; did you mean "pre_tool_use"?'
    ]


def fewer(self: Any) -> Any: ...
def more(self: Any, call: Call, cache: Any = None) -> Any: ...
def renamed(self: Any, the_call: Call) -> Any: ...
def spread(self: Any, *call: Call) -> Any: ...
def keyword(self: Any, *, call: Call) -> Any: ...


@pytest.mark.parametrize("method", [fewer, more, renamed, spread, keyword])
def test_hook_whose_arguments_are_not_exactly_those_of_the_event_is_refused(method: Any) -> None:
    (problem,) = problems("hook", Hook, pre_tool_use=hookimpl(method))
    assert problem.startswith("`pre_tool_use(")
    assert problem.endswith(" should take (self, call)")


@pytest.mark.parametrize("mark", ["hookwrapper", "wrapper", "tryfirst", "trylast", "optionalhook"])
def test_hook_that_is_a_wrapper_or_has_an_order_of_its_own_is_refused(mark: str) -> None:
    def pre_tool_use(self: Any, call: Call) -> Any:
        yield

    found = problems("hook", Hook, pre_tool_use=hookimpl(**{mark: True})(pre_tool_use))
    assert "`pre_tool_use` is marked as a wrapper, or with an order; priority stands in YAML" in found


def test_hook_must_be_a_plain_function() -> None:
    async def pre_tool_use(self: Any, call: Call) -> Any:
        return ALLOW

    assert problems("hook", Hook, pre_tool_use=hookimpl(pre_tool_use)) == [
        "`pre_tool_use` must be a plain function, neither async nor a generator: hooks are asked inline"
    ]


def test_hook_that_answers_an_event_twice_is_refused() -> None:
    @hookimpl(specname="pre_tool_use")
    def again(self: Any, call: Call) -> Any:
        return ALLOW

    assert problems("hook", Hook, again=again) == ["`again` and `pre_tool_use` both answer pre_tool_use; only one may"]


def test_all_problems_of_a_class_are_told_at_once() -> None:
    found = problems("tool", Tool, spec=None, __init__=one, __call__=none)
    assert [problem.split(" ", 1)[0] for problem in found] == ["its", "`Made(settings:", "`__call__(self:"]
