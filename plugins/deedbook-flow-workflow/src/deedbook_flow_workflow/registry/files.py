"""Find and read workflow files: one folder for each axis, one file for each id.

A file lies in ``workflows/`` of ``.system`` or of a pack, or in a folder that ``roots: {workflows: […]}`` lists. An id
is taken once on its axis. Only a file of the workspace replaces that of a pack, by ``overrides: <pack>``.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import attrs

from deedbook.contract.pointers import join_pointer
from deedbook.format.schema import suggest
from deedbook.workspace.documents import Document, parse_front_matter
from deedbook.workspace.sources import list_entries
from deedbook.workspace.trees import SourceReader, SourceTree

from .overrides import FileIndex, IndexedFile

CYCLES: Final = "cycles"
PHASES: Final = "phases"
POLICIES: Final = "policies"
PERSONAS: Final = "personas"
ARTIFACTS: Final = "artifacts"
SCHEMAS: Final[Mapping[str, str]] = {
    CYCLES: "cycle_v1",
    PHASES: "phase_v1",
    POLICIES: "workflow_policy_v1",
    PERSONAS: "skill_frontmatter_v1",
    ARTIFACTS: "artifact_template_v1",
}
"""The schema of the front matter on each axis."""
ROLES: Final = ("reviewer", "researcher", "document-reviewer")
"""The roles that personas specialise."""
TEMPLATE: Final = "-template"

_FOLDER: Final = "workflows"
_INLINED: Final = ("persona", "personas", "agents")
_READ_ME: Final = "README.md"


@attrs.frozen(kw_only=True)
class WorkflowFile(IndexedFile):
    """A file: its axis and id (a persona's is ``ROLE/ID``), front matter and text; *raw* has its bytes."""

    body: str = attrs.field(repr=False)
    raw: bytes = attrs.field(repr=False)

    @property
    def line(self) -> str:
        """``file:line`` of the id."""
        return self.document.line("/name" if self.axis == PERSONAS else "/id")


class Library:
    """The workflow files of a workspace, by axis and id. Faults are reported to *reader*.

    *faulty* has the ids of files with faults, so that a file that names them is not reported as well.
    """

    def __init__(self, reader: SourceReader) -> None:
        self._index: FileIndex[WorkflowFile] = FileIndex(SCHEMAS, reader)
        self.files = self._index.files
        self.faulty: set[tuple[str, str]] = set()
        self._reader = reader

    def read(self, tree: SourceTree, roots: Sequence[str], packs: Sequence[SourceTree]) -> None:
        """Read the files of the *packs*, of *tree* and of its folders *roots*."""
        for pack in packs:
            self._read_folder(pack, _FOLDER, pack.label)
        own = [tree.path(_FOLDER)] if tree.folder.exists(tree.path(_FOLDER)) else []
        for folder in (*own, *roots):
            self._read_folder(tree, folder, None)
        self._index.check_overrides()

    # --- folders ------------------------------------------------------------------------------------------------------

    def _read_folder(self, tree: SourceTree, folder: str, pack: str | None) -> None:
        for entry in self._reader.list_entries(tree, folder):
            path = f"{folder}/{entry.name}"
            if entry.folder and entry.name == PERSONAS:
                self._read_personas(tree, path, pack)
            elif entry.folder and entry.name in SCHEMAS:
                self._refuse_folders(tree, path)
                self._read_axis(tree, entry.name, path, pack)
            elif entry.folder or (entry.name.endswith(".md") and entry.name != _READ_ME):
                why = f"is not read{suggest(entry.name, SCHEMAS)}; the folders are {', '.join(SCHEMAS)}"
                self._refuse(why, tree.display(path))

    def _read_personas(self, tree: SourceTree, folder: str, pack: str | None) -> None:
        for entry in self._reader.list_entries(tree, folder):
            path = f"{folder}/{entry.name}"
            if entry.folder and entry.name in ROLES:
                self._refuse_folders(tree, path)
                self._read_axis(tree, PERSONAS, path, pack, f"{entry.name}/")
            elif entry.folder:
                why = f"is no role of personas{suggest(entry.name, ROLES)}; the roles are {', '.join(ROLES)}"
                self._refuse(why, tree.display(path))
            elif entry.name.endswith(".md") and entry.name != _READ_ME:
                self._refuse(f"is not read; put it into the folder of its role: {', '.join(ROLES)}", tree.display(path))

    def _refuse_folders(self, tree: SourceTree, folder: str) -> None:
        for entry in list_entries(tree.folder, folder)[0]:
            if entry.folder:
                why = "is a folder, which is not read; move its files up"
                self._refuse(why, tree.display(f"{folder}/{entry.name}"))

    def _read_axis(self, tree: SourceTree, axis: str, folder: str, pack: str | None, prefix: str = "") -> None:
        before = len(self._reader.faults)
        paths = self._reader.list_files(tree, folder, ".md")
        unread = [str(each.place) for each in self._reader.faults[before:]]
        for path in paths:
            if path.rpartition("/")[2] != _READ_ME:
                file = self._read_file(tree, axis, path, pack, prefix)
                if file is None or not self._index.add(file):
                    unread.append(path)
        for path in unread:
            stem = PurePosixPath(path).stem
            self.faulty.add((axis, prefix + (stem.removesuffix(TEMPLATE) if axis == ARTIFACTS else stem)))

    # --- one file -----------------------------------------------------------------------------------------------------

    def _read_file(self, tree: SourceTree, axis: str, path: str, pack: str | None, prefix: str) -> WorkflowFile | None:
        raw = self._reader.read_bytes(tree, path)
        found = None if raw is None else self._reader.collect(tree, parse_front_matter, raw, tree.display(path))
        if raw is None or found is None:
            return None
        document, body = found
        if not document.value:
            why = f"no front matter; begin the file with a line ---, then the keys of {SCHEMAS[axis]}"
            self._refuse(why, document.place())
            return None
        if self._inlines_persona(axis, document) or not self._reader.check_document(document, SCHEMAS[axis]):
            return None
        said: Any = document.value
        name = prefix + said["name" if axis == PERSONAS else "id"]
        file = WorkflowFile(axis=axis, id=name, document=document, body=body, raw=raw, pack=pack)
        return file if self._is_named_well(file, path) else None

    def _is_named_well(self, file: WorkflowFile, path: str) -> bool:
        """Return whether the file's name is its id."""
        stem, suffix = PurePosixPath(path).stem, TEMPLATE if file.axis == ARTIFACTS else ""
        own = file.id.rpartition("/")[2]
        if stem == f"{own}{suffix}":
            return True
        key = "name" if file.axis == PERSONAS else "id"
        self._refuse(f"{key}: {own} is in the file {stem}.md; name the file {own}{suffix}.md", file.place(key))
        return False

    def _inlines_persona(self, axis: str, document: Document) -> bool:
        """Return whether a cycle or a phase describes a persona, which is a fault."""
        said: Any = document.value
        invoked = said.get("agents_invoked")
        found: list[tuple[str, ...]] = []
        if axis in (CYCLES, PHASES):
            found += [(key,) for key in _INLINED if key in said]
        if axis == PHASES and isinstance(invoked, list):
            found += [("agents_invoked", str(at)) for at, each in enumerate(invoked) if isinstance(each, dict)]
        for keys in found:
            why = "a persona is a file of its own; move it to personas/ROLE/ID.md, and name ROLE/ID in agents_invoked"
            self._refuse(f"{keys[0]}: {why}", document.place(join_pointer(*keys), key=len(keys) == 1))
        return bool(found)

    def _refuse(self, why: str, place: str) -> None:
        self._reader.refuse("SOURCE_INVALID", why, place)
