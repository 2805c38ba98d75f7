"""The schemas that contracts may name: those in ``swe/schemas/``, and those of the files that the runner writes."""

from typing import Any, Final

from deedbook import Object
from deedbook.format import schema
from deedbook.format.schema import Schemas, data_folder, suggest
from deedbook.workspace.trees import SourceReader
from deedbook_flow_swe.definition import SHIPPED

from .files import SCHEMAS, PipelineFile, PipelineFiles

_FORM: Final = "^[a-z][a-z0-9_]{0,100}_v[1-9][0-9]*$"


class SchemaNames:
    """The schemas that are *known*, by name. Faults are reported to *reader*."""

    def __init__(self, found: PipelineFiles, reader: SourceReader) -> None:
        self._reader = reader
        self._faulty = found.faulty
        shipped = Schemas.load(data_folder("schemas"))
        self.known: dict[str, Object] = {name: shipped.document(name) for name in SHIPPED}
        named = schema.foreign({"type": "string", "pattern": _FORM}, place="")
        for name, file in found.files[SCHEMAS].items():
            if name in SHIPPED:
                self._refuse(f"{name} is a schema of the runner; choose another name", file.line)
            elif not named.valid(name):
                self._refuse(f"{name} is no name of a schema; name it like spec_v1.json", file.line)
            elif self._is_sound(file):
                self.known[name] = file.front
            else:
                self._faulty.add((SCHEMAS, name))

    def check(self, name: str, place: str) -> None:
        """Refuse a name that no schema has."""
        if name not in self.known and (SCHEMAS, name) not in self._faulty:
            why = f"{name} is no schema{suggest(name, self.known)}; correct the name, or add swe/schemas/{name}.json"
            self._refuse(why, place)

    def _is_sound(self, file: PipelineFile) -> bool:
        said: Any = file.front
        flaws = schema.lint(said)
        for flaw in flaws:
            self._reader.refuse("SCHEMA_REFUSED", flaw.message, file.document.place(flaw.pointer))
        return not flaws

    def _refuse(self, why: str, place: str) -> None:
        self._reader.refuse("SOURCE_INVALID", why, place)
