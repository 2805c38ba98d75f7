"""The person on whose behalf a ledger is corrected, erased from, or imported: a declared one, or the local user."""

from deedbook.format.errors import BindingError, fault
from deedbook.format.schema import suggest
from deedbook.policy.callers import AGENT, LOCAL
from deedbook.workspace.declarations import Workspace


def author(workspace: Workspace, name: str | None) -> str:
    """Return the id of the acting person: *name*, which must be declared, or the local user.

    Raises `BindingError` (``USAGE``): agents must not do this.
    """
    if name is None:
        return LOCAL.id
    declared = sorted(each for each in workspace.principals if not each.startswith(AGENT))
    if name not in declared:
        known = ", ".join(declared) or "none"
        why = f"principal {name!r} is not declared{suggest(name, declared) or '.'} Declared: {known}"
        raise BindingError(fault("USAGE", why, place="--as"))
    return name
