"""The feature `sandbox`: checks for `deedbook doctor` how well this machine can isolate programs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl

if TYPE_CHECKING:
    from deedbook.contract.features import Check
    from deedbook.workspace.declarations import Workspace


class SandboxCheck:
    """Checks bubblewrap and the limits of a sandbox."""

    @featureimpl
    def examine(self, workspace: "Workspace") -> "Iterator[Check]":
        """Return the checks of the sandbox."""
        from .doctor import check_sandbox

        sandboxed = [each for each in workspace.abilities.values() if each.handler.get("tool") == "sandbox"]
        used = any("executor" not in each.settings for each in sandboxed)
        return check_sandbox(needed=used)
