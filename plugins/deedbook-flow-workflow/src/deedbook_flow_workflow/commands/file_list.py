"""What commands that list the files of a feature print: axis, id, title, and the file that declares them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from deedbook.cli.common import GlobalOptions
from deedbook.cli.output import as_json, say, table

_TITLES: Final = ("title", "objective", "description")


class ListedFile(Protocol):
    """A file of a feature, such as a `WorkflowFile`."""

    @property
    def axis(self) -> str:
        """What it declares, such as ``phases``."""

    @property
    def id(self) -> str:
        """The id of what it declares."""

    @property
    def front(self) -> Mapping[str, Any]:
        """Its members."""

    @property
    def line(self) -> str:
        """Its place, as ``file:line``."""

    @property
    def pack(self) -> str | None:
        """The pack that it belongs to."""

    @property
    def overrides(self) -> str | None:
        """The pack whose file it replaces."""


def print_files(options: GlobalOptions, files: Iterable[ListedFile], *, none: str) -> None:
    """Print a row for each of *files*, or a JSON document; *none* is printed if there is no file."""
    found = list(files)
    if options.json:
        as_json({"schema_version": "v1", "files": [_row(file) for file in found]})
    elif found:
        table((file.axis, file.id, find_title(file), _where(file)) for file in found)
    else:
        say(none)


def find_title(file: ListedFile) -> str:
    """Return the line that says what a file is for; empty without one."""
    return next((str(file.front[key]) for key in _TITLES if file.front.get(key)), "")


def _row(file: ListedFile) -> dict[str, Any]:
    return {
        "axis": file.axis,
        "id": file.id,
        "title": find_title(file),
        "place": file.line,
        "pack": file.pack,
        "overrides": file.overrides,
    }


def _where(file: ListedFile) -> str:
    return file.line if file.overrides is None else f"{file.line} (in place of the pack {file.overrides}'s)"
