"""Model calls at the boundary: version 1 is accepted and upcast, and both ends are checked against the contract."""

from collections.abc import Awaitable, Mapping
from inspect import isawaitable
from typing import Any, Final

from .contracts import Handler, Json
from .schema import Schemas, Validator, Violation

CURRENT: Final = "v2"


class Completion:
    """A provider's handler, behind the completion contract: it is sent and gives version 2, whatever it was asked in."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def __call__(self, request: Any, ctx: Any) -> Json | Awaitable[Json]:
        """Ask the model."""
        response = self._handler(upcast(request), ctx)
        return _awaited(response) if isawaitable(response) else upcast(response)


class CompletionSchema:
    """Validates requests or responses: by their own version, and by what the provider declares."""

    def __init__(self, schemas: Schemas, name: str, declared: Validator) -> None:
        self._versions = {version: schemas.validator(f"{name}_{version}") for version in ("v1", CURRENT)}
        self._declared = declared

    def valid(self, value: Any) -> bool:
        """Say whether *value* fits."""
        return self._contract(value).valid(value) and self._declared.valid(upcast(value))

    def violations(self, value: Any) -> tuple[Violation, ...]:
        """Return everything that is wrong with *value*."""
        return self._contract(value).violations(value) or self._declared.violations(upcast(value))

    def _contract(self, value: Any) -> Validator:
        version = value.get("schema_version") if isinstance(value, dict) else None
        return self._versions["v1" if version == "v1" else CURRENT]


def upcast(message: Any) -> Any:
    """Return a version 1 request or response as version 2, which only adds; anything else as it is."""
    if isinstance(message, Mapping) and message.get("schema_version") == "v1":
        return {**message, "schema_version": CURRENT}
    return message


async def _awaited(response: Awaitable[Json]) -> Json:
    return upcast(await response)  # type: ignore[no-any-return]
