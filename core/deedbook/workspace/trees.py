"""The files of a workspace's ``.system``, or of a pack: list, read and check them, and collect every fault."""

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import attrs

from deedbook.contract.pointers import find_value
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, SourceError, fault
from deedbook.format.files import DirectoryEntry, Folder
from deedbook.format.schema import Schemas, Validator, Violation

from .declarations import Workspace
from .documents import Document, parse_front_matter, parse_yaml
from .migrations import find_old_guards, guard_message
from .sources import MAX_BYTES, SYSTEM, TESTS, list_entries, list_files, read

T = TypeVar("T")
P = ParamSpec("P")

_SHORT: Final = 40


@attrs.frozen
class SourceTree:
    """A folder with the layout of ``.system``: *base* is where it begins, *label* precedes its paths in messages."""

    folder: Folder
    base: str = ""
    label: str = ""

    def path(self, name: str) -> str:
        """Return the path of something in the tree."""
        return f"{self.base}/{name}" if self.base else name

    def display(self, path: str) -> str:
        """Return *path* as messages show it."""
        return f"{self.label}: {path}" if self.label else path

    def tests(self, name: str) -> list[str]:
        """Return the paths of test files in a folder of the tree."""
        return [path for path in list_files(self.folder, self.path(name), ".yaml")[0] if path.endswith(TESTS)]

    def yaml(self, path: str) -> Document:
        """Return a YAML file of the tree; raises `SourceError`, with the tree's label before each place."""
        try:
            return parse_yaml(read(self.folder, path), self.display(path))
        except SourceError as problem:
            raise SourceError(*map(self.label_error, problem.errors)) from None

    def label_error(self, error: DomainError) -> DomainError:
        """Return *error* with the tree's label before its place."""
        place = error.place or ""
        labelled = not self.label or place.startswith(self.label)
        return error if labelled else attrs.evolve(error, place=self.display(place))


def list_trees(root: Folder, workspace: Workspace) -> list[SourceTree]:
    """Return the trees of *workspace*, whose folder is *root*: its own ``.system`` first, then each pack."""
    return [SourceTree(root, SYSTEM), *(SourceTree(pack.folder, "", pack.label) for pack in workspace.packs.values())]


class SourceReader:
    """Reads files of trees; it collects faults instead of stopping at the first.

    *digests* has the SHA-256 of every file that was read from trees without a label, by its path.
    """

    def __init__(self, schemas: Schemas) -> None:
        self.faults: list[DomainError] = []
        self.digests: dict[str, str] = {}
        self._schemas = schemas

    def list_files(self, tree: SourceTree, folder: str, suffix: str) -> list[str]:
        """Return the paths of the files of a folder that end in *suffix*."""
        paths, faults = list_files(tree.folder, folder, suffix)
        self.faults += map(tree.label_error, faults)
        return paths

    def list_entries(self, tree: SourceTree, folder: str) -> list[DirectoryEntry]:
        """Return the entries of a folder."""
        found, faults = list_entries(tree.folder, folder)
        self.faults += map(tree.label_error, faults)
        return found

    def read_yaml(self, tree: SourceTree, path: str, schema: str) -> Document | None:
        """Return a YAML file that matches its schema; anything else is a fault."""
        raw = self.read_bytes(tree, path)
        return None if raw is None else self.parse_checked(tree, path, raw, schema)

    def parse_checked(self, tree: SourceTree, path: str, raw: bytes, schema: str) -> Document | None:
        """Return the YAML *raw* of the file at *path*, if it matches its schema; anything else is a fault."""
        document = self.collect(tree, parse_yaml, raw, tree.display(path))
        return document if document is not None and self.check_document(document, schema) else None

    def check_document(self, document: Document, schema: str) -> bool:
        """Return whether a document matches its schema; each violation is a fault."""
        old = list(find_old_guards(schema, document.value))
        for guard in old:
            why = guard_message(guard.rpartition("/")[2])
            self.refuse("SOURCE_INVALID", why, document.place(guard, key=True))
        violations = self.validator(schema).violations(document.value)
        for violation in violations:
            if violation.pointer and any(f"{guard}/".startswith(f"{violation.pointer}/") for guard in old):
                continue  # reported already
            unknown = violation.message.startswith("unknown key")
            said = f"{_quote_value(document, violation)}{violation.message}"
            why = f"{violation.path.removeprefix('$.')}: {said}" if violation.pointer else said
            self.refuse("SOURCE_INVALID", why, document.place(violation.pointer, key=unknown))
        return not violations and not old

    def read_markdown(self, tree: SourceTree, path: str) -> tuple[Document, str] | None:
        """Return the front matter of a Markdown file and the text after it; an invalid file is a fault."""
        raw = self.read_bytes(tree, path)
        return None if raw is None else self.collect(tree, parse_front_matter, raw, tree.display(path))

    def read_bytes(self, tree: SourceTree, path: str, limit: int = MAX_BYTES) -> bytes | None:
        """Return the bytes of a file and record their digest; an unreadable file is a fault."""
        found = self.collect(tree, read, tree.folder, path, limit)
        if not tree.label:
            self.digests[path] = canonical.digest(found or b"")
        return found

    def digest(self, tree: SourceTree, path: str) -> str:
        """Return the SHA-256 of a file, and record it."""
        return canonical.digest(self.read_bytes(tree, path) or b"")

    def record_digest(self, tree: SourceTree, path: str, limit: int) -> DomainError | None:
        """Record the digest of a file. If it cannot be read, return the error, which is no fault."""
        try:
            self.digests[path] = canonical.digest(read(tree.folder, path, limit))
        except DeedbookError as problem:
            return problem.error
        return None

    def collect(self, tree: SourceTree, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return the result of *make*, or collect the faults that it raises."""
        try:
            return make(*args, **kwargs)
        except DeedbookError as problem:
            self.faults += map(tree.label_error, problem.errors)
            return None

    def refuse(self, code: str, message: str, place: str) -> None:
        """Record a fault."""
        self.faults.append(fault(code, message, place=place))

    def validator(self, schema: str) -> Validator:
        """Return the validator of one form of file, interpreted because it runs only a few times."""
        return self._schemas.interpreted(schema)


def _quote_value(document: Document, violation: Violation) -> str:
    """Return the short value that is none of its schema's options.

    Schemas quote no value, but YAML is no secret.
    """
    if not violation.message.startswith("is not one of "):
        return ""
    value = find_value(document.value, violation.pointer, {})
    said = "" if isinstance(value, dict | list) else canonical.encode(value).decode()
    return f"{said} " if said and said.isprintable() and len(said) <= _SHORT else ""
