"""Schema validation alone: the kernel's own schemas (fastjsonschema) and those from outside (jsonschema-rs).

Both libraries check the same values against the same schemas, bare and as Deedbook uses them: a validator says whether
a value fits, and only for one that does not it says what is wrong. The large values are those of ``hashing``.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import attrs
import fastjsonschema
import jsonschema_rs

from benchmarks.hashing import payload
from benchmarks.measures import Line, Value
from benchmarks.rounds import Plan, Work
from benchmarks.workspaces import ARGS
from deedbook.format import canonical
from deedbook.format.schema import Schemas, Validator, foreign

_RECORDS: Final = 90


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


_TEXT: Final = {"type": "string", "maxLength": 1000}
_SMALL: Final = _object({"text": _TEXT})
_RECORD: Final = _object(
    {
        "id": {"type": "string", "pattern": "^doc-[0-9]{6}$"},
        "title": _TEXT,
        "score": {"type": "number", "minimum": 0},
        "size": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": _TEXT, "maxItems": 10},
        "owner": _object({"name": _TEXT, "active": {"type": "boolean"}, "parent": {"type": ["object", "null"]}}),
    }
)
_LARGE: Final = _object(
    {
        "tool_name": _TEXT,
        "args": _object(
            {
                "query": _TEXT,
                "limit": {"type": "integer", "minimum": 1},
                "score": {"type": "number"},
                "exact": {"type": "boolean"},
            }
        ),
        "result": {"type": "array", "items": _RECORD},
        "note": {"type": ["string", "null"]},
        "cursor": _TEXT,
    }
)


@attrs.frozen
class _Case:
    """A schema, a value that fits, and one that does not, which shows only at its end."""

    schema: dict[str, Any]
    fits: Any
    fails: Any


def run(plan: Plan) -> Iterator[Line]:
    """Measure both libraries with a small and a large value, one that fits and one that does not."""
    large = payload(_RECORDS)
    wrong = deepcopy(large)
    wrong["result"][-1]["owner"]["active"] = "yes"
    cases = {"75 B": _Case(_SMALL, ARGS, {"text": 1}), "18 KB": _Case(_LARGE, large, wrong)}
    for size, case in cases.items():
        yield from _measured(plan, size, case)


def _measured(plan: Plan, size: str, case: _Case) -> Iterator[Line]:
    fast: Validator = Schemas({"case": case.schema}).validator("case")
    rust: Validator = foreign(case.schema, place="benchmarks")
    bare_fast, bare_rust = _bare_fast(case.schema), jsonschema_rs.Draft202012Validator(case.schema).is_valid
    works: dict[str, Work] = {"hashing": lambda: canonical.digest(canonical.encode(case.fits))}
    for name, ours, bare in (("fastjsonschema", fast, bare_fast), ("jsonschema-rs", rust, bare_rust)):
        assert [ours.valid(case.fits), bare(case.fits), ours.valid(case.fails), bare(case.fails)] == [1, 1, 0, 0]
        assert ours.violations(case.fails)
        works |= {
            f"{name}, valid": lambda ours=ours: ours.valid(case.fits),
            f"{name}, valid, bare": lambda bare=bare: bare(case.fits),
            f"{name}, invalid": lambda ours=ours: ours.valid(case.fails),
            f"{name}, invalid, bare": lambda bare=bare: bare(case.fails),
            f"{name}, invalid, violations": lambda ours=ours: ours.violations(case.fails),
        }
    times = plan.take_turns(works)
    for name in ("fastjsonschema", "jsonschema-rs"):
        for end in ("valid", "invalid"):
            case_name = f"validation, {size}, {name}, {end}"
            yield Value(f"{case_name}: CPU", times.micros(f"{name}, {end}"), "µs")
            yield Value(f"{case_name}: to the bare library", times.ratio(f"{name}, {end}", f"{name}, {end}, bare"))
        listed = times.ratio(f"{name}, invalid, violations", f"{name}, invalid")
        yield Value(f"validation, {size}, {name}, invalid: listing the violations, to a plain no", listed)
        yield Value(
            f"validation, {size}, {name}, valid: to canonical + hash of the value",
            times.ratio(f"{name}, valid", "hashing"),
        )
    yield Value(
        f"validation, {size}, valid: fastjsonschema to jsonschema-rs",
        times.ratio("fastjsonschema, valid", "jsonschema-rs, valid"),
    )
    yield Value(
        f"validation, {size}, invalid: fastjsonschema to jsonschema-rs",
        times.ratio("fastjsonschema, invalid", "jsonschema-rs, invalid"),
    )


def _bare_fast(schema: dict[str, Any]) -> Callable[[Any], bool]:
    """Return fastjsonschema's function as a test of validity: it raises for an invalid value."""
    check = fastjsonschema.compile(deepcopy(schema), use_default=False)

    def valid(value: Any) -> bool:
        try:
            check(value)
        except fastjsonschema.JsonSchemaValueException:
            return False
        return True

    return valid
