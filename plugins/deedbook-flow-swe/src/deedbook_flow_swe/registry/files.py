"""Find and read the files of pipelines: the folder ``swe/`` of ``.system``, and those of packs.

| file | what it is | schema |
|---|---|---|
| ``pipeline.yaml`` | a pipeline | ``pipeline_v2``, ``pipeline_v1`` |
| ``contracts/<phase>.yaml`` | the contract of a phase | ``contract_v2``, ``contract_v1`` |
| ``routing/<id>.yaml`` | a routing policy | ``routing_policy_v1`` |
| ``schemas/<name>.json`` | the schema of a file that phases give | a JSON Schema |
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import attrs

from deedbook.format.schema import suggest
from deedbook.workspace.documents import Document, parse_yaml
from deedbook.workspace.trees import SourceReader, SourceTree
from deedbook_flow_workflow.registry.overrides import FileIndex, IndexedFile

FOLDER: Final = "swe"
PIPELINES: Final = "pipelines"
CONTRACTS: Final = "contracts"
ROUTING: Final = "routing"
SCHEMAS: Final = "schemas"
FORMS: Final[Mapping[str, str]] = {
    PIPELINES: "pipeline_v2",
    CONTRACTS: "contract_v2",
    ROUTING: "routing_policy_v1",
}
"""The newest schema of the files on each axis; those of `SCHEMAS` are JSON Schemas."""
_OLDER: Final[Mapping[tuple[str, str], str]] = {
    (PIPELINES, "v1"): "pipeline_v1",
    (CONTRACTS, "v1"): "contract_v1",
}
"""The schemas of older versions, by axis and version."""

AGENT_HOLE: Final = "{agent}"
"""Stands for the chosen agent in the scope of a contract that names none."""
_PIPELINE: Final = "pipeline.yaml"
_FOLDERS: Final[Mapping[str, str]] = {CONTRACTS: ".yaml", ROUTING: ".yaml", SCHEMAS: ".json"}
_READ_ME: Final = "README.md"
_ID_KEYS: Final[Mapping[str, str]] = {PIPELINES: "id", CONTRACTS: "phase", ROUTING: "id", SCHEMAS: "$id"}
_PROSE: Final[Mapping[str, str]] = {
    "validation_rules": "is prose, which no machine checks; write a rule with id and one of schema, cel and command",
    "forbidden_actions": "is prose, which no machine checks; write one of write: GLOB, read: GLOB and use: ABILITY",
}


@attrs.frozen(kw_only=True)
class PipelineFile(IndexedFile):
    """A file of a pipeline. *agent* is the one that was chosen for a contract that names none."""

    agent: str | None = None

    @property
    def front(self) -> Any:
        """The value of the document; a chosen *agent* stands in it, also for ``{agent}`` in the scope."""
        said: Any = self.document.value
        if self.agent is None:
            return said
        scope = said["context_scope"]
        include = [each.replace(AGENT_HOLE, self.agent) for each in scope["include"]]
        return {**said, "agent": self.agent, "context_scope": {**scope, "include": include}}

    @property
    def line(self) -> str:
        """``file:line`` of the id."""
        return self.document.line(f"/{_ID_KEYS[self.axis]}")


class PipelineFiles:
    """The files by axis and id. Faults are reported to *reader*.

    *faulty* has the ids of files with faults, so that a file that names them is not reported as well.
    """

    def __init__(self, reader: SourceReader) -> None:
        self._index: FileIndex[PipelineFile] = FileIndex((*FORMS, SCHEMAS), reader)
        self._reader = reader
        self.files = self._index.files
        self.faulty: set[tuple[str, str]] = set()

    def read(self, tree: SourceTree, packs: Sequence[SourceTree]) -> None:
        """Read the files of the *packs* and of *tree*."""
        for pack in packs:
            self._read_folder(pack, pack.label)
        self._read_folder(tree, None)
        self._index.check_overrides()

    def _read_folder(self, tree: SourceTree, pack: str | None) -> None:
        folder = tree.path(FOLDER)
        if not tree.folder.exists(folder):
            return
        for entry in self._reader.list_entries(tree, folder):
            path = f"{folder}/{entry.name}"
            if entry.folder and entry.name in _FOLDERS:
                self._read_axis(tree, entry.name, pack)
            elif not entry.folder and entry.name == _PIPELINE:
                self._add(tree, PIPELINES, path, pack)
            elif entry.name != _READ_ME:
                known = (_PIPELINE, *_FOLDERS)
                why = f"is not read{suggest(entry.name, known)}; read are {', '.join(known)}"
                self._refuse(why, tree.display(path))

    def _read_axis(self, tree: SourceTree, axis: str, pack: str | None) -> None:
        folder, suffix = tree.path(f"{FOLDER}/{axis}"), _FOLDERS[axis]
        for entry in self._reader.list_entries(tree, folder):
            path = f"{folder}/{entry.name}"
            if not entry.folder and entry.name.endswith(suffix):
                self._add(tree, axis, path, pack)
            elif entry.folder or entry.name != _READ_ME:
                self._refuse(f"is not read; the files of {axis} end in {suffix}", tree.display(path))

    def _add(self, tree: SourceTree, axis: str, path: str, pack: str | None) -> None:
        file = self._read_file(tree, axis, path, pack)
        if file is None or not self._index.add(file):
            self.faulty.add((axis, PurePosixPath(path).stem))

    def _read_file(self, tree: SourceTree, axis: str, path: str, pack: str | None) -> PipelineFile | None:
        raw = self._reader.read_bytes(tree, path)
        document = None if raw is None else self._reader.collect(tree, parse_yaml, raw, tree.display(path))
        if document is None or not self._is_mapping(document) or self._has_prose(axis, document):
            return None
        if axis in FORMS and not self._reader.check_document(document, _find_form(axis, document)):
            return None
        stem, key = PurePosixPath(path).stem, _ID_KEYS[axis]
        found = document.value.get(key, stem) if isinstance(document.value, dict) else stem
        if axis != PIPELINES and found != stem:
            self._refuse(f"{key}: {found} is in the file {PurePosixPath(path).name}; both must have the same name",
                         document.place(f"/{key}"))  # fmt: skip
            return None
        return PipelineFile(axis=axis, id=str(found), document=document, pack=pack)

    def _is_mapping(self, document: Document) -> bool:
        if isinstance(document.value, dict):
            return True
        self._refuse("is no mapping (key: value)", document.place())
        return False

    def _has_prose(self, axis: str, document: Document) -> bool:
        """Return whether a rule or an action of a contract is a sentence, which is a fault."""
        said = document.value
        found = False
        if axis != CONTRACTS or not isinstance(said, dict):
            return False
        for key, why in _PROSE.items():
            listed = said.get(key)
            for index, each in enumerate(listed if isinstance(listed, list) else ()):
                if isinstance(each, str):
                    self._refuse(f"{key}: {each[:80]!r} {why}", document.place(f"/{key}/{index}"))
                    found = True
        return found

    def _refuse(self, why: str, place: str) -> None:
        self._reader.refuse("SOURCE_INVALID", why, place)


def _find_form(axis: str, document: Document) -> str:
    """Return the name of the schema of a file, by its version; the newest one for an unknown version."""
    version = document.value.get("schema_version")  # type: ignore[union-attr] # a mapping
    return _OLDER.get((axis, str(version)), FORMS[axis])
