"""One circuit breaker for each model of a profile, shared by all tiers that ask it."""

from threading import Lock

from circuitbreaker import CircuitBreaker

from deedbook import Failed


class Breakers:
    """The circuit breakers of one kernel, by the name of the tier and the limits of the breaker."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int, float], CircuitBreaker] = {}
        self._lock = Lock()

    def get(self, tier: str, failures: int, seconds: float) -> CircuitBreaker:
        """Return the breaker of *tier*: after so many *failures* in a row it is open for so many *seconds*."""
        with self._lock:
            key = (tier, failures, seconds)
            if key not in self._made:
                self._made[key] = CircuitBreaker(failures, seconds, expected_exception=Failed)
            return self._made[key]

    def close(self) -> None:
        """Forget all failures."""
        self._made.clear()
