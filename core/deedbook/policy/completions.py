"""Model calls at the boundary: version 1 is accepted and upcast, and both ends are checked against the contract."""

from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any, Final

from deedbook.contract import Handler, Json
from deedbook.format.schema import Schemas, Validator, Violation

FIRST: Final = "v1"
CURRENT: Final = "v2"


class Completion:
    """A provider's handler behind the completion contract: it receives and returns version 2 for every request."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def __call__(self, request: Any, ctx: Any) -> Json | Awaitable[Json]:
        """Ask the model."""
        response = self._handler(upcast(request), ctx)
        return _upcast_later(response) if isawaitable(response) else upcast(response)

    def count_tokens(self, request: Any) -> int | None:
        """Return the provider's own count of the tokens of *request*; ``None`` if it has none."""
        count = getattr(self._handler, "count_tokens", None)
        try:
            found = count(request) if count is not None else None
        except Exception:  # noqa: BLE001 - a provider that cannot count now is no reason to end the run
            return None
        return found if type(found) is int and found >= 0 else None


class CompletionSchema:
    """Validates requests or responses (*name*): by the current version, and by the provider's *declared* schema.

    A version 1 message is judged after its upcast. That is no looser than its own schema, which leaves open what
    version 2 forbids, such as a negative usage.
    """

    def __init__(self, schemas: Schemas, name: str, declared: Validator) -> None:
        self._current = schemas.validator(f"{name}_{CURRENT}")
        self._declared = declared

    def valid(self, value: Any) -> bool:
        """Return whether *value* is valid."""
        current = upcast(value)
        return self._current.valid(current) and self._declared.valid(current)

    def violations(self, value: Any) -> tuple[Violation, ...]:
        """Return the violations of *value*: of the contract, else of the declared schema."""
        current = upcast(value)
        return self._current.violations(current) or self._declared.violations(current)


def upcast(message: Any) -> Any:
    """Return a version 1 request or response as version 2, which only adds members; others are returned unchanged."""
    if type(message) is dict and message.get("schema_version") == FIRST:
        return {**message, "schema_version": CURRENT}
    return message


async def _upcast_later(response: Awaitable[Json]) -> Json:
    return upcast(await response)  # type: ignore[no-any-return]
