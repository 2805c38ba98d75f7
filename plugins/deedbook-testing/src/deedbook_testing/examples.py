"""What the author of a plugin says of it: what it is given, and what comes of that."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import attrs

from deedbook.contract import Effects, Json
from deedbook.format.canonical import encode
from deedbook.format.errors import Err, Result

ANYTHING: Final = object()
"""Whatever is given, it will do."""
SEALED: Final = "$sealed"


@attrs.frozen
class Example:
    """Arguments (for a flow: a prompt), and what comes of them.

    *gives* is the result, *fails* the code of the failure, and *holds* is asked about a result that differs from time
    to time. Without any of them, any result will do.
    """

    args: Json
    gives: Any = attrs.field(default=ANYTHING, kw_only=True)
    fails: str | None = attrs.field(default=None, kw_only=True)
    holds: Callable[[Any], bool] | None = attrs.field(default=None, kw_only=True)

    def fault(self, result: Result[Any]) -> str | None:
        """Return how *result* is not what was expected; ``None`` if it is."""
        if isinstance(result, Err):
            if result.error.code == self.fails:
                return None
            return f"{self.args!r} failed with {result.error.code}: {result.error.message}; expected {self._describe()}"
        if self.fails or not self._is_expected(result.value):
            return f"{self.args!r} gave {result.value!r}; expected {self._describe()}"
        return None

    def _is_expected(self, value: Any) -> bool:
        if self.holds is not None and not self.holds(value):
            return False
        return self.gives is ANYTHING or encode(value) == encode(self.gives)

    def _describe(self) -> str:
        if self.fails:
            return f"the failure {self.fails}"
        if self.holds is not None:
            return "a result for which `holds` is true"
        return "a result" if self.gives is ANYTHING else repr(self.gives)


@attrs.frozen(kw_only=True)
class GateCase:
    """One call or event for a hook or a policy, and the expected answer: *decides*, with *because* in its reason.

    About a call: the *ability* with its *args*, *effects*, *tags*, the *roles* of its caller, and its *result*
    (default: its arguments). About a *prompt*; about the *subject* that a flow fires; about an end that was *ok*. A
    policy kind with subjects is asked *about* one of them, by its name; *subject* is its value.
    *gives* is what goes on instead: the arguments or the prompt after a transform, or the result that the caller sees.
    """

    decides: Literal["allow", "advisory", "transform", "ask", "deny"] = "allow"
    because: str = ""
    gives: Any = ANYTHING
    ability: str = "subject"
    args: Json = attrs.field(factory=dict)
    effects: Effects = "none"
    tags: tuple[str, ...] = ()
    roles: frozenset[str] = frozenset()
    result: Any = ANYTHING
    prompt: str = "subject"
    subject: Mapping[str, Any] = attrs.field(factory=dict)
    about: str = ""
    ok: bool = True

    def fault(self, answer: Mapping[str, Any]) -> str | None:
        """Return how the recorded *answer* is not what was expected; ``None`` if it is."""
        decision, reason = answer["decision"], answer.get("reason", "")
        if decision != self.decides:
            return f"{self!r} was answered with {decision!r} ({reason}); expected {self.decides!r}"
        if isinstance(reason, str) and self.because not in reason:
            return f"{self!r} was answered for the reason {reason!r}; expected {self.because!r} in it"
        return None
