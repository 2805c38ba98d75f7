"""The service at the bridge's socket: it answers the requests of hooks one after the other, in their agent's form."""

from typing import Final

from deedbook.contract import Principal
from deedbook.format.errors import DomainError, Err, fault
from deedbook_serve.bridging.dialects import EXIT_BLOCK, Reply
from deedbook_serve.bridging.frames import MAX_HEAD, encode_reply, parse_head
from deedbook_serve.bridging.session_table import AgentSessionTable

from .streams import LineTooLongError, Stream

SOCKET: Final = "bridge.sock"


class BridgeService:
    """Answers hooks with the answers of *sessions*."""

    def __init__(self, sessions: AgentSessionTable) -> None:
        self._sessions = sessions

    def serve(self, stream: Stream, principal: Principal) -> None:
        """Answer the requests of one connection until it ends or sends an invalid request."""
        while True:
            try:
                line = stream.read_line(MAX_HEAD)
            except LineTooLongError:
                self.refuse(stream, fault("BRIDGE_INPUT", f"the first line is longer than {MAX_HEAD} bytes"))
                return
            if not line:
                return
            head = parse_head(line)
            if isinstance(head, Err):
                self.refuse(stream, head.error)
                return
            agent, event, size = head.value
            self._reply(stream, self._sessions.answer(agent, event, stream.read_exactly(size), principal))

    def _reply(self, stream: Stream, reply: Reply) -> None:
        """Send an answer; undo it if it cannot be delivered."""
        try:
            stream.send(encode_reply(reply))
        except OSError:
            reply.undo()
            raise

    def refuse(self, stream: Stream, error: DomainError) -> None:
        """Send the reason to a client that is refused or sends an invalid request."""
        stream.send(
            encode_reply(Reply(EXIT_BLOCK, err=f"Deedbook: {error.code}: {error}\n".encode("utf-8", "replace")))
        )
