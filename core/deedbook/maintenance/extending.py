"""Notify features that lines were added to a finished ledger, or that a payload was removed from one."""

from collections.abc import Callable
from pathlib import Path

from deedbook.charter.settings import CheckpointSettings
from deedbook.format import canonical
from deedbook.format.errors import BindingError, DeedbookError, DomainError, fault
from deedbook.format.files import Folder
from deedbook.format.schema import data_folder
from deedbook.plugins.features import Features, Notices
from deedbook.plugins.groups import FEATURE
from deedbook.plugins.plugins import discover
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.site import Site

from .log_presence import FEATURE as LOG
from .log_presence import has_log
from .opening import open_workspace_ledger


def notify_extended(workspace: Workspace, name: str, report: Callable[[DomainError], None]) -> None:
    """Notify features that lines were added to the ledger *name*; *report* receives errors, which undo nothing."""
    try:
        features = Features.installed()
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


def refuse_missing(state: Path) -> None:
    """Raise `BindingError` if the state folder holds files of a feature that is not installed.

    That feature would have to remove its copies of an excised payload.
    """
    catalogue = discover()
    for name, known in canonical.decode((data_folder("known") / "features.json").read_bytes()).items():
        if (state / known["folder"]).exists() and catalogue.get(FEATURE, name) is None:
            why = f"the state folder has pages of {name}, which is not installed: pip install {known['distribution']}"
            raise BindingError(fault("PLUGIN_MISSING", why))


def renew_pages(workspace: Workspace, name: str) -> None:
    """Let features render again what they rendered from the ledger *name*; raises the first error."""
    Features.installed().demand("pages_renewed", workspace=workspace, name=name)
