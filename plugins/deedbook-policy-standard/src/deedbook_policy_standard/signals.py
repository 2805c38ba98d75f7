"""Signals: conditions in CEL over named values, checked against the JSON Schemas of these values before they are asked.

    language = SignalLanguage({"review_aggregate": AGGREGATE_SCHEMA, "context": CONTEXT_SCHEMA})
    advance = language.compile("review_aggregate.findings.all(f, f.severity != 'P0')")
    advance({"review_aggregate": aggregate, "context": context})

A misspelt field fails at `compile`, with its offset, also inside a comprehension. Only a signal that is exactly
``true`` is true. To ask several signals about the same values, make one `View` of them: that costs ten times what one
signal does.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import attrs

from deedbook.contract import Object

from .expressions import Expression, Flaw, Invalid, Language, NoEngine, Unclear, View
from .vocabulary import signal_flaws

__all__ = ["Flaw", "Invalid", "NoEngine", "Signal", "SignalLanguage", "Unclear", "View", "compile_signal"]


class SignalLanguage:
    """The variables of signals, each with the JSON Schema that its value fits. Raises `NoEngine`."""

    def __init__(self, variables: Mapping[str, Object]) -> None:
        self._variables = dict(variables)
        objects = {name for name, schema in variables.items() if schema.get("type") == "object"}
        self._language = Language({name: itemgetter(name) for name in variables}, objects)

    def compile(self, text: str) -> "Signal":
        """Compile *text*; raises `Invalid` with all its flaws."""
        expression = self._language.compile(text)
        flaws = tuple(signal_flaws(expression, self._variables))
        if flaws:
            raise Invalid(*flaws)
        return Signal(expression, self)

    def view(self, values: Mapping[str, Any]) -> View:
        """Return *values* for the signals of this language."""
        return self._language.view({name: values.get(name) for name in self._variables})


@attrs.frozen(eq=False)
class Signal:
    """A compiled signal."""

    _expression: Expression
    _language: SignalLanguage

    @property
    def text(self) -> str:
        """The expression as it is written."""
        return self._expression.text

    def __call__(self, values: Mapping[str, Any]) -> bool:
        """Return whether the signal is exactly ``true``; ``false`` and every error are not."""
        try:
            return self.holds(self._language.view(values))
        except Unclear:
            return False

    def holds(self, view: View) -> bool:
        """Return the signal's value for a view of its own language; raises `Unclear` if it is not a boolean."""
        return self._expression.holds(view)


def compile_signal(text: str, variables: Mapping[str, Object]) -> Signal:
    """Compile one signal; raises `Invalid` with all its flaws, or `NoEngine`."""
    return SignalLanguage(variables).compile(text)
