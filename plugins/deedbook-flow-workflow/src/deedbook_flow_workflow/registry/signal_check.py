"""Compile the signals of workflow files, so that a misspelt field is a fault of the file and not of a run."""

from collections.abc import Iterator, Mapping
from typing import Final

from deedbook import Object
from deedbook.contract.pointers import find_value, join_pointer
from deedbook.format.errors import DomainError, fault
from deedbook_flow_workflow.signals import build_language
from deedbook_policy_standard.signals import Invalid, NoEngine, SignalLanguage

from .files import WorkflowFile

EXAMPLE: Final = "review_aggregate.p0_unresolved == 0"


class SignalCheck:
    """Compiles signals; those that see the same values share a language."""

    def __init__(self) -> None:
        self._languages: dict[str | None, SignalLanguage] = {}

    def check(self, file: WorkflowFile, *keys: str, output: tuple[str, Object] | None = None) -> Iterator[DomainError]:
        """Yield the flaws of the signal at *keys*; *output* is the schema of what the phase gives, with its name."""
        text = find_value(file.front, join_pointer(*keys), None)
        if text is None:
            return
        try:
            self._language(output).compile(str(text))
        except NoEngine:
            why = "signals need CEL; install it with: pip install 'deedbook-policy-standard[cel]'"
            yield fault("PLUGIN_MISSING", why, place=file.place(*keys))
        except Invalid as problem:
            for flaw in problem.flaws:
                why = f"{keys[-1]}: {flaw.message}; a signal is a condition in CEL, such as {EXAMPLE}"
                yield fault("SOURCE_INVALID", why, place=file.document.within(join_pointer(*keys), flaw.at))

    def _language(self, output: tuple[str, Object] | None) -> SignalLanguage:
        name = None if output is None else output[0]
        if name not in self._languages:
            self._languages[name] = build_language(None if output is None else output[1])
        return self._languages[name]


def signals_of(front: Mapping[str, object]) -> tuple[str, ...]:
    """Return the keys of a phase that hold signals."""
    return tuple(key for key in ("advance_signal", "halt_signal") if key in front)
