"""The position of a caller in a run, computed from the events before a call.

Memory holds the open calls, and one object for each position: callers at the same position share it.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

from deedbook.policy.limits import BranchLimits

PositionKind: TypeAlias = Literal["session", "skill", "call", "flow", "branch", "role", "request"]


@attrs.frozen(eq=False)
class CallPosition:
    """A caller's position in a run: *kind* says how it was entered from *parent*, *name* what was entered.

    The session's principal, a ``skill``, a ``call`` of an ability that makes calls, a ``flow``, a ``branch`` of it with
    what it is *allowed* (``None`` for everything), the *skill* under which it works (``None`` for that of the flow) and
    its *limits*, a ``role`` in a flow or branch; in a session that performs a parked
    call of another session, the ``request``, with its payload.
    """

    kind: PositionKind
    name: str = ""
    parent: "CallPosition | None" = None
    request: Mapping[str, Any] | None = None
    allowed: frozenset[str] | None = None
    skill: str | None = None
    limits: tuple[BranchLimits, ...] = ()


class CallPositions:
    """Follows a session's events. Spans are the bytes of the file."""

    def __init__(self) -> None:
        self._root = CallPosition("session")
        self._positions: dict[tuple[CallPosition, PositionKind, str], CallPosition] = {}
        self._spans: dict[bytes, CallPosition] = {}
        self._open: dict[bytes, tuple[CallPosition | None, PositionKind, str]] = {}
        self._model_callers: dict[bytes, bytes] = {}
        self._answers: dict[bytes, bytes] = {}
        self._inner: dict[bytes, list[bytes]] = {}
        self._resumed = b""

    def find(self, span: bytes) -> CallPosition | None:
        """Return the position of calls with the cause *span*; an open call becomes a position when it makes a call."""
        found = self._spans.get(span)
        if found is None and span in self._open:
            above, way, ability = self._open[span]
            if above is not None:
                found = self._spans[span] = self._get_position(above, way, ability)
        return found

    def begin(self, span: bytes) -> None:
        """Apply the beginning of a session, or a message: its calls are the principal's."""
        self._spans[span] = self._root

    def enter(self, span: bytes, cause: bytes, way: PositionKind, name: str) -> None:
        """Apply that a skill was invoked, or that a flow or a branch (*cause*) handed over to a role."""
        above = self.find(cause)
        if above is not None:
            self._spans[span] = self._get_position(above, way, name)
        if way == "role":
            self._inner.setdefault(cause, []).append(span)

    def branch(
        self,
        span: bytes,
        cause: bytes,
        allowed: frozenset[str] | None,
        skill: str | None = None,
        limits: tuple[BranchLimits, ...] = (),
    ) -> None:
        """Apply that a branch of a flow, or of another branch (*cause*), begins."""
        above = self.find(cause)
        if above is not None:
            self._spans[span] = CallPosition("branch", "", above, allowed=allowed, skill=skill, limits=limits)
        self._inner.setdefault(cause, []).append(span)

    def resume(self, span: bytes) -> None:
        """Apply that the session performs a parked call of another session; its request comes next."""
        self._resumed = span

    def request(self, span: bytes, cause: bytes, payload: Mapping[str, Any]) -> None:
        """Apply that a call waits for a person: its later calls have the same position."""
        above = CallPosition("request", "", self._root, payload) if cause == self._resumed else self.find(cause)
        self.follow(span, above)

    def follow(self, span: bytes, position: CallPosition | None) -> None:
        """Give *span* the *position*."""
        if position is not None:
            self._spans[span] = position

    def leave(self, span: bytes) -> None:
        """Apply that a skill is complete."""
        self._spans.pop(span, None)

    def open(self, span: bytes, position: CallPosition | None, kind: str, ability: str) -> None:
        """Apply an intent."""
        self._open[span] = position, "flow" if kind == "flow.call" else "call", ability

    def record_model_call(self, span: bytes, cause: bytes) -> None:
        """Apply a model call (*span*) by the role at *cause*, or at the role's last answer."""
        self._model_callers[span] = cause

    def close(self, intent: bytes, answer: bytes | None) -> None:
        """Remove a call that has its outcome; a model's *answer* takes over its role's position until the next one."""
        self._open.pop(intent, None)
        self._spans.pop(intent, None)
        asker = self._model_callers.pop(intent, None)
        if answer is not None and asker in self._spans:
            self._forget_answer(asker)
            self._answers[asker] = answer
            self._spans[answer] = self._spans[asker]
        self._forget_answer(intent)
        self._forget_inner(intent)

    def _forget_inner(self, span: bytes) -> None:
        for inner in self._inner.pop(span, ()):
            self._spans.pop(inner, None)
            self._forget_answer(inner)
            self._forget_inner(inner)

    def _forget_answer(self, asker: bytes) -> None:
        before = self._answers.pop(asker, None)
        if before is not None:
            self._spans.pop(before, None)

    def _get_position(self, above: CallPosition, way: PositionKind, name: str) -> CallPosition:
        key = (above, way, name)
        found = self._positions.get(key)
        if found is None:
            found = self._positions[key] = CallPosition(way, name, above)
        return found
