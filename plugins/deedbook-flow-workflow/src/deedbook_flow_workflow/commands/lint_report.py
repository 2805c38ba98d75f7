"""What commands that check the files of a feature print: faults, notes, and how many files there are."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from deedbook.cli.common import GlobalOptions
from deedbook.cli.output import as_json, report_error, say
from deedbook.format.terminal import plain

if TYPE_CHECKING:
    from deedbook.format.errors import DomainError


class FileNote(Protocol):
    """A note on a file that is valid and probably not what was meant."""

    @property
    def place(self) -> str:
        """The place in the file."""

    @property
    def why(self) -> str:
        """Why it is doubtful."""


def find_charter_faults(
    options: GlobalOptions, profile: str | None
) -> "tuple[Sequence[DomainError], Mapping[str, Any]]":
    """Return the faults that only compiling finds, such as those of a policy's rules, and the compiled policies."""
    from deedbook.charter.compiler import compile_charter
    from deedbook.format.errors import DeedbookError
    from deedbook.format.release import VERSION
    from deedbook.plugins.plugins import discover
    from deedbook.workspace.workspace import read_workspace

    catalogue = discover()
    try:
        charter = compile_charter(read_workspace(options.workspace, profile, catalogue), catalogue, kernel=VERSION)
    except DeedbookError as problem:
        return list(problem.errors), {}
    return [], charter.document["policies"]


def print_report(
    options: GlobalOptions, noun: str, files: int, faults: "Sequence[DomainError]", notes: Sequence[FileNote]
) -> int:
    """Print the report on a number of *files*, and return the exit status: 1 if there is a fault."""
    if options.json:
        as_json(
            {
                "schema_version": "v1",
                "ok": not faults,
                "files": files,
                "faults": [{"code": each.code, "place": each.place, "message": each.message} for each in faults],
                "notes": [{"place": note.place, "message": note.why} for note in notes],
            }
        )
    else:
        for fault in faults:
            report_error(f"{fault} [{fault.code}]")
        for note in notes:
            say(plain(f"{note.place}: {note.why}"))
        if not faults:
            say(f"{files} {noun}, no faults")
    return 1 if faults else 0
