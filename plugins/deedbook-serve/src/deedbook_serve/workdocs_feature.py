"""The feature `workdocs`: three pages for each session, written anew after each prompt and at its end."""

from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl
from deedbook.maintenance.opening import OWN

if TYPE_CHECKING:
    from deedbook.call.session import Session
    from deedbook.kernel import Kernel
    from deedbook.workspace.declarations import Workspace


class Workdocs:
    """Writes the pages of sessions, if the workspace wants any."""

    @featureimpl
    def session_prompted(self, kernel: "Kernel", session: "Session") -> None:
        """Write the pages as far as the session is."""
        self._write(kernel, session)

    @featureimpl
    def session_ended(self, kernel: "Kernel", session: "Session") -> None:
        """Write the pages of the whole session."""
        self._write(kernel, session)

    @featureimpl
    def pages_renewed(self, workspace: "Workspace", name: str) -> None:
        """Write the pages of a session anew, where it has any."""
        from . import workdocs

        said = workspace.workdocs
        above, folder = (workspace.root, said) if isinstance(said, str) else (workspace.state, workdocs.FOLDER)
        if name != OWN and (above / folder / name).is_dir():
            workdocs.write(said or True, workspace.root, workspace.state, name)

    def _write(self, kernel: "Kernel", session: "Session") -> None:
        from .workdocs import write

        if said := kernel.bindings.charter.document.get("workdocs"):
            write(said, kernel.site.root, kernel.site.state, session.id)
