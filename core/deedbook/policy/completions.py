"""Model calls at the boundary: version 1 is accepted and upcast, and both ends are checked against the contract.

Version 3 is for requests with images. A provider gets one only if it declares that it takes images.
"""

from collections.abc import Awaitable
from contextlib import suppress
from inspect import isawaitable
from typing import Any, Final

from deedbook.contract import Failed, Handler, Json, Object
from deedbook.format.schema import Schemas, Validator, Violation

FIRST: Final = "v1"
CURRENT: Final = "v2"
WITH_IMAGES: Final = "v3"
_NO_IMAGES: Final = "its provider takes no images; leave them out, or use a profile whose provider takes them"


class Completion:
    """A provider's handler behind the completion contract: it never receives or returns version 1.

    Without *images*, a request of version 3 is refused, and the handler is not called.
    """

    def __init__(self, handler: Handler, *, images: bool = False) -> None:
        self._handler = handler
        self._images = images

    def __call__(self, request: Any, ctx: Any) -> Json | Awaitable[Json]:
        """Ask the model."""
        if not self._images and request["schema_version"] == WITH_IMAGES:
            raise Failed("PROVIDER_ERROR", f"the model {request['model']!r}: {_NO_IMAGES}")
        response = self._handler(upcast(request), ctx)
        return _upcast_later(response) if isawaitable(response) else upcast(response)

    def load(self) -> None:
        """Let the provider import what its first call needs; that call reports a failure."""
        with suppress(Exception):
            getattr(self._handler, "load", bool)()

    def count_tokens(self, request: Any) -> int | None:
        """Return the provider's own count of the tokens of *request*; ``None`` if it has none."""
        count = getattr(self._handler, "count_tokens", None)
        try:
            found = count(request) if count is not None else None
        except Exception:  # noqa: BLE001 - a provider that cannot count now is no reason to end the run
            return None
        return found if type(found) is int and found >= 0 else None


class CompletionSchema:
    """Validates requests or responses (*name*): by their version's schema, and by the provider's *declared* schema.

    A version 1 message is judged after its upcast. That is no looser than its own schema, which leaves open what
    version 2 forbids, such as a negative usage.
    """

    def __init__(self, schemas: Schemas, name: str, declared: Validator) -> None:
        self._current = schemas.validator(f"{name}_{CURRENT}")
        self._schemas = schemas
        self._name = name
        self._declared = declared

    def valid(self, value: Any) -> bool:
        """Return whether *value* is valid."""
        current = upcast(value)
        return self._schema(current).valid(current) and self._declared.valid(current)

    def violations(self, value: Any) -> tuple[Violation, ...]:
        """Return the violations of *value*: of the contract, else of the declared schema."""
        current = upcast(value)
        found = self._schema(current).violations(current)
        return found or _explain(current, self._declared.violations(current))

    def _schema(self, message: Any) -> Validator:
        """Return the schema of a message's version; that with images is compiled when it is needed."""
        if type(message) is dict and message.get("schema_version") == WITH_IMAGES:
            return self._schemas.validator(f"{self._name}_{WITH_IMAGES}")
        return self._current


def request_version(request: Object) -> str:
    """Return the version that a request needs: version 3 if the content of a message has parts."""
    messages = request.get("messages")
    contents = [each.get("content") for each in messages if type(each) is dict] if type(messages) is list else []
    return WITH_IMAGES if any(type(content) is list for content in contents) else CURRENT


def upcast(message: Any) -> Any:
    """Return a version 1 request or response as version 2, which only adds members; others are returned unchanged."""
    if type(message) is dict and message.get("schema_version") == FIRST:
        return {**message, "schema_version": CURRENT}
    return message


def _explain(message: Any, found: tuple[Violation, ...]) -> tuple[Violation, ...]:
    """Return what a provider's own schema finds; that it does not know a request with images is said as that."""
    if type(message) is dict and message.get("schema_version") == WITH_IMAGES:
        return tuple(Violation("$.messages", _NO_IMAGES) for each in found if each.path == "$.schema_version") or found
    return found


async def _upcast_later(response: Awaitable[Json]) -> Json:
    return upcast(await response)  # type: ignore[no-any-return]
