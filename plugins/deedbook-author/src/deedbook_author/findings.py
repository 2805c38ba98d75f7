"""Findings of a check that starts nothing: errors keep a workspace from starting, notes are doubtful."""

from collections.abc import Sequence
from typing import Final, Literal

import attrs

from deedbook.charter.compiler import GUARDS_NOTHING, compile_charter
from deedbook.format.errors import BindingError, DomainError
from deedbook.plugins.plugins import Catalogue
from deedbook.policy.charter import Charter
from deedbook.workspace.declarations import Workspace

_UNDECLARED: Final = " is not declared"


@attrs.frozen
class Finding:
    """One finding: *place* is ``file:line:column`` if it is in a file, *code* an error's."""

    level: Literal["error", "note"]
    code: str | None
    place: str | None
    message: str

    @classmethod
    def error(cls, error: DomainError) -> "Finding":
        """Return the finding of an error."""
        return cls("error", error.code, error.place, error.message)

    @classmethod
    def note(cls, place: str | None, message: str) -> "Finding":
        """Return a note."""
        return cls("note", None, place, message)


def compile_surveyed(
    workspace: Workspace | None, faults: Sequence[DomainError], catalogue: Catalogue, *, kernel: str
) -> tuple[Charter | None, list[DomainError]]:
    """Return the charter of a workspace that was read with *faults*, and these with what keeps it from compiling."""
    if workspace is None:
        return None, list(faults)
    try:
        return compile_charter(workspace, catalogue, kernel=kernel), list(faults)
    except BindingError as problem:
        # an unreadable file declares and names nothing: what refers to it, or what it names, would be reported as well
        follow = (_UNDECLARED, GUARDS_NOTHING) if faults else ()
        more = [each for each in problem.errors if not any(words in each.message for words in follow)]
        return None, [*faults, *more]
