"""The files of a workspace's ``.system``, or of a pack: listed, read, checked; every fault collected."""

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

import attrs

from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, SourceError, fault
from deedbook.format.files import Folder, Found
from deedbook.format.schema import Schemas, Validator, Violation

from .declarations import Workspace
from .documents import MAX_BYTES, Document, parse_front_matter, parse_yaml
from .migrations import guard_message, old_guards
from .sources import SYSTEM, TESTS, entries, files, read

T = TypeVar("T")
P = ParamSpec("P")

_SHORT: Final = 40


@attrs.frozen
class Tree:
    """A folder with the layout of ``.system``: *base* is where it begins, *label* what messages say before a path."""

    folder: Folder
    base: str = ""
    label: str = ""

    def path(self, name: str) -> str:
        """Return the path of something in the tree."""
        return f"{self.base}/{name}" if self.base else name

    def shown(self, path: str) -> str:
        """Return *path* as messages show it."""
        return f"{self.label}: {path}" if self.label else path

    def tests(self, name: str) -> list[str]:
        """Return the paths of the files in a folder of the tree that hold tests of what stands beside them."""
        return [path for path in files(self.folder, self.path(name), ".yaml")[0] if path.endswith(TESTS)]

    def yaml(self, path: str) -> Document:
        """Return a YAML file of the tree; raises `SourceError`, with the tree's label before each place."""
        try:
            return parse_yaml(read(self.folder, path), self.shown(path))
        except SourceError as problem:
            raise SourceError(*map(self.explained, problem.errors)) from None

    def explained(self, error: DomainError) -> DomainError:
        """Return *error* with the tree's label before its place."""
        place = error.place or ""
        labelled = not self.label or place.startswith(self.label)
        return error if labelled else attrs.evolve(error, place=self.shown(place))


def trees(root: Folder, workspace: Workspace) -> list[Tree]:
    """Return the trees of *workspace*, whose folder is *root*: its own ``.system`` first, then each pack."""
    return [Tree(root, SYSTEM), *(Tree(pack.folder, "", pack.label) for pack in workspace.packs.values())]


class Reading:
    """One reading of trees; collects faults instead of stopping at the first.

    *digests* has the SHA-256 of every file that was read of trees without a label, by its path.
    """

    def __init__(self, schemas: Schemas) -> None:
        self.faults: list[DomainError] = []
        self.digests: dict[str, str] = {}
        self._schemas = schemas

    def listed(self, tree: Tree, folder: str, suffix: str) -> list[str]:
        """Return the paths of the files of a folder that end in *suffix*."""
        paths, faults = files(tree.folder, folder, suffix)
        self.faults += map(tree.explained, faults)
        return paths

    def entries(self, tree: Tree, folder: str) -> list[Found]:
        """Return what stands in a folder."""
        found, faults = entries(tree.folder, folder)
        self.faults += map(tree.explained, faults)
        return found

    def checked(self, tree: Tree, path: str, schema: str) -> Document | None:
        """Return a YAML file that fits its schema; everything else is a fault."""
        raw = self.raw(tree, path)
        return None if raw is None else self.fitting(tree, path, raw, schema)

    def fitting(self, tree: Tree, path: str, raw: bytes, schema: str) -> Document | None:
        """Return the YAML *raw* of the file at *path*, if it fits its schema; everything else is a fault."""
        document = self.collected(tree, parse_yaml, raw, tree.shown(path))
        if document is None:
            return None
        old = list(old_guards(schema, document.value))
        for guard in old:
            why = guard_message(guard.rpartition("/")[2])
            self.refuse("SOURCE_INVALID", why, document.place(guard, key=True))
        violations = self.validator(schema).violations(document.value)
        for violation in violations:
            if violation.pointer and any(f"{guard}/".startswith(f"{violation.pointer}/") for guard in old):
                continue  # said already
            unknown = violation.message.startswith("unknown key")
            said = f"{_found(document, violation)}{violation.message}"
            why = f"{violation.path.removeprefix('$.')}: {said}" if violation.pointer else said
            self.refuse("SOURCE_INVALID", why, document.place(violation.pointer, key=unknown))
        return None if violations or old else document

    def markdown(self, tree: Tree, path: str) -> tuple[Document, str] | None:
        """Return the front matter of a Markdown file and the text after it; a file that has no such form is a fault."""
        raw = self.raw(tree, path)
        return None if raw is None else self.collected(tree, parse_front_matter, raw, tree.shown(path))

    def raw(self, tree: Tree, path: str, limit: int = MAX_BYTES) -> bytes | None:
        """Return the bytes of a file, and remember their digest; one that cannot be read is a fault."""
        found = self.collected(tree, read, tree.folder, path, limit)
        if not tree.label:
            self.digests[path] = canonical.digest(found or b"")
        return found

    def digest(self, tree: Tree, path: str) -> str:
        """Return the SHA-256 of a file, which is remembered like those of all that were read."""
        return canonical.digest(self.raw(tree, path) or b"")

    def attempt(self, tree: Tree, path: str, limit: int) -> DomainError | None:
        """Remember the digest of a file that may be unreadable; return what is wrong with it then, and no fault."""
        try:
            self.digests[path] = canonical.digest(read(tree.folder, path, limit))
        except DeedbookError as problem:
            return problem.error
        return None

    def collected(self, tree: Tree, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return what *make* returns, or take the faults that it raises."""
        try:
            return make(*args, **kwargs)
        except DeedbookError as problem:
            self.faults += map(tree.explained, problem.errors)
            return None

    def refuse(self, code: str, message: str, place: str) -> None:
        """Note a fault."""
        self.faults.append(fault(code, message, place=place))

    def validator(self, schema: str) -> Validator:
        """Return what checks files of one form; such a schema is asked a few times at a start."""
        return self._schemas.interpreted(schema)


def _found(document: Document, violation: Violation) -> str:
    """Return the short value that is none of its schema's options; schemas quote no value, but YAML is no secret."""
    if not violation.message.startswith("is not one of "):
        return ""
    value: Any = document.value
    for step in violation.pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    said = "" if isinstance(value, dict | list) else canonical.encode(value).decode()
    return f"{said} " if said and said.isprintable() and len(said) <= _SHORT else ""
