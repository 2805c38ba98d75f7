"""The schemas that phases and artifacts may name: those that are shipped, and those that an artifact's file holds."""

from collections.abc import Mapping
from typing import Any, Final

from deedbook import Object
from deedbook.contract.pointers import join_pointer
from deedbook.format import schema
from deedbook.format.schema import Schemas, data_folder, suggest
from deedbook.workspace.trees import SourceReader

from .files import WorkflowFile

SHIPPED: Final = (
    "brainstorm_v1",
    "finding_v1",
    "findings_v1",
    "lead_directive_v1",
    "learning_v1",
    "plan_v1",
    "plan_v2",
    "pulse_report_v1",
    "review_aggregate_v1",
    "review_result_v1",
    "solution_v1",
    "worker_report_v1",
)
"""The shipped schemas that workflows may name."""


class SchemaNames:
    """Schemas by name. A schema in an artifact's file is named by its ``$id``. Faults are reported to *reader*."""

    def __init__(self, artifacts: Mapping[str, WorkflowFile], reader: SourceReader) -> None:
        self._reader = reader
        self._shipped = Schemas.load(data_folder("schemas"))
        self._own: dict[str, tuple[Object, str]] = {}
        for file in artifacts.values():
            if isinstance(file.front["schema"], dict):
                self._add(file)
        for file in artifacts.values():
            if isinstance(file.front["schema"], str):
                self.check(file.front["schema"], file.place("schema"))

    def of_artifact(self, file: WorkflowFile) -> str:
        """Return the name of an artifact's schema."""
        said = file.front["schema"]
        return said if isinstance(said, str) else str(said.get("$id"))

    def check(self, name: str, place: str) -> None:
        """Refuse a name that no schema has."""
        known = (*SHIPPED, *self._own)
        if name not in known:
            why = f"{name} is no schema that workflows know{suggest(name, known)}; known: {', '.join(sorted(known))}"
            self._reader.refuse("SOURCE_INVALID", why, place)

    def find(self, name: str) -> Object | None:
        """Return the schema of that name, if workflows know it."""
        if name in self._own:
            return self._own[name][0]
        return self._shipped.document(name) if name in SHIPPED else None

    def _add(self, file: WorkflowFile) -> None:
        said: Any = file.front["schema"]
        name = said.get("$id")
        if not isinstance(name, str) or not name:
            why = "schema: expected $id, which is its name, such as release_note_v1"
            self._reader.refuse("SOURCE_INVALID", why, file.place("schema"))
            return
        if name in SHIPPED or name in self._own:
            where = self._own[name][1] if name in self._own else "the shipped schemas"
            why = f"schema: {name} is also in {where}; choose another $id"
            self._reader.refuse("SOURCE_INVALID", why, file.place("schema", "$id"))
            return
        for flaw in schema.lint(said):
            place = file.document.place(join_pointer("schema") + flaw.pointer)
            self._reader.refuse("SCHEMA_REFUSED", f"schema: {flaw.message}", place)
        self._own[name] = (said, file.line)
