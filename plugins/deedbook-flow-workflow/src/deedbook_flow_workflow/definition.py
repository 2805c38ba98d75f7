"""A compiled cycle: what the settings of an ability ``workflow/<cycle>`` hold, and nothing that is still in a file.

Personas and artifacts are named as the phases refer to them; a persona's name is that of its skill in the charter.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, Self

import attrs

from deedbook import Object
from deedbook.contract import AbilityDeclaration
from deedbook.contract.pointers import join_pointer

AGGREGATE: Final = "review_aggregate_v1"
"""The schema of what the findings of a phase come to."""
FINDINGS: Final = "findings_v1"
"""The schema of what a persona reports."""
DISPATCH: Final = "dispatch"
FINDING: Final = "finding"
GENERATION: Final = "generation"
COVERAGE: Final = "coverage"
SUBJECTS: Final = frozenset({DISPATCH, FINDING, GENERATION, COVERAGE})
"""What a cycle asks its policies about: who works, which findings count, whether a phase runs again or goes on."""
FLOW: Final = "workflow"
"""The flow that runs cycles."""
PREFIX: Final = f"{FLOW}/"
"""What the ids of the abilities of cycles begin with."""
REVIEW: Final = "review"
"""The flow of a phase that names none."""
NOTE: Final = "workflow_phase"
"""The note in the execution log about one run of a phase."""
WRITER: Final = "workflow-artifact"
"""The flow that writes the files of artifacts, and its ability."""
WRITE: Final = "file-write"
"""The ability with which that flow writes a file, if its settings name no other one."""


@attrs.frozen(kw_only=True)
class Cycle:
    """A cycle. *done* ends it before its last phase; ``None``: only its last phase does.

    *max_generations* is how often one phase may run in a row, *max_phase_runs* how many runs there may be in all.
    """

    id: str
    title: str
    entry_phase: str
    phases: tuple[str, ...]
    done: str | None
    max_generations: int
    max_phase_runs: int
    policies: tuple[str, ...]
    place: str


@attrs.frozen(kw_only=True)
class Phase:
    """A phase. *next* is the one that follows, *personas* are names of skills, *flow* is an ability."""

    id: str
    next: str | None
    advance_signal: str
    halt_signal: str | None
    personas: tuple[str, ...]
    flow: str
    input_schema: str | None
    output_schema: str | None
    artifact: str | None
    policies: tuple[str, ...]
    body: str
    place: str

    @property
    def is_review(self) -> bool:
        """Whether its personas give findings only, so that no persona may review an output of its own here."""
        return self.output_schema in (None, AGGREGATE, FINDINGS)


@attrs.frozen(kw_only=True)
class Persona:
    """A persona: its *role*, its *id* among those of the role, and the globs of paths that it *writes*.

    Without *limits_writes* it names no paths, and may write what its tools and the policies allow.
    """

    role: str
    id: str
    writes: tuple[str, ...]
    place: str
    limits_writes: bool = True


@attrs.frozen(kw_only=True)
class Artifact:
    """A kind of file: the *pattern* of its names, its *folder*, the name of its *schema*, and the *template*."""

    pattern: str
    folder: str
    schema: str
    template: str
    place: str


@attrs.frozen(kw_only=True)
class Definition:
    """A compiled cycle with its phases, personas, artifacts and the schemas that they name."""

    cycle: Cycle
    phases: Mapping[str, Phase]
    personas: Mapping[str, Persona]
    artifacts: Mapping[str, Artifact]
    schemas: Mapping[str, Object]

    @classmethod
    def parse(cls, settings: Object) -> Self:
        """Return the definition in *settings*, which match `SETTINGS`."""
        said: Any = settings
        cycle = dict(said["cycle"])
        done, bounds = cycle.pop("exit_conditions").get("done"), cycle.pop("loop_bounds")
        return cls(
            cycle=Cycle(**_tuples({**cycle, **bounds, "done": done})),
            phases={name: Phase(**_tuples(body)) for name, body in said["phases"].items()},
            personas={name: Persona(**_tuples(body)) for name, body in said["personas"].items()},
            artifacts={name: Artifact(**body) for name, body in said["artifacts"].items()},
            schemas=said["schemas"],
        )

    def as_settings(self) -> dict[str, Any]:
        """Return the settings, which `parse` reads."""
        cycle = _lists(attrs.asdict(self.cycle))
        done, bounds = cycle.pop("done"), ("max_generations", "max_phase_runs")
        return {
            "cycle": {
                **{key: value for key, value in cycle.items() if key not in bounds},
                "exit_conditions": {} if done is None else {"done": done},
                "loop_bounds": {key: cycle[key] for key in bounds},
            },
            "phases": {name: _lists(attrs.asdict(phase)) for name, phase in self.phases.items()},
            "personas": {name: _lists(attrs.asdict(persona)) for name, persona in self.personas.items()},
            "artifacts": {name: attrs.asdict(artifact) for name, artifact in self.artifacts.items()},
            "schemas": dict(self.schemas),
        }


def check_settings(declaration: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    """Yield each name in hand-written settings that leads nowhere; the settings match `SETTINGS`."""
    said: Any = declaration.settings
    cycle, phases = said["cycle"], said["phases"]
    yield from _find_missing("/with/cycle/entry_phase", [cycle["entry_phase"]], phases, "phase")
    yield from _find_missing("/with/cycle/phases", cycle["phases"], phases, "phase")
    for name, phase in phases.items():
        at = f"/with{join_pointer('phases', name)}"
        schemas = [phase[key] for key in ("input_schema", "output_schema") if phase[key] is not None]
        yield from _find_missing(f"{at}/next", [phase["next"]] if phase["next"] else [], phases, "phase")
        yield from _find_missing(f"{at}/personas", phase["personas"], said["personas"], "persona")
        yield from _find_missing(
            f"{at}/artifact", [phase["artifact"]] if phase["artifact"] else [], said["artifacts"], "artifact"
        )
        yield from _find_missing(f"{at}/output_schema", schemas, said["schemas"], "schema")
        flows = [phase["flow"], *([WRITER] if phase["artifact"] else [])]
        yield from _find_missing(f"{at}/flow", flows, declaration.uses, "ability in uses")
    for name, artifact in said["artifacts"].items():
        at = f"/with{join_pointer('artifacts', name)}/schema"
        yield from _find_missing(at, [artifact["schema"]], said["schemas"], "schema")


def _find_missing(at: str, names: Iterable[str], known: Container[str], noun: str) -> Iterator[tuple[str, str]]:
    yield from ((at, f"there is no {noun} {name!r}") for name in names if name not in known)


def _tuples(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in body.items()}


def _lists(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in body.items()}


# --- the schema of the settings ---------------------------------------------------------------------------------------

_TEXT: Final = {"type": "string", "minLength": 1}
_ANY_TEXT: Final = {"type": "string"}
_TEXT_OR_NULL: Final = {"type": ["string", "null"], "minLength": 1}
_FLAG: Final = {"type": "boolean"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_COUNT: Final = {"type": "integer", "minimum": 1}


def _object(properties: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(properties),
        "properties": {**properties, **(optional or {})},
        "additionalProperties": False,
    }


def _map(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


SETTINGS: Final[Object] = _object(
    {
        "cycle": _object(
            {
                "id": _TEXT,
                "title": _TEXT,
                "entry_phase": _TEXT,
                "phases": {**_TEXTS, "minItems": 1},
                "exit_conditions": _object({}, {"done": _TEXT}),
                "loop_bounds": _object({"max_generations": _COUNT, "max_phase_runs": _COUNT}),
                "policies": _TEXTS,
                "place": _TEXT,
            }
        ),
        "phases": _map(
            _object(
                {
                    "id": _TEXT,
                    "next": _TEXT_OR_NULL,
                    "advance_signal": _TEXT,
                    "halt_signal": _TEXT_OR_NULL,
                    "personas": _TEXTS,
                    "flow": _TEXT,
                    "input_schema": _TEXT_OR_NULL,
                    "output_schema": _TEXT_OR_NULL,
                    "artifact": _TEXT_OR_NULL,
                    "policies": _TEXTS,
                    "body": _ANY_TEXT,
                    "place": _TEXT,
                }
            )
        ),
        "personas": _map(
            _object({"role": _TEXT, "id": _TEXT, "writes": _TEXTS, "place": _TEXT}, {"limits_writes": _FLAG})
        ),
        "artifacts": _map(
            _object({"pattern": _TEXT, "folder": _TEXT, "schema": _TEXT, "template": _ANY_TEXT, "place": _TEXT})
        ),
        "schemas": _map({"type": "object"}),
    }
)
"""The JSON Schema of a compiled cycle."""
