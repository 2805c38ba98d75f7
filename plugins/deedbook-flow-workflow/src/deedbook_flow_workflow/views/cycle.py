"""A cycle as readers see it: its phases in the order in which they run, with titles and without templates; pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from deedbook_flow_workflow.definition import PREFIX, Cycle, Definition, Phase


@attrs.frozen
class PhaseView:
    """A phase with its *title* and the personas as ``ROLE/ID``."""

    phase: Phase
    title: str
    personas: tuple[str, ...]

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield what there is to say about the phase, each with its name."""
        phase = self.phase
        yield "advances when", phase.advance_signal
        if phase.halt_signal is not None:
            yield "aborts when", phase.halt_signal
        yield "personas", ", ".join(self.personas) or "none"
        yield "flow", phase.flow
        for name, text in (("takes", phase.input_schema), ("gives", phase.output_schema), ("writes", phase.artifact)):
            if text is not None:
                yield name, text
        if phase.policies:
            yield "policies", ", ".join(phase.policies)
        yield "next", phase.next or "end"
        yield "file", phase.place


@attrs.frozen
class CycleView:
    """A cycle with its *phases* in order."""

    cycle: Cycle
    phases: tuple[PhaseView, ...]
    definition: Definition

    @classmethod
    def of(cls, definition: Definition, titles: Mapping[str, str]) -> "CycleView":
        """Return the view of a compiled cycle; *titles* are those of phases, by id."""
        ordered = []
        name: str | None = definition.cycle.entry_phase
        while name is not None:
            phase = definition.phases[name]
            named = (definition.personas[each] for each in phase.personas)
            personas = tuple(f"{each.role}/{each.id}" for each in named)
            ordered.append(PhaseView(phase, titles.get(name, ""), personas))
            name = phase.next
        return cls(definition.cycle, tuple(ordered), definition)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield what there is to say about the cycle, each with its name."""
        cycle = self.cycle
        yield "ability", f"{PREFIX}{cycle.id}"
        yield "done when", cycle.done if cycle.done is not None else "the last phase advances"
        yield "bounds", f"{cycle.max_generations} runs of a phase in a row, {cycle.max_phase_runs} runs in all"
        if cycle.policies:
            yield "policies", ", ".join(cycle.policies)
        yield "file", cycle.place

    def as_json(self) -> dict[str, Any]:
        """Return the compiled cycle without templates and schemas."""
        made = self.definition.as_settings()
        phases = [
            {**made["phases"][view.phase.id], "title": view.title, "personas": list(view.personas)}
            for view in self.phases
        ]
        return {
            "cycle": made["cycle"],
            "phases": phases,
            "personas": [
                {"skill": name, **{key: persona[key] for key in ("role", "id", "writes", "limits_writes", "place")}}
                for name, persona in made["personas"].items()
            ],
            "artifacts": [
                {"id": name, **{key: artifact[key] for key in ("pattern", "folder", "schema", "place")}}
                for name, artifact in made["artifacts"].items()
            ],
        }
