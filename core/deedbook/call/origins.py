"""The origin of a session that continues another one: a pending call of it, or its past."""

from collections.abc import Callable

import attrs

from deedbook.contract import Object

from .handlers import Outcome, Ticket


def run_handler(_: Ticket) -> None:
    """Return no outcome: the handler runs."""


@attrs.frozen
class SessionOrigin:
    """The origin of a session: the *event* recorded under ``session.start``, with its *payload*.

    *outcome_for* is called instead of each handler, once the call was allowed and its intent recorded: it returns the
    outcome of the call, or ``None`` to run the handler.
    """

    event: str
    payload: Object
    outcome_for: Callable[[Ticket], Outcome | None] = run_handler
