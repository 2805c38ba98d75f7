"""Ask the features of a session about a call that no gate denies; whatever fails there denies the call."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any, Final

from deedbook.contract import Decision, Object
from deedbook.contract.features import AllowedCall, CallPrevented, FactsChanged
from deedbook.format.errors import CODES, DeedbookError, describe_crash
from deedbook.plugins.features import SessionParts

_CODE: Final = re.compile("[A-Z][A-Z0-9_]{0,63}")
_DENIED: Final = "GATE_DENIED"

Settlement = Callable[[Any], None]


class FeatureDenial(Exception):  # noqa: N818 - a decision, not an error
    """A feature denies the call, or has failed: its *name*, the *code* and the *reason*."""

    def __init__(self, name: str, code: str, reason: str) -> None:
        super().__init__(reason)
        self.name, self.code, self.reason = name, code, reason

    @property
    def by(self) -> Mapping[str, str]:
        """Who denies, as the record has it."""
        return {"feature": self.name}


def is_feature(by: Object | None) -> bool:
    """Return whether a recorded decision is that of a feature."""
    return by is not None and "feature" in by


def enclose_call(parts: SessionParts, allowed: AllowedCall, held: ExitStack) -> None:
    """Enter the context managers of features in *held*, and ask the features that judge; raises `FeatureDenial`."""
    for name, enclose in parts.around_intents:
        held.enter_context(_Enclosure(name, enclose, allowed))
    for name, judge in parts.judge_calls:
        with _denials_of(name):
            decision: object = judge(allowed)
        if type(decision) is not Decision or decision.outcome not in ("allow", "deny"):
            what = f"answered {decision.outcome}" if type(decision) is Decision else f"returned {_name_type(decision)}"
            raise FeatureDenial(name, _DENIED, f"feature {name} {what}; it can allow or deny, with a Decision")
        if decision.outcome == "deny":
            raise FeatureDenial(name, _DENIED, decision.reason)


def reserve_call(parts: SessionParts, allowed: AllowedCall, settlements: list[Settlement]) -> None:
    """Ask the features that act before an intent, and add what is to be called with the outcome to *settlements*.

    Raises `FeatureDenial`, `FactsChanged`, and `LedgerError` if nothing can be recorded.
    """
    for name, ask in parts.before_intents:
        with _denials_of(name):
            found: object = ask(allowed)
        if callable(found):
            settlements.append(found)
        elif found is not None:
            why = f"feature {name} returned {_name_type(found)} before an intent, not a function that settles"
            raise FeatureDenial(name, _DENIED, f"{why}; a feature that decides implements judge_calls")


class _Enclosure:
    """The context manager of a feature around one call; it cannot suppress an error of the call."""

    __slots__ = ("_allowed", "_enclose", "_made", "_name")

    def __init__(
        self, name: str, enclose: Callable[[AllowedCall], AbstractContextManager[object]], allowed: AllowedCall
    ) -> None:
        self._name, self._enclose, self._allowed = name, enclose, allowed

    def __enter__(self) -> None:
        with _denials_of(self._name):
            made: object = self._enclose(self._allowed)
            if not isinstance(made, AbstractContextManager):
                why = f"feature {self._name} returned {_name_type(made)}, not a context manager"
                raise FeatureDenial(self._name, _DENIED, f"{why}; a feature that decides implements judge_calls")
            self._made = made
            made.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._made.__exit__(kind, problem, trace)


@contextmanager
def _denials_of(name: str) -> Iterator[None]:
    """Turn what the feature *name* raises inside into a `FeatureDenial`; errors of the record and interrupts remain."""
    try:
        yield
    except CallPrevented as problem:
        code, reason = str(problem.code), str(problem)
        known = CODES.get(code)
        own = known is None or (known.kind == "gate" and code != "NEEDS_HUMAN")
        if not (own and _CODE.fullmatch(code)):
            code, reason = _DENIED, f"{code}: {reason}"
        raise FeatureDenial(name, code, reason) from None
    except (DeedbookError, FactsChanged, FeatureDenial):
        raise
    except Exception as problem:  # noqa: BLE001 - a feature may raise anything
        raise FeatureDenial(name, _DENIED, f"feature {name} failed: {describe_crash(problem)}") from None


def _name_type(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
