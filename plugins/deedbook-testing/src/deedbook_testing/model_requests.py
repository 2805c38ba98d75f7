"""Requests to models, as the contracts of providers send them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from deedbook.contract import Principal

from .endpoints.server import FOREVER

KEY: Final = "sk-contract-0123456789"
TOOLS: Final[Sequence[Mapping[str, Any]]] = (
    {"name": "git/commit", "description": "Commit.", "schema_in": {"type": "object", "properties": {"m": {}}}},
    {"name": "echo", "schema_in": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}},
    {"name": "git.commit", "description": "Another."},
)
PRICES: Final = {"input_per_million": 2, "output_per_million": 10}


class WatchedCall:
    """A call's context: so many *seconds* are left, and what is shown is kept."""

    principal = Principal("agent:worker", "test")
    session = "s"
    idempotency_key = "k"

    def __init__(self, seconds: float = FOREVER) -> None:
        self.seconds = seconds
        self.shown: list[Any] = []

    def remaining(self) -> float:
        """Return the seconds that are left."""
        return self.seconds

    def progress(self, delta: Any) -> None:
        """Keep what is shown."""
        self.shown.append(delta)


Ask = Callable[..., dict[str, Any]]


def user(text: str = "Hi", **more: Any) -> dict[str, Any]:
    """Return a request with one message of a user."""
    return {"messages": [{"role": "user", "content": text}], **more}
