"""The compiled signals of a cycle."""

from collections.abc import Mapping
from typing import Any

import attrs

from deedbook_flow_workflow.definition import Definition, Phase
from deedbook_flow_workflow.signals import build_language
from deedbook_policy_standard.signals import Signal, SignalLanguage


@attrs.frozen
class Signals:
    """The values of a phase's signals: whether the cycle is to *halt*, is *done*, or may *advance*."""

    halt: bool
    done: bool
    advance: bool


class SignalSet:
    """The signals of every phase of *definition*; raises `Invalid` or `NoEngine` of `deedbook_policy_standard`."""

    def __init__(self, definition: Definition) -> None:
        languages: dict[str | None, SignalLanguage] = {None: build_language(None)}
        self._phases: dict[str, tuple[Signal, Signal | None]] = {}
        for phase in definition.phases.values():
            name = phase.output_schema
            if name not in languages:
                languages[name] = build_language(definition.schemas[name] if name else None)
            halt = phase.halt_signal
            compiled = languages[name].compile
            self._phases[phase.id] = compiled(phase.advance_signal), compiled(halt) if halt else None
        done = definition.cycle.done
        self._done = languages[None].compile(done) if done else None

    def read(self, phase: Phase, values: Mapping[str, Any]) -> Signals:
        """Return the values of the signals of *phase*; only what is exactly true is true."""
        advance, halt = self._phases[phase.id]
        return Signals(
            halt=halt is not None and halt(values),
            done=self._done is not None and self._done(values),
            advance=advance(values),
        )
