"""The cost of tokens without a recorded cost: prices by provider and model; pure."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

__all__ = ["SCHEMA", "Prices"]

SCHEMA: Final = "prices_v1"
"""The id of the schema of a file of prices."""
_NANO: Final = 1000
"""US dollars per million tokens, times this, are billionths of a dollar per token."""


@attrs.frozen
class Prices:
    """US dollars per million tokens, by ``provider/model`` or ``model``; the longer name wins."""

    models: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "Prices":
        """Return the prices in a document that matches `SCHEMA`."""
        return cls(document["models"])

    def compute_cost(self, provider: str, model: str, tokens: tuple[int, int, int]) -> int | None:
        """Return the cost of *tokens* (input, output, cached input), in billionths of a US dollar.

        ``None`` for a model without a price.
        """
        price = self.models.get(f"{provider}/{model}") or self.models.get(model)
        if price is None:
            return None
        read, written, cached = tokens
        cached = min(cached, read)
        fresh = price["input_per_million"]
        dear = (read - cached) * fresh + cached * price.get("cached_input_per_million", fresh)
        return round((dear + written * price["output_per_million"]) * _NANO)
