"""The CEL project's own cases, run by the engine as conditions configure it.

``cel_spec/README.md`` says where they come from and how they are stored.
"""

import json
import math
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from cel_expr_python import cel

from deedbook_policy_standard.direct import compile_direct
from deedbook_policy_standard.expressions import CONFIGURATION
from deedbook_policy_standard.syntax import tree

FILE = Path(__file__).parent / "cel_spec" / "cases.json"
_UNCHECKED = "without the check, the engine does not look up a qualified name; conditions are always checked"
_NO_INSERT = "the engine has the macro and not the function behind it; conditions with it are refused"
_TRIPLE = "the engine reads a quote in a literal of three quotes with a backslash before it"
KNOWN = {
    "fields/qualified_identifier_resolution/map_value_repeat_key_heterogeneous": "equal keys of two types are kept",
    "fields/qualified_identifier_resolution/qualified_identifier_resolution_unchecked": _UNCHECKED,
    "namespace/namespace/self_eval_container_lookup_unchecked": _UNCHECKED,
    "parse/bytes_literals/triple_double_quoted_unescaped_punctuation": _TRIPLE,
    "parse/bytes_literals/triple_single_quoted_unescaped_punctuation": _TRIPLE,
    "macros2/transformMap/empty": _NO_INSERT,
    "macros2/transformMap/empty_filter": _NO_INSERT,
    "macros2/transformMap/one": _NO_INSERT,
    "macros2/transformMap/one_filter": _NO_INSERT,
    "macros2/transformMap/many": _NO_INSERT,
    "macros2/transformMap/many_filter": _NO_INSERT,
}
"""The known failures of cel-expr-python 0.1.3, and why."""


def cel_type(name):
    if isinstance(name, list):
        parts = [cel_type(part) for part in name[1:]]
        return cel.Type.List(*parts) if name[0] == "list" else cel.Type.Map(*parts)
    return cel.Type.NULL if name == "null_type" else getattr(cel.Type, name.upper())


def value_of(stored):
    kind, value = stored
    if kind == "list":
        return [value_of(each) for each in value]
    if kind == "map":
        return {value_of(key): value_of(each) for key, each in value}
    makers = {"bytes": bytes.fromhex, "double": float, "timestamp": datetime.fromisoformat, "duration": duration}
    return makers.get(kind, lambda plain: plain)(value)


def duration(text):
    return timedelta(seconds=float(text.removesuffix("s")))


def is_equal(found, stored):
    kind, value = stored
    if kind == "type":
        return found.type() == cel.Type.TYPE and found.value() == cel_type(value)
    if kind == "list":
        inner = found.value()
        return len(inner) == len(value) and all(map(is_equal, inner, value))
    if kind == "map":
        inner = found.value()
        return len(inner) == len(value) and all(is_equal(inner[value_of(key)], each) for key, each in value)
    plain, expected = found.value(), value_of(stored)
    if kind == "double" and math.isnan(expected):
        return math.isnan(plain)
    if kind == "bytes":
        return isinstance(plain, bytearray) and bytes(plain) == expected
    return type(plain) is type(expected) and plain == expected


@cache
def environment(types, container):
    variables = {name: cel_type(kind) for name, kind in json.loads(types).items()}
    return cel.NewEnv(config=cel.NewEnvConfigFromYaml(CONFIGURATION), variables=variables, container=container)


def fault(case):
    """Return why the engine does not agree with a case; ``None``: it does."""
    env = environment(json.dumps(case.get("types", {})), case.get("container", ""))
    try:
        compiled = env.compile(case["expr"], disable_check=not case.get("check", True))
        if "type" in case and compiled.return_type() != cel_type(case["type"]):
            return f"type {compiled.return_type()!r}"
        if case.get("check_only"):
            return None
        values = {name: value_of(each) for name, each in case.get("values", {}).items()}
        if case.get("check", True) and (wrong := direct_fault(case, compiled, values)):
            return wrong
        found = compiled.eval(env.Activation(values))
    except Exception as problem:
        return None if "error" in case else str(problem).split("\n")[0]
    if found.type() == cel.Type.ERROR or "error" in case:
        return None if found.type() == cel.Type.ERROR and "error" in case else f"{found.type()!r} {found.value()}"
    return None if is_equal(found, case["result"]) else f"{found.type()!r} {found.value()!r:.200}"


def direct_fault(case, compiled, values):
    """Return what a condition without the engine gets wrong; where it gives no answer, the engine is asked."""
    direct = compile_direct(tree(compiled.serialize()))
    answer = direct(values.__getitem__) if direct else None
    if answer is None or case.get("result") == ["bool", answer]:
        return None
    return f"without the engine it is {answer}"


def test_the_engine_agrees_with_the_specification_but_for_the_known_failures():
    cases = json.loads(FILE.read_text())["cases"]
    faults = {name: why for name, case in cases.items() if (why := fault(case)) is not None}
    assert len(cases) == 1_565
    assert {name: why for name, why in faults.items() if name not in KNOWN} == {}, "these fail"
    assert sorted(KNOWN.keys() - faults.keys()) == [], "these pass, or are gone: take them from the list"
