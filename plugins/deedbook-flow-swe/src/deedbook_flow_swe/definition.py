"""A compiled pipeline: what the settings of an ability ``swe/<id>`` hold, and nothing that is still in a file; pure.

The paths of a definition begin at the workspace's root. `Definition.path` does the same for a path of the data folder.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, Self

import attrs
import cattrs

from deedbook import Object
from deedbook.contract import AbilityDeclaration
from deedbook.contract.pointers import find_value, follow_reference, join_pointer

from .contract import EARLIER, OWN, PASS_ON, REDO, Contract

FLOW: Final = "phase-pipeline"
"""The flow that runs pipelines."""
PREFIX: Final = "swe/"
"""What the ids of the abilities of pipelines begin with."""
TASK_SCHEMA: Final = "swe_task_v1"
"""The schema of a task."""
SHIPPED: Final = ("block_signal_v1", "gate_v1", "pipeline_state_v1", TASK_SCHEMA)
"""The schemas of files that the runner writes; contracts may name them."""
UNITS: Final = "units"
"""The key of the output that lists the units."""


@attrs.frozen(kw_only=True)
class Units:
    """Which phase lists the units, in which output, and which phase works on one at a time."""

    listed_by: str
    output: str
    worked_by: str


@attrs.frozen(kw_only=True)
class AgentSkill:
    """A skill of an agent: the Markdown *text* of the file at *path*, and the *digest* of that text.

    With *types*, it is for units of these types; with *mentions*, for units whose interfaces mention one of these
    words. With both, one is enough; with neither, it is for everything.
    """

    id: str
    name: str
    description: str
    path: str
    digest: str
    text: str
    types: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Definition:
    """A compiled pipeline.

    *severities* and *sizes* are in order, the highest and the smallest first. *abilities* has the ability for each use
    of the runner (``read``, ``write``, …). *routing* is a document of the form ``routing_policy_v1``, or ``None``.
    *schemas* are those that the contracts name, *skills* those of each agent, *places* the files by what they declare.
    """

    id: str
    title: str
    data: str
    phases: tuple[Contract, ...]
    units: Units | None
    escalate_after: int
    most_escalations: int
    severities: Mapping[str, tuple[str, ...]]
    sizes: tuple[str, ...]
    abilities: Mapping[str, str]
    human_triggers: str | None
    routing: Object | None
    schemas: Mapping[str, Object]
    skills: Mapping[str, tuple[AgentSkill, ...]]
    places: Mapping[str, str]

    @classmethod
    def parse(cls, settings: Object) -> Self:
        """Return the definition in *settings*, which match `SETTINGS`."""
        return _converter().structure(settings, cls)

    def as_settings(self) -> dict[str, Any]:
        """Return the settings, which `parse` reads."""
        made: dict[str, Any] = _converter().unstructure(self)
        return made

    @property
    def skill(self) -> str:
        """The name of the skill that allows what the runner and the agents may use."""
        return f"swe-{self.id}"

    def phase(self, name: str) -> Contract:
        """Return the contract of a phase; raises `KeyError`."""
        return self.phases[self.position(name)]

    def position(self, name: str) -> int:
        """Return the position of a phase in the pipeline, from 0; raises `KeyError`."""
        for index, contract in enumerate(self.phases):
            if contract.phase == name:
                return index
        raise KeyError(name)

    def previous(self, name: str) -> Contract | None:
        """Return the phase that a phase sends a task back to: the nearest earlier one that mends; ``None`` if none."""
        earlier = reversed(self.phases[: self.position(name)])
        return next((each for each in earlier if each.on_rollback != PASS_ON), None)

    def works_units(self, name: str) -> bool:
        """Return whether a phase runs once for each unit."""
        return self.units is not None and self.units.worked_by == name

    def path(self, name: str) -> str:
        """Return the path of something in the data folder."""
        return join_data(self.data, name)

    def priority(self, severity: str) -> str | None:
        """Return the priority of a severity, such as ``P0``; ``None`` for an unknown one."""
        return next((name for name, those in self.severities.items() if severity in those), None)

    def unit_schema(self) -> Object | None:
        """Return the schema of a unit, as the output that lists the units has it; ``None`` without units."""
        if self.units is None:
            return None
        listing = self.phase(self.units.listed_by)
        named = next((each.schema for each in listing.outputs if each.name == self.units.output), None)
        return None if named is None else find_unit_schema(self.schemas[named])


def join_data(data: str, name: str) -> str:
    """Return the path of *name* in the data folder *data*, from the workspace's root."""
    return name if data == "." else f"{data}/{name}"


def find_unit_schema(listing: Object) -> Object | None:
    """Return the schema of a unit in *listing*, the schema of an output that lists units; ``None`` if it has none."""
    root: Any = listing
    found: Any = _follow(root, find_value(root, join_pointer("properties", UNITS), None))
    item = _follow(root, found.get("items")) if isinstance(found, dict) else None
    if not isinstance(item, dict):
        return None
    return {**item, "$defs": root["$defs"]} if "$defs" in root else item


def unit_keys(unit: Object, above: str = "") -> Iterator[str]:
    """Yield the keys of a unit that placeholders may name, such as ``files`` and ``verification.tests``."""
    root: Any = unit
    for name, inner in root.get("properties", {}).items():
        yield f"{above}{name}"
        found = _follow(root, inner)
        if isinstance(found, dict) and not above:
            yield from unit_keys({**found, "$defs": root.get("$defs", {})}, f"{name}.")


