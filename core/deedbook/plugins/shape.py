"""Check the class of a plugin: its `spec`, its constructor, and the methods that its kind needs.

The class is compared with `contracts` by inspection only: nothing is constructed and nothing is called. A type checker
in the plugin's own tests finds more; this check finds a wrong class before the first call that it should deny.
"""

import inspect
import re
from abc import ABCMeta
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, get_args

import attrs

from deedbook.contract import Effects, EventType, Files, GateSpec, HandlerSpec, Subject
from deedbook.contract.features import FeatureSpec
from deedbook.contract.lifecycle import Lifecycle
from deedbook.contract.pointers import MEMBER_POINTER
from deedbook.format.families import LAYERS
from deedbook.format.lint import suggest

_CALLED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "tool": ("self", "args", "ctx"),
        "provider": ("self", "args", "ctx"),
        "flow": ("self", "args", "ctx"),
        "policy": ("self", "call"),
        "skill": ("self",),
    }
)
"""Kind of plugin, and the arguments of its objects."""
_CHECKS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "check": ("body", "abilities"),
        "reads": ("body",),
        "lint": ("body", "abilities"),
        "reachable": ("body", "abilities"),
    }
)
"""The methods of `PolicyChecks`, and their arguments."""
_EVENTS: Final[Mapping[str, Any]] = MappingProxyType(
    {name: method for name, method in vars(Lifecycle).items() if hasattr(method, "deedbook_spec")}
)
_WORDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"effects": get_args(Effects), "files": get_args(Files)}
)
_SUBJECT_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9_-]{0,63}")
_IS_POINTER: Final = re.compile(MEMBER_POINTER).fullmatch
_ANSWERS: Final = frozenset({"allow", "advisory", "ask", "deny"})
_NEEDED: Final = frozenset({"allow", "deny"})
_GIVES: Final = "write the JSON Schema of its results, or gives={} if only the YAML of an ability can say what they are"
_ORDER_MARKS: Final = ("hookwrapper", "wrapper", "tryfirst", "trylast", "optionalhook")


def find_misfits(kind: str, made: Any) -> Iterator[str]:
    """Yield why *made* is not a plugin of *kind*, as texts for its author; nothing if it is one."""
    if not inspect.isclass(made):
        yield f"it is {type(made).__name__}, not a class"
        return
    if kind == "feature":  # its methods are checked against the hooks when it is constructed
        yield from _feature_problems(made)
        return
    wanted = HandlerSpec if kind in ("tool", "provider", "flow") else GateSpec
    spec = inspect.getattr_static(made, "spec", None)
    if _is_read_otherwise(made):
        yield "its metaclass changes how it is read or called; a plugin is a plain class"
    if type(spec) is wanted:
        yield from _spec_problems(spec, silent=kind != "tool")
        yield from _tier_problems(spec)
    else:
        yield f"its `spec` is {type(spec).__name__}, not a {wanted.__name__}"
    yield from _argument_problems(made, made.__name__, ("settings", "host"))
    if kind == "hook":
        yield from _hook_problems(made)
    elif kind == "policy" and type(spec) is GateSpec:
        yield from _policy_problems(made, spec)
    else:
        yield from _method_problems(made, "__call__", _CALLED[kind], plain=kind == "policy")
        if kind in ("tool", "provider", "flow") and _yields(made):
            yield "`__call__` is a generator; return the whole result, and show what comes before with `ctx.progress`"
    if kind == "policy":
        yield from _check_problems(made)
    if getattr(spec, "reconciles", None) is True:
        yield from _method_problems(made, "reconcile", ("self", "args", "idempotency_key"), plain=True)


def _feature_problems(made: type[Any]) -> Iterator[str]:
    spec = inspect.getattr_static(made, "spec", None)
    if spec is None:
        return
    if type(spec) is FeatureSpec:
        yield from _spec_problems(spec, silent=True)
    else:
        yield f"its `spec` is {type(spec).__name__}, not a {FeatureSpec.__name__}"


def _policy_problems(made: type[Any], spec: GateSpec) -> Iterator[str]:
    """Check what a kind judges: calls with `__call__`, subjects with `decide`."""
    if not isinstance(spec.subjects, Mapping) or not all(type(each) is Subject for each in spec.subjects.values()):
        yield "`spec.subjects` does not map names of subjects to Subject"
        return
    for name, subject in spec.subjects.items():
        yield from _subject_problems(name, subject)
    if not spec.calls and not spec.subjects:
        yield "it judges nothing: `spec.calls` is False, and `spec.subjects` is empty"
    if spec.calls:
        yield from _method_problems(made, "__call__", _CALLED["policy"], plain=True)
    if spec.subjects:
        yield from _method_problems(made, "decide", ("self", "case"), plain=True)


def _subject_problems(name: Any, subject: Subject) -> Iterator[str]:
    if type(name) is not str or not _SUBJECT_NAME.fullmatch(name):
        yield f"`spec.subjects` has the name {name!r}; a name is letters, digits, dash and underscore"
    if not isinstance(subject.schema, Mapping):
        yield f"`spec.subjects[{name!r}].schema` is {type(subject.schema).__name__}, not a JSON Schema"
    answers = subject.answers
    if not isinstance(answers, frozenset) or not _NEEDED <= answers <= _ANSWERS:
        may = ", ".join(sorted(_ANSWERS))
        yield f"`spec.subjects[{name!r}].answers` is not a frozenset of {may}, with allow and deny among them"


