"""The values of a program as JSON: what a policy judges and the ledger records."""

from typing import Any

from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, recordable

from .copies import as_text, json_form


def as_json(value: Any) -> Any:
    """Return *value* as JSON.

    Numbers, texts, lists and objects stay as they are, also where intake refuses them later (such as NaN). A set is a
    sorted list, a time span has the form of ISO 8601, and bytes in UTF-8 are text, as frameworks describe them to a
    model. Dataclasses, models with ``model_dump`` and common types of the standard library
    become their JSON form. Any other object, and a value that is too deep or too large, becomes ``{"type": …, "text":
    …}``, which says that the value itself is not recorded.
    """
    try:
        return json_form(value)
    except DeedbookError:
        return as_text(value)


def recorded_result(value: Any, *, is_final: bool = False) -> Any:
    """Return the result of a tool as JSON that the ledger accepts; the effect has happened, so nothing is refused.

    Only a result that must be *is_final* raises `ActsLaterError`, if it acts after the tool returned.
    """
    try:
        made = json_form(value, is_final=is_final)
        canonical.admit(made)
    except DeedbookError as problem:
        return {**as_text(value), "refused": recordable(problem.error.message)}
    return made
