"""Compile a cycle: resolve the ids that it names, and put everything it needs into one definition."""

from collections.abc import Mapping
from typing import Any, Final

from deedbook.format.schema import suggest
from deedbook.workspace.trees import SourceReader
from deedbook_flow_workflow.artifacts import FIELDS, find_template_flaws, find_unknown_fields
from deedbook_flow_workflow.definition import REVIEW, Artifact, Cycle, Definition, Persona, Phase

from .files import ARTIFACTS, PERSONAS, PHASES, Library, WorkflowFile
from .graph import check_graph, find_next
from .personas import PersonaSource, skill_name
from .schemas import SchemaNames
from .signal_check import SignalCheck, signals_of

GENERATIONS: Final = 3
PHASE_RUNS: Final = 32
"""The bounds of a cycle that sets none."""


class CycleCompiler:
    """Compiles cycles. Each phase, persona and artifact is checked once, however many cycles name it."""

    def __init__(
        self,
        library: Library,
        personas: Mapping[str, PersonaSource],
        reader: SourceReader,
    ) -> None:
        self._files = files = library.files
        self._faulty = library.faulty
        self._personas = personas
        self._reader = reader
        self._schemas = SchemaNames(files[ARTIFACTS], reader)
        self._signals = SignalCheck()
        before = len(reader.faults)
        for file in files[ARTIFACTS].values():
            self._check_artifact(file)
        for file in files[PHASES].values():
            self._check_phase(file)
        self._sound = len(reader.faults) == before and not library.faulty

    def compile(self, cycle: WorkflowFile) -> Definition | None:
        """Return the definition of a cycle, or ``None`` where it has a fault."""
        phases = self._files[PHASES]
        before = len(self._reader.faults)
        self._reader.faults.extend(self._signals.check(cycle, "exit_conditions", "done"))
        for index, name in enumerate(cycle.front["phases"]):
            self._check_id(cycle, PHASES, name, ("phases", index))
        following = find_next(cycle, phases)
        self._reader.faults.extend(check_graph(cycle, phases, following))
        if len(self._reader.faults) > before or not self._sound:
            return None
        made = {name: self._phase(phases[name], following[name]) for name in cycle.front["phases"]}
        return Definition(
            cycle=_cycle(cycle),
            phases=made,
            personas=self._find_personas(made),
            artifacts=self._find_artifacts(made),
            schemas=self._find_schemas(made),
        )

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check_artifact(self, file: WorkflowFile) -> None:
        for name in find_unknown_fields(file.front["pattern"]):
            why = f"pattern: there is no field {{{name}}}{suggest(name, FIELDS)}; the fields are {', '.join(FIELDS)}"
            self._refuse(why, file.place("pattern"))
        above = file.raw.count(b"\n") - file.body.count("\n")
        for why, line in find_template_flaws(file.body):
            self._refuse(why, f"{file.document.path}:{above + line}:1")

    def _check_phase(self, file: WorkflowFile) -> None:
        said = file.front
        for index, name in enumerate(said.get("agents_invoked", ())):
            self._check_id(file, PERSONAS, name, ("agents_invoked", index))
        if "artifact" in said:
            self._check_id(file, ARTIFACTS, said["artifact"], ("artifact",))
        for key in ("input_schema", "output_schema"):
            if key in said:
                self._schemas.check(said[key], file.place(key))
        self._check_output(file)
        output = self._output_of(file)
        known = None if output is None else self._schemas.find(output)
        if output is None or known is not None:
            given = None if output is None or known is None else (output, known)
            for key in signals_of(said):
                self._reader.faults.extend(self._signals.check(file, key, output=given))

    def _output_of(self, file: WorkflowFile) -> str | None:
        """Return the name of the schema of what a phase gives: its own, or that of its artifact."""
        said = file.front
        artifact = self._files[ARTIFACTS].get(said.get("artifact"))
        found: str | None = said.get("output_schema")
        return self._schemas.of_artifact(artifact) if found is None and artifact is not None else found

    def _check_output(self, file: WorkflowFile) -> None:
        """Refuse a phase whose artifact has another schema than its output."""
        said: Any = file.front
        artifact = self._files[ARTIFACTS].get(said.get("artifact"))
        if artifact is None or "output_schema" not in said:
            return
        needed = self._schemas.of_artifact(artifact)
        if said["output_schema"] != needed:
            why = f"output_schema: {said['output_schema']}, but the artifact {artifact.id} has the schema {needed}"
            self._refuse(f"{why}; leave output_schema out, or correct one of them", file.place("output_schema"))

    def _check_id(self, file: WorkflowFile, axis: str, name: str, at: tuple[str | int, ...]) -> None:
        known = self._files[axis]
        if name not in known and (axis, name) not in self._faulty:
            why = f"{at[0]}: {name} is not one of the {axis}{suggest(name, known)}"
            folder = f"{axis}/{name}-template.md" if axis == ARTIFACTS else f"{axis}/{name}.md"
            self._refuse(f"{why}; correct the id, or add {folder}", file.place(*at))

    def _refuse(self, why: str, place: str) -> None:
        self._reader.refuse("SOURCE_INVALID", why, place)

    # --- parts of a definition ----------------------------------------------------------------------------------------

    def _phase(self, file: WorkflowFile, following: str | None) -> Phase:
        said = file.front
        return Phase(
            id=file.id,
            next=following,
            advance_signal=said["advance_signal"],
            halt_signal=said.get("halt_signal"),
            personas=tuple(map(skill_name, said.get("agents_invoked", ()))),
            flow=said.get("flow", REVIEW),
            input_schema=said.get("input_schema"),
            output_schema=self._output_of(file),
            artifact=said.get("artifact"),
            policies=tuple(said.get("policies", ())),
            body=file.body.strip(),
            place=file.line,
        )

    def _find_personas(self, phases: Mapping[str, Phase]) -> dict[str, Persona]:
        named = {name for phase in phases.values() for name in phase.personas}
        found = {skill_name(name): each.persona for name, each in self._personas.items()}
        return {name: found[name] for name in sorted(named & found.keys())}

    def _find_artifacts(self, phases: Mapping[str, Phase]) -> dict[str, Artifact]:
        named = sorted({phase.artifact for phase in phases.values() if phase.artifact})
        return {name: self._artifact(self._files[ARTIFACTS][name]) for name in named}

    def _artifact(self, file: WorkflowFile) -> Artifact:
        said = file.front
        return Artifact(
            pattern=said["pattern"],
            folder=said["folder"],
            schema=self._schemas.of_artifact(file),
            template=file.body.strip(),
            place=file.line,
        )

    def _find_schemas(self, phases: Mapping[str, Phase]) -> dict[str, Any]:
        named = {name for phase in phases.values() for name in (phase.input_schema, phase.output_schema) if name}
        return {name: self._schemas.find(name) for name in sorted(named)}


def _cycle(file: WorkflowFile) -> Cycle:
    said = file.front
    bounds = said.get("loop_bounds", {})
    return Cycle(
        id=file.id,
        title=said.get("title", f"The cycle {file.id}"),
        entry_phase=said["entry_phase"],
        phases=tuple(said["phases"]),
        done=said.get("exit_conditions", {}).get("done"),
        max_generations=bounds.get("max_generations", GENERATIONS),
        max_phase_runs=bounds.get("max_phase_runs", PHASE_RUNS),
        policies=tuple(said.get("policies", ())),
        place=file.line,
    )
