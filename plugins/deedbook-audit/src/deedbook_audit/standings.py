"""Where in a run somebody stands who asks for something, told from the events that came before.

Memory holds what is open, and one object for each place that somebody can stand in: who stands in the same place
shares it.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

Way: TypeAlias = Literal["session", "skill", "call", "flow", "role", "request"]


@attrs.frozen(eq=False)
class Standing:
    """Where in a run somebody stands who asks: *way* says how they got there from *above*, *name* in what.

    The session's principal, a ``skill`` that was invoked, a ``call`` of an ability that calls again, a ``flow``, a
    ``role`` in it; in a session that performs what another one parked, the ``request``, whose payload is *said*.
    """

    way: Way
    name: str = ""
    above: "Standing | None" = None
    said: Mapping[str, Any] | None = None


class Standings:
    """Follows a session's events. Spans are the bytes of the file."""

    def __init__(self) -> None:
        self._root = Standing("session")
        self._known: dict[tuple[Standing, Way, str], Standing] = {}
        self._spans: dict[bytes, Standing] = {}
        self._open: dict[bytes, tuple[Standing | None, Way, str]] = {}
        self._asking: dict[bytes, bytes] = {}
        self._answers: dict[bytes, bytes] = {}
        self._handed: dict[bytes, list[bytes]] = {}
        self._resumed = b""

    def at(self, span: bytes) -> Standing | None:
        """Return who asks where *span* is the cause: an open call stands for itself as soon as it calls again."""
        found = self._spans.get(span)
        if found is None and span in self._open:
            above, way, ability = self._open[span]
            if above is not None:
                found = self._spans[span] = self._standing(above, way, ability)
        return found

    def begin(self, span: bytes) -> None:
        """Take a session's beginning in, or a message: who asks there is the session's principal."""
        self._spans[span] = self._root

    def enter(self, span: bytes, cause: bytes, way: Way, name: str) -> None:
        """Take in that a skill was invoked, or that a flow (*cause*) handed over to a role."""
        above = self.at(cause)
        if above is not None:
            self._spans[span] = self._standing(above, way, name)
        if way == "role":
            self._handed.setdefault(cause, []).append(span)

    def resume(self, span: bytes) -> None:
        """Take in that the session performs a call that another one parked; its request comes next."""
        self._resumed = span

    def request(self, span: bytes, cause: bytes, said: Mapping[str, Any]) -> None:
        """Take in that a call waits for a person: who asked, asks on from there."""
        above = Standing("request", "", self._root, said) if cause == self._resumed else self.at(cause)
        self.follow(span, above)

    def follow(self, span: bytes, standing: Standing | None) -> None:
        """Let *span* be where somebody stands who stood elsewhere before."""
        if standing is not None:
            self._spans[span] = standing

    def leave(self, span: bytes) -> None:
        """Take in that a skill is complete."""
        self._spans.pop(span, None)

    def open(self, span: bytes, standing: Standing | None, kind: str, ability: str) -> None:
        """Take an intent in."""
        self._open[span] = standing, "flow" if kind == "flow.call" else "call", ability

    def asked(self, span: bytes, cause: bytes) -> None:
        """Take in that a model was asked (*span*) by the role that stands at *cause*, or at its last answer."""
        self._asking[span] = cause

    def close(self, intent: bytes, answer: bytes | None) -> None:
        """Forget a call that has its outcome; a model's *answer* stands for the role that asked, until its next."""
        self._open.pop(intent, None)
        self._spans.pop(intent, None)
        asker = self._asking.pop(intent, None)
        if answer is not None and asker in self._spans:
            self._forget_answer(asker)
            self._answers[asker] = answer
            self._spans[answer] = self._spans[asker]
        for handed in self._handed.pop(intent, ()):
            self._spans.pop(handed, None)
            self._forget_answer(handed)

    def _forget_answer(self, asker: bytes) -> None:
        before = self._answers.pop(asker, None)
        if before is not None:
            self._spans.pop(before, None)

    def _standing(self, above: Standing, way: Way, name: str) -> Standing:
        key = (above, way, name)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Standing(way, name, above)
        return found
