"""The arguments of a tool after its framework validated them: one JSON form, and a check that the tool gets just these.

An adapter judges `argument_form` of what the framework made, and gives the tool what `private_copies` returns. Where
something runs between the decision and the tool, `require_judged` compares once more, as late as possible.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final

from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, Err, fault

from .conversation import OTHER, CallDenied, Permit
from .values import as_json, recorded_result

CHANGED: Final = "ArgumentsChanged"
"""The event of ``bridge.told`` that says what a tool got instead of what was judged, under ``enforcement: observe``."""
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_DEPTH: Final = 64


def argument_form(args: Mapping[str, Any], names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return validated arguments as JSON, as a policy judges them and the ledger records them.

    It is the form that the schema of the tool accepts: a field of a model stands under its alias, if it has one, and
    with its default. Custom serializers are not asked, since the tool gets what is in the fields. Other values are as
    `as_json` says, or as pydantic writes them, such as URLs. *names* are the names of arguments in the schema.
    """
    return {(names or {}).get(name, name): _form(each, _DEPTH) for name, each in args.items()}


def schema_name(name: str, field: Any) -> str:
    """Return the name that a *field* of a pydantic model has in the JSON Schema of its input."""
    alias = getattr(field, "validation_alias", None) or getattr(field, "alias", None)
    choices = getattr(alias, "choices", None) or [alias]
    for each in choices:
        path = getattr(each, "path", None) or [each]
        if len(path) == 1 and isinstance(path[0], str):
            return path[0]
    return name


def schema_names(model: Any) -> dict[str, str]:
    """Return the names of the fields of a pydantic *model* in the JSON Schema of its input; none for other types."""
    found = getattr(model, "model_fields", None) or getattr(model, "__fields__", None)
    known = found if isinstance(found, Mapping) else {}
    return {name: schema_name(name, field) for name, field in known.items()}


def private_copies(args: Mapping[str, Any], form: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments to use: copies of what was judged where that is the whole value, otherwise the objects.

    *form* is `argument_form` of *args*. Nothing that holds the old values can change the copies.
    """
    return {
        name: deepcopy(form[names.get(name, name)]) if _is_plain(each, _DEPTH) else each for name, each in args.items()
    }


def judged_args(permit: Permit) -> dict[str, Any]:
    """Return the arguments that were judged and recorded, with what hooks changed."""
    recorded: dict[str, Any] = canonical.decode(permit.ticket.raw)
    is_other = permit.ticket.bound.id.endswith(f"/{OTHER}")
    return dict(recorded["input"]) if is_other else recorded


def is_judged(permit: Permit, form: Mapping[str, Any]) -> bool:
    """Return whether *form* is what was judged and recorded."""
    return _same(dict(form), judged_args(permit))


def merge_rewritten(
    permit: Permit, args: Mapping[str, Any], form: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments as a hook left them, by their names in the schema: for the framework's own validation.

    An argument that the hook did not change is the object that the framework made.
    """
    own = {names.get(name, name): each for name, each in args.items()}
    rewritten = judged_args(permit)
    return {
        name: own[name] if name in own and _same(form[name], each) else deepcopy(each)
        for name, each in rewritten.items()
    }


def require_judged(permit: Permit, used: Mapping[str, Any]) -> None:
    """Compare what the tool is about to get, as `argument_form`, with what was judged.

    If it differs, the call is recorded as cancelled and `CallDenied` raised: the tool must not run. Under
    ``enforcement: observe`` a note of the call says what the tool gets, and it runs.
    """
    if is_judged(permit, used):
        return
    conversation = permit.conversation
    if conversation.session.bindings.charter.document["enforcement"] == "observe":
        conversation.note(CHANGED, {"args": recorded_result(dict(used))}, permit)
        return
    raise refuse_use(permit, "its arguments changed after the decision; nothing may change them behind the guard")


def refuse_use(permit: Permit, why: str) -> CallDenied:
    """Record that a call that was allowed is not made, because of *why*; return what to raise."""
    refused = changed_arguments(permit, why)
    permit.conversation.fail(permit, DeedbookError(refused), cancelled=True)
    return CallDenied(Err(refused))


def changed_arguments(permit: Permit, why: str) -> DomainError:
    """Return the error of a call whose arguments are not those that were judged."""
    return fault("GATE_DENIED", f"{permit.ticket.bound.id}: {why}")


def _same(one: Any, other: Any) -> bool:
    try:
        return canonical.encode(one) == canonical.encode(other)
    except Exception:  # noqa: BLE001 - what the ledger cannot hold was not judged
        return False


def _is_plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if depth <= 0:
        return False
    if kind is list:
        return all(_is_plain(each, depth - 1) for each in value)
    return kind is dict and all(type(name) is str and _is_plain(each, depth - 1) for name, each in value.items())


def _form(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _PLAIN or depth <= 0:
        return as_json(value)
    if isinstance(value, Enum):
        return _form(value.value, depth)
    if isinstance(value, Mapping):
        made = {str(name): _form(each, depth - 1) for name, each in value.items()}
        return made if len(made) == len(value) else value  # two keys of the same text: left to the guard
    if isinstance(value, list | tuple | set | frozenset):
        items = [_form(each, depth - 1) for each in value]
        return items if isinstance(value, list | tuple) else sorted(items, key=repr)
    if isinstance(value, Decimal | Fraction):
        return _number(value)
    own = _fields_of(value)
    if own is not None:
        return {name: _form(each, depth - 1) for name, each in own.items()}
    return _leaf(value, depth)


def _number(value: Decimal | Fraction) -> Any:
    """Return the JSON number that is the same, so that a rule can compare it; where there is none, *value* itself.

    The guard refuses that one, as it refuses other numbers that the ledger cannot hold exactly.
    """
    with suppress(OverflowError, ValueError):
        if value == int(value):
            whole = int(value)
            return whole if abs(whole) <= canonical.MAX_INTEGER else value
        number = float(value)
        if type(value)(repr(number)) == value:
            return number
    return value


def _fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a model or a dataclass by their names in its schema; ``None`` for other objects."""
    kind: Any = type(value)
    if isinstance(value, type):
        return None
    declared = getattr(kind, "__pydantic_fields__", None) or getattr(kind, "model_fields", None)
    if declared is None and is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if not isinstance(declared, Mapping):
        return None
    if getattr(kind, "__pydantic_root_model__", False):
        return None
    made = {schema_name(name, field): getattr(value, name, None) for name, field in declared.items()}
    return {**made, **(getattr(value, "__pydantic_extra__", None) or {})}


def _leaf(value: Any, depth: int) -> Any:
    """Return any other object; one that only pydantic knows how to write is as pydantic writes it."""
    if getattr(type(value), "__pydantic_root_model__", False):
        return _form(value.root, depth - 1)
    made = as_json(value)
    pydantic: Any = sys.modules.get("pydantic_core")
    if (
        not (isinstance(made, dict) and made.keys() == {"type", "text"})
        or pydantic is None
        or hasattr(value, "__next__")
    ):
        return made
    try:
        return as_json(pydantic.to_jsonable_python(value))
    except Exception:  # noqa: BLE001 - an object without a JSON form is recorded as its type and text
        return made
