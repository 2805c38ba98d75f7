"""The service at the bridge's socket: one request of a hook after the other, each answered in its agent's form."""

from typing import Final

from deedbook.contract import Principal
from deedbook.format.errors import DomainError, Err, fault
from deedbook_serve.bridging.desk import Desk
from deedbook_serve.bridging.dialects import BLOCKED, Reply
from deedbook_serve.bridging.frames import LONGEST, answered, asked

from .streams import LineTooLongError, Stream

SOCKET: Final = "bridge.sock"


class Bridge:
    """Answers hooks with what *desk* says."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def attend(self, stream: Stream, principal: Principal) -> None:
        """Answer the requests of one connection until it ends, or sends what is none."""
        while True:
            try:
                line = stream.line(LONGEST)
            except LineTooLongError:
                self.refuse(stream, fault("BRIDGE_INPUT", f"the first line is longer than {LONGEST} bytes"))
                return
            if not line:
                return
            said = asked(line)
            if isinstance(said, Err):
                self.refuse(stream, said.error)
                return
            agent, event, size = said.value
            self._reply(stream, self._desk.answer(agent, event, stream.exactly(size), principal))

    def _reply(self, stream: Stream, reply: Reply) -> None:
        """Pass an answer on; one that reaches nobody allows nothing."""
        try:
            stream.send(answered(reply))
        except OSError:
            reply.undo()
            raise

    def refuse(self, stream: Stream, error: DomainError) -> None:
        """Tell somebody who is not let in, or asks for nothing that there is, why."""
        stream.send(answered(Reply(BLOCKED, err=f"Deedbook: {error.code}: {error}\n".encode("utf-8", "replace"))))
