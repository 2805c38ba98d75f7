"""The principal of a user id: a declared one, or the local one for this process's own user."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from deedbook.contract import Principal
from deedbook.format.errors import Err, Ok, Result, fault
from deedbook.kernel import Kernel
from deedbook.policy.callers import LOCAL, declared_principal

VIA = "runtime"


def build_principal_lookup(kernel: Kernel) -> Callable[[int], Result[Principal]]:
    """Return a function from a user id to its principal under *kernel*'s charter, or an `Err` (``PEER_UNKNOWN``)."""
    document = kernel.bindings.charter.document
    declared = {
        entry["uid"]: _with_via(declared_principal(document, name), entry)
        for name, entry in document["principals"].items()
        if entry.get("uid") is not None
    }
    own = os.geteuid()

    def find(uid: int) -> Result[Principal]:
        found = declared.get(uid)
        if found is None and uid == own:
            found = attrs.evolve(LOCAL, via=VIA)
        if found is None:
            why = f"no principal has the user id {uid}; declare one: `principals: {{NAME: {{uid: {uid}}}}}`"
            return Err(fault("PEER_UNKNOWN", why))
        return Ok(found)

    return find


def _with_via(principal: Principal, entry: Mapping[str, Any]) -> Principal:
    return principal if entry["via"] else attrs.evolve(principal, via=VIA)
