"""The client of the gateway for whom a call is made; the call reaches the server over a connection of its own."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from mcp_types import ServerNotification


class Peer(Protocol):
    """A client of the gateway. All methods may be called from any thread, and none blocks."""

    @property
    def id(self) -> str:
        """A name that no other client of this process has."""

    @property
    def mode(self) -> str:
        """How to agree on a revision of the protocol: ``legacy`` if the client uses one before 2026-07-28."""

    @property
    def elicits(self) -> bool:
        """Whether the client can ask its person."""

    def notify(self, notification: "ServerNotification") -> None:
        """Pass a notification of the server to the client."""

    def elicit(self, params: Mapping[str, Any]) -> "Future[Mapping[str, Any]]":
        """Judge a question of the server, ask the client's person if it is allowed, and return the answer.

        The future raises `Failed` for a question that is refused.
        """

    def ask_person(self, params: Mapping[str, Any]) -> "Future[Mapping[str, Any]]":
        """Ask the client's person; the question was judged."""

    def on_close(self, close: Callable[[], None]) -> None:
        """Call *close* when the client is gone."""


PEER: Final[ContextVar[Peer | None]] = ContextVar("deedbook_mcp_peer", default=None)
"""The client of the call of the current thread or task; ``None`` outside the gateway."""
