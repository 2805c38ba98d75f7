"""Notify features that lines were added to a finished ledger."""

from collections.abc import Callable

from deedbook.charter.settings import CheckpointSettings
from deedbook.format.errors import DeedbookError, DomainError
from deedbook.format.files import Folder
from deedbook.plugins.features import Features, Notices
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.site import Site

from .log_presence import FEATURE as LOG
from .log_presence import has_log
from .opening import open_workspace_ledger


def notify_extended(workspace: Workspace, name: str, report: Callable[[DomainError], None]) -> None:
    """Notify features that lines were added to the ledger *name*; *report* receives errors, which undo nothing."""
    try:
        features = Features.load()
        with open_workspace_ledger(Site.of(workspace)) as ledger, Folder.at(workspace.state) as state:
            if has_log(state, ledger, CheckpointSettings.read(workspace.checkpoints, workspace.root)):
                features.require(LOG)
    except DeedbookError as problem:
        for each in problem.errors:
            report(each)
        return
    notices = Notices()
    notices.listen(lambda _, error: report(error))
    features.notify("ledger_extended", notices, workspace=workspace, name=name, report=report)
