"""One circuit breaker for each model of a profile, shared by all tiers that ask it."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from circuitbreaker import CircuitBreaker

from deedbook import Failed


class Breaker:
    """Leaves a model out for so many *seconds* after so many *failures* in a row."""

    def __init__(self, failures: int, seconds: float) -> None:
        self._breaker = CircuitBreaker(failures, seconds, expected_exception=Failed)
        self._pause = timedelta(seconds=seconds)
        self._since = datetime.now(UTC)

    @property
    def opened(self) -> bool:
        """Whether the model must not be asked now."""
        return bool(self._breaker.opened)

    @property
    def remaining(self) -> float:
        """For how many seconds the model is not asked."""
        return max(float(self._breaker.open_remaining), 0.0)

    def count(self, problem: Failed) -> None:
        """Count a failure."""
        self._since = datetime.now(UTC)
        with suppress(Failed), self._breaker:
            raise problem

    def reset(self) -> None:
        """Forget the failures, since the model has answered."""
        self._breaker.reset()

    def describe(self) -> dict[str, Any]:
        """Return how often the model failed in a row, its last code, since when it is left out, and until when."""
        last = self._breaker.last_failure
        return {
            "failures": self._breaker.failure_count,
            "code": last.code if isinstance(last, Failed) else "PROVIDER_ERROR",
            "since": _spell(self._since),
            "until": _spell(self._since + self._pause),
        }


class Breakers:
    """The circuit breakers of one kernel, by the name of the tier and the limits of the breaker."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int, float], Breaker] = {}
        self._lock = Lock()

    def get(self, tier: str, failures: int, seconds: float) -> Breaker:
        """Return the breaker of *tier*: after so many *failures* in a row it is open for so many *seconds*."""
        with self._lock:
            key = (tier, failures, seconds)
            if key not in self._made:
                self._made[key] = Breaker(failures, seconds)
            return self._made[key]

    def close(self) -> None:
        """Forget all failures."""
        self._made.clear()


def _spell(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