def _follow(root: Any, schema: Any) -> Any:
    if isinstance(schema, dict) and "$ref" in schema:
        return follow_reference(root, schema["$ref"])
    return schema


def find_criteria(value: Any) -> list[Object]:
    """Return the criteria that an output lists, each with an id and a test."""
    rows = value.get("criteria") if isinstance(value, dict) else None
    listed = rows if isinstance(rows, list) else []
    return [each for each in listed if isinstance(each, dict) and {"id", "test"} <= each.keys()]


def check_settings(declaration: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    """Yield each name in hand-written settings that leads nowhere; the settings match `SETTINGS`."""
    definition = Definition.parse(declaration.settings)
    phases = [each.phase for each in definition.phases]
    if len(set(phases)) < len(phases):
        yield "/with/phases", "a phase appears twice"
    if definition.units is not None:
        for key in ("listed_by", "worked_by"):
            name = getattr(definition.units, key)
            if name not in phases:
                yield f"/with/units/{key}", f"there is no phase {name!r}"
    for use, name in definition.abilities.items():
        if name not in declaration.uses:
            yield f"/with{join_pointer('abilities', use)}", f"there is no ability in uses {name!r}"
    for index, contract in enumerate(definition.phases):
        for name in contract.schemas:
            if name not in definition.schemas:
                yield f"/with/phases/{index}", f"there is no schema {name!r}"


@cache
def _converter() -> cattrs.Converter:
    return cattrs.Converter(
        forbid_extra_keys=True, detailed_validation=False, unstruct_collection_overrides={tuple: list}
    )


# --- the schema of the settings ---------------------------------------------------------------------------------------

_TEXT: Final = {"type": "string", "minLength": 1}
_ANY_TEXT: Final = {"type": "string"}
_TEXT_OR_NULL: Final = {"type": ["string", "null"], "minLength": 1}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_COUNT: Final = {"type": "integer", "minimum": 0}
_FLAG: Final = {"type": "boolean"}
_OBJECT: Final = {"type": "object"}


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(members), "properties": members, "additionalProperties": False}


def _map(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _list_of(**members: Any) -> dict[str, Any]:
    return {"type": "array", "items": _object(**members)}


_COMMAND: Final = _object(
    ability=_TEXT,
    reads=_TEXT,
    writes=_TEXT,
    schema=_TEXT,
    args=_OBJECT,
    each={"enum": ["task", "unit"]},
    runs={"enum": ["before", "after"]},
)
_CONTRACT: Final = _object(
    phase=_TEXT,
    version=_COUNT,
    agent=_TEXT,
    objective=_TEXT,
    tier=_TEXT,
    tokens=_COUNT,
    folder=_TEXT,
    inputs=_list_of(name=_TEXT, path=_TEXT, schema=_TEXT_OR_NULL, many=_FLAG, shown=_FLAG),
    outputs=_list_of(name=_TEXT, path=_TEXT, schema=_TEXT_OR_NULL, many=_FLAG, at_least=_COUNT),
    rules=_list_of(
        id=_TEXT,
        severity=_TEXT,
        message=_TEXT,
        cel=_TEXT_OR_NULL,
        schema=_TEXT_OR_NULL,
        output=_TEXT_OR_NULL,
        command=_or_null(_COMMAND),
        mends={"enum": [OWN, EARLIER]},
    ),
    mutations=_TEXTS,
    rollback=_object(path=_TEXT, reason_required=_FLAG, missing_required=_FLAG),
    scope=_object(include=_TEXTS, exclude=_TEXTS, select=_map({"enum": ["tags"]}), skills=_FLAG, persona=_FLAG),
    gate=_object(passed=_TEXT, blocked=_TEXT, human=_TEXT_OR_NULL),
    forbidden_writes=_TEXTS,
    forbidden_reads=_TEXTS,
    forbidden_uses=_TEXTS,
    on_rollback={"enum": [REDO, PASS_ON]},
    tokens_request=_COUNT,
    tokens_each_criterion=_COUNT,
    tokens_each_unit=_map(_COUNT),
)
SETTINGS: Final[Object] = _object(
    id=_TEXT,
    title=_TEXT,
    data=_TEXT,
    phases={"type": "array", "minItems": 1, "items": _CONTRACT},
    units=_or_null(_object(listed_by=_TEXT, output=_TEXT, worked_by=_TEXT)),
    escalate_after={"type": "integer", "minimum": 1},
    most_escalations={"type": "integer", "minimum": 1},
    severities=_map(_TEXTS),
    sizes=_TEXTS,
    abilities=_map(_TEXT),
    human_triggers=_TEXT_OR_NULL,
    routing=_or_null(_OBJECT),
    schemas=_map(_OBJECT),
    skills=_map(
        _list_of(
            id=_TEXT,
            name=_TEXT,
            description=_ANY_TEXT,
            path=_TEXT,
            digest=_TEXT,
            text=_ANY_TEXT,
            types=_TEXTS,
            mentions=_TEXTS,
        )
    ),
    places=_map(_TEXT),
)
"""The JSON Schema of a compiled pipeline."""
