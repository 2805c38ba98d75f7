"""The feature `workdocs`: three pages for each session, written after each prompt and at the session's end."""

from typing import TYPE_CHECKING

from deedbook.contract.features import featureimpl
from deedbook.maintenance.opening import OWN

if TYPE_CHECKING:
    from deedbook.kernel import Kernel
    from deedbook.sessions.session import Session
    from deedbook.workspace.declarations import Workspace


class Workdocs:
    """Writes the pages of sessions, if the workspace asks for them."""

    @featureimpl
    def session_prompted(self, kernel: "Kernel", session: "Session") -> None:
        """Write the pages of the session so far."""
        self._write(kernel, session)

    @featureimpl
    def session_ended(self, kernel: "Kernel", session: "Session") -> None:
        """Write the pages of the whole session."""
        self._write(kernel, session)

    @featureimpl
    def pages_renewed(self, workspace: "Workspace", name: str) -> None:
        """Write the pages of a session again, if it has any."""
        from . import workdocs

        setting = workspace.workdocs
        above, folder = (workspace.root, setting) if isinstance(setting, str) else (workspace.state, workdocs.FOLDER)
        if name != OWN and (above / folder / name).is_dir():
            workdocs.write(setting or True, workspace.root, workspace.state, name)

    def _write(self, kernel: "Kernel", session: "Session") -> None:
        from .workdocs import write

        if setting := kernel.bindings.charter.document.get("workdocs"):
            write(setting, kernel.site.root, kernel.site.state, session.id)
