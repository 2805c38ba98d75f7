"""How a run is suspended: it unwinds without an outcome, and its session stays without an end."""

from deedbook.format.errors import DomainError, fault

DIVERGED = "RESUME_DIVERGED"
INCOMPLETE = "RESUME_INCOMPLETE"


class RunSuspended(BaseException):
    """Unwinds a flow whose run is suspended; ``except Exception`` does not catch it.

    *error* says what it waits for, or why it cannot go on; *approval* is the id of the request that a person must
    answer.
    """

    def __init__(self, error: DomainError, approval: str = "") -> None:
        super().__init__(error.message)
        self.error = error
        self.approval = approval

    @classmethod
    def because(cls, code: str, why: str) -> "RunSuspended":
        """Return the suspension of a run that cannot go on from its record."""
        return cls(fault(code, why))
