"""Ask the features of a session about a call that no gate denies; whatever fails there denies the call."""

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from deedbook.contract import Decision
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


class Enclosures:
    """The context managers of features around one call, entered in turn; none can suppress an error of the call."""

    __slots__ = ("_entered",)

    def __init__(self) -> None:
        self._entered: list[Any] = []

    def enter(self, name: str, enclose: Callable[[AllowedCall], object], allowed: AllowedCall) -> None:
        """Enter the context manager of the feature *name*; raises `FeatureDenial`."""
        try:
            made: Any = enclose(allowed)
            if not hasattr(made, "__enter__"):
                _refuse_manager(name, made)
            made.__enter__()
        except Exception as problem:  # noqa: BLE001 - a feature may raise anything
            _deny_for(name, problem)
        self._entered.append(made)

    def close(self) -> None:
        """Leave all of them, the last first; raises what the last of them raises that fails."""
        while self._entered:
            made, error = self._entered.pop(), sys.exc_info()
            try:
                made.__exit__(*error)
            except BaseException:
                self.close()
                raise


def enclose_call(parts: SessionParts, allowed: AllowedCall, held: Enclosures) -> None:
    """Enter the context managers of features in *held*, and ask the features that judge; raises `FeatureDenial`."""
    for name, enclose in parts.around_intents:
        held.enter(name, enclose, allowed)
    for name, judge in parts.judge_calls:
        try:
            decision: object = judge(allowed)
        except Exception as problem:  # noqa: BLE001 - a feature may raise anything
            _deny_for(name, problem)
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
        try:
            found: object = ask(allowed)
        except Exception as problem:  # noqa: BLE001 - a feature may raise anything
            _deny_for(name, problem)
        if callable(found):
            settlements.append(found)
        elif found is not None:
            why = f"feature {name} returned {_name_type(found)} before an intent, not a function that settles"
            raise FeatureDenial(name, _DENIED, f"{why}; a feature that decides implements judge_calls")


def _deny_for(name: str, problem: Exception) -> NoReturn:
    """Raise a `FeatureDenial` for what the feature *name* raised; errors of the record are raised as they are."""
    if isinstance(problem, CallPrevented):
        code, reason = str(problem.code), str(problem)
        known = CODES.get(code)
        own = known is None or (known.kind == "gate" and code != "NEEDS_HUMAN")
        if not (own and _CODE.fullmatch(code)):
            code, reason = _DENIED, f"{code}: {reason}"
        raise FeatureDenial(name, code, reason) from None
    if isinstance(problem, DeedbookError | FactsChanged | FeatureDenial):
        raise problem
    raise FeatureDenial(name, _DENIED, f"feature {name} failed: {describe_crash(problem)}") from None


def _refuse_manager(name: str, made: object) -> NoReturn:
    why = f"feature {name} returned {_name_type(made)}, not a context manager"
    raise FeatureDenial(name, _DENIED, f"{why}; a feature that decides implements judge_calls")


def _name_type(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
