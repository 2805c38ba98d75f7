"""The rules for models that the provider ``fallback`` did not ask, since their circuit breaker was open.

Such an event stands under the call of the tier, before its outcome, and ends later than it began.
"""

from collections.abc import Iterator
from typing import Any, Final

FAMILY: Final = "x.fallback"
SKIPPED: Final = "x.fallback.skipped"
ABOUT: Final = frozenset({SKIPPED})
"""The event types that these rules check."""


def check_skip(payload: Any, call: str) -> Iterator[str]:
    """Yield what is wrong with an event under the open *call* (its event type, or empty text)."""
    if call != "llm.request":
        yield f"it stands under {call or 'no open call'}"
    since, until = (payload.get(name) if isinstance(payload, dict) else None for name in ("since", "until"))
    if not isinstance(since, str) or not isinstance(until, str) or since >= until:
        yield f"since {since!r} until {until!r}"
