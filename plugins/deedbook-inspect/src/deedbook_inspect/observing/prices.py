"""The cost of tokens without a recorded cost: prices by provider and model; pure."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

__all__ = ["SCHEMAS", "Prices"]

SCHEMAS: Final = {"v1": "prices_v1", "v2": "prices_v2"}
"""The ids of the schemas of a file of prices, by the version that the file states."""
_NANO: Final = 1000
"""US dollars per million tokens, times this, are billionths of a dollar per token."""


@attrs.frozen
class Prices:
    """US dollars per million tokens, by ``provider/model`` or ``model``; the longer name wins.

    A price that is not known is ``None``. *date* and *source* say when and where the prices were read, if they are
    stated.
    """

    models: Mapping[str, Mapping[str, float | None]] = attrs.field(factory=dict)
    date: str = ""
    source: str = ""

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "Prices":
        """Return the prices in a document that matches one of the `SCHEMAS`."""
        return cls(document["models"], document.get("date", ""), document.get("source", ""))

    def compute_cost(self, provider: str, model: str, tokens: tuple[int, int, int]) -> int | None:
        """Return the cost of *tokens* (input, output, cached input), in billionths of a US dollar.

        ``None`` if a price that it takes is not known; no tokens cost nothing.
        """
        read, written, cached = tokens
        cached = min(cached, read)
        price: Mapping[str, float | None] = self.models.get(f"{provider}/{model}") or self.models.get(model) or {}
        fresh = price.get("input_per_million")
        parts = (
            (read - cached, fresh),
            (cached, price.get("cached_input_per_million", fresh)),
            (written, price.get("output_per_million")),
        )
        costs = [0.0 if not tokens else None if each is None else tokens * each for tokens, each in parts]
        return None if None in costs else round(sum(cost for cost in costs if cost) * _NANO)