def _check_problems(made: type[Any]) -> Iterator[str]:
    for name, wanted in _CHECKS.items():
        method = inspect.getattr_static(made, name, None)
        if isinstance(method, staticmethod | classmethod):
            yield from _argument_problems(getattr(made, name), name, wanted)
        elif method is not None:
            yield f"`{name}` must be a static or a class method: it is called for a policy before one is constructed"


def _is_read_otherwise(made: type[Any]) -> bool:
    """Return whether attribute access on the class gives something else than its content."""
    meta = type(made)
    marks = ("__getattribute__", "__call__", "__instancecheck__", "__subclasscheck__")
    usual = (type, type(Protocol), ABCMeta)
    own = [base for base in meta.__mro__ if base not in (*usual, object)]
    return any(name in vars(base) for base in own for name in (*marks, "spec"))


def _spec_problems(spec: Any, *, silent: bool) -> Iterator[str]:
    """Check the values of a `spec` against its annotations.

    A *silent* spec may leave out ``gives``, because another contract checks the result.
    """
    for field in attrs.fields(type(spec)):
        value = getattr(spec, field.name)
        if field.type is bool and type(value) is not bool:
            yield f"`spec.{field.name}` is {type(value).__name__}, not True or False"
        elif field.name == "gives" and value is None:
            if not silent:
                yield f"`spec.gives` is missing; {_GIVES}"
        elif field.name in ("settings", "takes", "gives") and not isinstance(value, Mapping):
            yield f"`spec.{field.name}` is {type(value).__name__}, not a JSON Schema"
        elif field.name == "records":
            yield from _record_problems(value)
        elif field.name == "reads" and not (isinstance(value, frozenset) and all(type(fact) is str for fact in value)):
            yield "`spec.reads` is not a frozenset of names of facts"
        elif field.name in ("check", "check_skill") and not (value is None or callable(value)):
            yield f"`spec.{field.name}` is {type(value).__name__}, not a function of what YAML declares"
        elif field.name in _WORDS and not (value in _WORDS[field.name] or (value is None and field.name == "files")):
            yield f"`spec.{field.name}` is {value!r}, not one of {', '.join(_WORDS[field.name])}"


def _tier_problems(spec: Any) -> Iterator[str]:
    tiers = getattr(spec, "tiers", None)
    if tiers is not None and not (type(tiers) is str and _IS_POINTER(tiers)):
        yield f"`spec.tiers` is {tiers!r}, not a JSON pointer such as /models"


def _record_problems(value: Any) -> Iterator[str]:
    if not isinstance(value, Mapping) or not all(type(row) is EventType for row in value.values()):
        yield "`spec.records` does not map names of event types to EventType"
        return
    for name, row in value.items():
        if not isinstance(row.schema, Mapping) or not isinstance(row.text, str):
            yield f"`spec.records[{name!r}]` needs a JSON Schema, and a text"
        elif row.layer and row.layer not in LAYERS:
            yield f"`spec.records[{name!r}].layer` is {row.layer!r}, not one of {', '.join(LAYERS)}"


def _method_problems(made: type[Any], name: str, wanted: tuple[str, ...], *, plain: bool) -> Iterator[str]:
    # not `getattr`, which finds what every class has, `type.__call__`
    method = next((vars(base)[name] for base in made.__mro__ if name in vars(base)), None)
    if method is None:
        yield f"it has no method `{name}`"
        return
    yield from _argument_problems(method, name, wanted)
    if plain and not _is_plain(method):
        yield f"`{name}` must be a plain function, neither async nor a generator"


def _yields(made: type[Any]) -> bool:
    method = inspect.getattr_static(made, "__call__", None)
    return inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method)


def _is_plain(function: Any) -> bool:
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return not any(is_kind(function) for is_kind in kinds)


def _argument_problems(function: Any, name: str, wanted: tuple[str, ...]) -> Iterator[str]:
    """Positional arguments are counted, not named: a tool may call its arguments as it likes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        yield f"the signature of `{name}` cannot be read"
        return
    try:
        signature.bind(*wanted)
    except TypeError:
        yield f"`{name}{signature}` should take ({', '.join(wanted)})"


def _hook_problems(made: type[Any]) -> Iterator[str]:
    """Compare each implementation with its specification: pluggy accepts fewer arguments, and ordering marks."""
    answers: dict[str, str] = {}
    for name, method in inspect.getmembers(made, inspect.isroutine):
        marks = getattr(method, "deedbook_impl", None)
        if marks is None:
            continue
        event = marks.get("specname") or name
        if event not in _EVENTS:
            yield f"`{name}` answers no event of the life cycle{suggest(event, _EVENTS)}"
            continue
        yield from _implementation_problems(name, method, _EVENTS[event])
        if any(marks.get(mark) for mark in _ORDER_MARKS):
            yield f"`{name}` is marked as a wrapper, or with an order; priority stands in YAML"
        if event in answers:
            yield f"`{answers[event]}` and `{name}` both answer {event}; only one may"
        answers[event] = name
    if not answers:
        yield "it answers no event of the life cycle; mark its methods with @hookimpl"


def _implementation_problems(name: str, method: Any, specification: Any) -> Iterator[str]:
    wanted = list(inspect.signature(specification).parameters)
    signature = inspect.signature(method)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    spread = kinds - {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    if list(signature.parameters) != wanted or spread:
        yield f"`{name}{signature}` should take ({', '.join(wanted)})"
    if not _is_plain(method):
        yield f"`{name}` must be a plain function, neither async nor a generator: hooks are asked inline"
