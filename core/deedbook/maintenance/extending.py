"""Telling features that lines were added to a finished ledger, or that a payload was taken out of one."""

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
from .opening import own


def tell_extended(workspace: Workspace, name: str, report: Callable[[DomainError], None]) -> None:
    """Tell features that lines were added to the ledger *name*; *report* takes what fails, which undoes nothing."""
    try:
        features = Features.installed()
        with own(Site.of(workspace)) as ledger, Folder.at(workspace.state) as state:
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
    """Raise `BindingError` if the state folder holds what a feature wrote that is not installed.

    That feature would have to remove its copies of a payload that is taken out of a ledger.
    """
    catalogue = discover()
    for name, known in canonical.decode((data_folder("known") / "features.json").read_bytes()).items():
        if (state / known["folder"]).exists() and catalogue.get(FEATURE, name) is None:
            why = f"the state folder has pages of {name}, which is not installed: pip install {known['distribution']}"
            raise BindingError(fault("PLUGIN_MISSING", why))


def renew_pages(workspace: Workspace, name: str) -> None:
    """Let features write anew what they rendered from the ledger *name*; raises what prevents one of them."""
    Features.installed().demand("pages_renewed", workspace=workspace, name=name)
