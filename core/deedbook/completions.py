"""Model calls at the boundary: version 1 is accepted and upcast, and both ends are checked against the contract."""

from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any, Final

from .contracts import Handler, Json
from .schema import Schemas, Validator, Violation

FIRST: Final = "v1"
CURRENT: Final = "v2"


class Completion:
    """A provider's handler behind the completion contract: it is sent and gives version 2, whatever it was asked in."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def __call__(self, request: Any, ctx: Any) -> Json | Awaitable[Json]:
        """Ask the model."""
        response = self._handler(upcast(request), ctx)
        return _awaited(response) if isawaitable(response) else upcast(response)


class CompletionSchema:
    """Validates requests or responses (*name*): by their own version, as the current one, and by what is *declared*.

    A version 1 message is judged by both: its own schema is loose, and what it leaves open must fit what follows.
    """

    def __init__(self, schemas: Schemas, name: str, declared: Validator) -> None:
        self._first = schemas.validator(f"{name}_{FIRST}")
        self._current = schemas.validator(f"{name}_{CURRENT}")
        self._declared = declared

    def valid(self, value: Any) -> bool:
        """Say whether *value* fits."""
        if _is_first(value) and not self._first.valid(value):
            return False
        current = upcast(value)
        return self._current.valid(current) and self._declared.valid(current)

    def violations(self, value: Any) -> tuple[Violation, ...]:
        """Return what is wrong with *value*, in the terms of the first schema that it does not fit."""
        current = upcast(value)
        return (
            (self._first.violations(value) if _is_first(value) else ())
            or self._current.violations(current)
            or self._declared.violations(current)
        )


def upcast(message: Any) -> Any:
    """Return a version 1 request or response as version 2, which only adds; anything else as it is."""
    return {**message, "schema_version": CURRENT} if _is_first(message) else message


def _is_first(message: Any) -> bool:
    return type(message) is dict and message.get("schema_version") == FIRST


async def _awaited(response: Awaitable[Json]) -> Json:
    return upcast(await response)  # type: ignore[no-any-return]
