"""Compile the signals of workflow files, so that a misspelt field is a fault of the file and not of a run."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from deedbook import Object
from deedbook.contract.pointers import find_value, join_pointer
from deedbook.format.errors import DomainError, fault
from deedbook.workspace.documents import Document
from deedbook_flow_workflow.signals import build_language
from deedbook_policy_standard.signals import Invalid, NoEngine, SignalLanguage

from .files import WorkflowFile

EXAMPLE: Final = "review_aggregate.p0_unresolved == 0"


def check_condition(
    document: Document, keys: tuple[str | int, ...], language: Callable[[], SignalLanguage], hint: str
) -> Iterator[DomainError]:
    """Yield the flaws of the condition at *keys* of *document*, each at its place; *hint* says what is expected."""
    at = join_pointer(*keys)
    try:
        language().compile(str(find_value(document.value, at, "")))
    except NoEngine:
        why = "conditions need CEL; install it with: pip install 'deedbook-policy-standard[cel]'"
        yield fault("PLUGIN_MISSING", why, place=document.place(at))
    except Invalid as problem:
        for flaw in problem.flaws:
            yield fault("SOURCE_INVALID", f"{keys[-1]}: {flaw.message}; {hint}", place=document.within(at, flaw.at))


class SignalCheck:
    """Compiles signals; those that see the same values share a language."""

    def __init__(self) -> None:
        self._languages: dict[str | None, SignalLanguage] = {}

    def check(self, file: WorkflowFile, *keys: str, output: tuple[str, Object] | None = None) -> Iterator[DomainError]:
        """Yield the flaws of the signal at *keys*; *output* is the schema of what the phase gives, with its name."""
        text = find_value(file.front, join_pointer(*keys), None)
        if text is None:
            return
        hint = f"a signal is a condition in CEL, such as {EXAMPLE}"
        yield from check_condition(file.document, keys, lambda: self._language(output), hint)

    def _language(self, output: tuple[str, Object] | None) -> SignalLanguage:
        name = None if output is None else output[0]
        if name not in self._languages:
            self._languages[name] = build_language(None if output is None else output[1])
        return self._languages[name]


def signals_of(front: Mapping[str, object]) -> tuple[str, ...]:
    """Return the keys of a phase that hold signals."""
    return tuple(key for key in ("advance_signal", "halt_signal") if key in front)
