"""Show, save, check and compare the contexts of runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import EMPTY, GlobalOptions, SuggestingGroup, json_option
from deedbook.cli.output import as_json, data_command, message, say, table

if TYPE_CHECKING:
    from deedbook.format.context import RunContext, RunContexts
    from deedbook_flow_runcontext.context_view import ContextView

SECTION: Final = "Record"

_DIFFERENT: Final = 1
session_argument = click.argument("session", shell_complete=completing.sessions)
run_option = click.option(
    "--run",
    "run",
    metavar="SPAN",
    help="The run, by the span of its flow.call; by default the last one of the session.",
)


class BundlePath(click.Path):
    """The path of a bundle; an empty text is refused, which `Path` would take for the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; raises `click.BadParameter`."""
        if value == "":
            self.fail(EMPTY, param, ctx)
        return super().convert(value, param, ctx)


bundle_argument = click.argument("bundle", type=BundlePath(path_type=Path))


@data_command
@click.group("context", cls=SuggestingGroup)
def command() -> None:
    """Show the contexts of runs, save them as bundles, and check and compare these."""


@command.command("show", short_help="Show the context of a run of SESSION.")
@session_argument
@run_option
@json_option
@click.pass_obj
def show(asked: GlobalOptions, session: str, run: str | None) -> int:
    """Show the context of a run of SESSION: state, artifacts, plan, decisions, findings, and what it waits for."""
    found = _Session(asked.workspace, session)
    return found.print(found.choose(run), json=asked.json)


@command.command("save", short_help="Write the context of a run of SESSION to the file BUNDLE.")
@session_argument
@bundle_argument
@run_option
@json_option
@click.pass_obj
def save(asked: GlobalOptions, session: str, bundle: Path, run: str | None) -> int:
    """Write the context of a run of SESSION, with the head of its ledger, to the file BUNDLE, which must not exist."""
    from deedbook.format.context import save as save_bundle

    found = _Session(asked.workspace, session)
    context = found.choose(run)
    if bundle.is_symlink() or bundle.exists():
        raise click.BadParameter(f"{bundle} exists; name a new file", param_hint="BUNDLE")
    save_bundle(context, found.head, bundle)
    if asked.json:
        return found.print(context, json=True, bundle=str(bundle))
    message(f"saved run {context.run} ({context.state}) to {bundle}")
    return 0


@command.command("load", short_help="Check BUNDLE against the ledger of SESSION, and show its context.")
@session_argument
@bundle_argument
@json_option
@click.pass_obj
def load(asked: GlobalOptions, session: str, bundle: Path) -> int:
    """Check the file BUNDLE against the ledger of SESSION, and show its context.

    A bundle that was edited or cut, of another session, or older than the last change of its context is refused.
    """
    from deedbook.format.context import load as load_bundle

    found = _Session(asked.workspace, session)
    _require_file(bundle)
    return found.print(load_bundle(bundle, found.place), json=asked.json, bundle=str(bundle))


@command.command("diff", short_help="Compare the context of SESSION with that of OTHER, or with a bundle.")
@session_argument
@click.argument("other", required=False, shell_complete=completing.sessions)
@click.option("--bundle", type=BundlePath(path_type=Path), help="A saved bundle, instead of OTHER.")
@run_option
@json_option
@click.pass_obj
def diff(asked: GlobalOptions, session: str, other: str | None, bundle: Path | None, run: str | None) -> int:
    """Compare the context of SESSION with that of the session OTHER, or with a bundle, which is not checked.

    The exit status is 1 if they differ.
    """
    from deedbook_flow_runcontext.context_view import compare, difference_rows

    if (other is None) == (bundle is None):
        raise click.UsageError("name what to compare with: OTHER, or --bundle FILE")
    left = _Session(asked.workspace, session).choose(run).as_json()
    right = _read_bundle(bundle) if bundle else _Session(asked.workspace, str(other)).choose(None).as_json()
    if bundle is None:
        left, right = ({name: value for name, value in each.items() if name != "run"} for each in (left, right))
    found = list(compare(left, right))
    if asked.json:
        as_json({"schema_version": "v1", "session": session, "other": str(bundle or other), "differences": found})
    else:
        table(difference_rows(found))
    return _DIFFERENT if found else 0


class _Session:
    """The contexts of a session; raises `DeedbookError` for one that is unknown or damaged."""

    def __init__(self, workspace: str, name: str) -> None:
        from deedbook.cli.ledgers import ledger_path, own_session, read_leniently
        from deedbook.format.context import read_contexts
        from deedbook.format.reader import read

        source, notes = read_leniently(workspace)
        for note in notes:
            message(note)
        self.id = own_session(source, name)
        self.place = ledger_path(source, self.id)
        self.contexts: RunContexts
        self.contexts, self.head = read_contexts(self.place)
        self.events = list(read(self.place))

    def choose(self, run: str | None) -> "RunContext":
        """Return the context of *run*, which may be the beginning of its span; by default the last outer run."""
        from deedbook.format.errors import LedgerError, fault

        if run is None:
            outer = [each for each in self.contexts.values() if each.parent is None]
            found = outer[-1:]
        else:
            found = [each for name, each in self.contexts.items() if name.startswith(run)]
        if len(found) == 1:
            return found[0]
        runs = ", ".join(self.contexts) or "none"
        if run is not None:
            why = f"{len(found)} runs of session {self.id} begin with {run!r}; its runs: {runs}"
            raise click.BadParameter(why, param_hint="--run")
        raise LedgerError(fault("NOT_AVAILABLE", f"session {self.id} has no run with a context"))

    def print(self, context: "RunContext", *, json: bool, bundle: str | None = None) -> int:
        """Print a context of this session; return the exit status."""
        from deedbook_flow_runcontext.context_view import ContextView

        view = ContextView(context, self.events)
        if json:
            as_json(self._document(context, view, bundle))
            return 0
        say(f"session {self.id}, run {context.run or '-'}")
        table(view.rows())
        table(
            ("calls" if each.parent == context.run else "run", name, each.state)
            for name, each in self.contexts.items()
            if name != context.run
        )
        return 0

    def _document(self, context: "RunContext", view: "ContextView", bundle: str | None) -> dict[str, Any]:
        runs = [{"run": name, "parent": each.parent, "state": each.state} for name, each in self.contexts.items()]
        told = {"session": self.id, "run": context.run, "head": self.head, "bundle": bundle, "runs": runs}
        return {"schema_version": "v1", **told, **view.as_json()}


def _require_file(bundle: Path) -> None:
    if not bundle.is_file():
        raise click.BadParameter(f"{bundle} is no file", param_hint="BUNDLE")


def _read_bundle(bundle: Path) -> dict[str, Any]:
    """Return the context that a bundle states; raises `LedgerError` for what is no bundle."""
    from deedbook.format.context import read_bundle

    _require_file(bundle)
    return read_bundle(bundle)
