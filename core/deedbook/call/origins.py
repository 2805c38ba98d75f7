"""What a session goes on from: a call that another session parked, or the past of another session."""

from collections.abc import Callable

import attrs

from deedbook.contract import Object

from .handlers import Outcome, Ticket


def unserved(_: Ticket) -> None:
    """Return no outcome: the handler runs."""


@attrs.frozen
class Origin:
    """Where a session comes from: the *event* that says so under ``session.start``, with its *payload*.

    *served* is asked in the place of each handler, once the call was let through and its intent recorded: it returns
    the outcome that the call has, or ``None`` where the handler runs.
    """

    event: str
    payload: Object
    served: Callable[[Ticket], Outcome | None] = unserved
