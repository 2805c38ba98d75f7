"""People with keys, as tests need them: approvers in a workspace of the lab, or of the command line."""

import os
from typing import Any

from deedbook.approvals.keys import KeyRing
from deedbook.format.notes import SigningKey


def approving(lab: Any, *names: str) -> list[SigningKey]:
    """Declare approvers with keys (ada, unless there are *names*), whose private halves are here; return these."""
    keys = [KeyRing.of(os.environ).create(name, force=True) for name in names or ("ada",)]
    for key in keys:
        name = key.public.name
        lab.write(f"{name}.pub", f"{key.public}\n")
        lab.settings(principals={name: {"key": f"{name}.pub", "roles": ["approver"]}})
    return keys
