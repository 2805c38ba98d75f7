"""Show, save, check and compare the contexts of runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import EMPTY, GlobalOptions, SuggestingGroup, json_option, principal_option
from deedbook.cli.output import as_json, data_command, message, say, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbook import Event
    from deedbook.format.context import RunContext, RunContexts
    from deedbook_flow_runcontext.bundles import SessionBundle
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


@command.command("save", short_help="Save a run of SESSION as the file BUNDLE.")
@session_argument
@bundle_argument
@run_option
@click.option("--hand-over", is_flag=True, help="The suspended session leaves, and goes on where BUNDLE is loaded.")
@principal_option
@json_option
@click.pass_obj
def save(
    asked: GlobalOptions, session: str, bundle: Path, run: str | None, hand_over: bool, principal: str | None
) -> int:
    """Write the context of a run of SESSION, and the session's events, to the file BUNDLE, which must not exist.

    With --hand-over, BUNDLE also has the sealed values, and the session can go on only where it is loaded.
    """
    from deedbook.format.files import Folder
    from deedbook.maintenance.authors import author
    from deedbook.workspace.workspace import read_workspace
    from deedbook_flow_runcontext import handover
    from deedbook_flow_runcontext.bundles import read_session

    found = _Session(asked.workspace, session)
    context = found.choose(run)
    if bundle.is_symlink() or bundle.exists():
        raise click.BadParameter(f"{bundle} exists; name a new file", param_hint="BUNDLE")
    if not bundle.parent.is_dir():
        raise click.BadParameter(f"{bundle.parent} is no folder", param_hint="BUNDLE")
    if hand_over:
        workspace = read_workspace(asked.workspace)
        handover.hand_over(workspace, found.id, author(workspace, principal))
        found = _Session(asked.workspace, found.id)
        context = found.contexts[context.run]
    elif principal is not None:
        raise click.UsageError("--as belongs to --hand-over")
    with Folder.at(found.place.parent) as folder:
        raw = read_session(folder, context.run, sealed=hand_over).encode()
    with Folder.at(bundle.parent) as folder:
        folder.replace(bundle.name, raw)
    if asked.json:
        return found.print(context, json=True, bundle=str(bundle))
    message(f"saved run {context.run} ({context.state}) to {bundle}")
    if hand_over:
        message("the session goes on where this file is loaded; load it once: deedbook context load BUNDLE")
    return 0


@command.command("load", short_help="Check the file BUNDLE, or take its session in.")
@bundle_argument
@click.option("--session", metavar="SESSION", help="The session of a bundle of version 2, which does not name it.")
@click.option("--check", is_flag=True, help="Only check BUNDLE; take nothing in.")
@click.option("--take-back", is_flag=True, help="The session was handed over from here; it goes on here again.")
@principal_option
@json_option
@click.pass_obj
def load(
    asked: GlobalOptions, bundle: Path, session: str | None, check: bool, take_back: bool, principal: str | None
) -> int:
    """Check the file BUNDLE, and show its context.

    If its session is in this state folder, BUNDLE must agree with it. Otherwise the session is taken in, if BUNDLE
    hands it over, and `deedbook resume` goes on with it. A bundle that was edited or cut is refused.
    """
    from deedbook_flow_runcontext.bundles import parse_bundle, read_bytes

    _require_file(bundle)
    raw = read_bytes(bundle)
    if _is_older(raw, str(bundle)):
        return _load_older(asked, bundle, session)
    found = parse_bundle(raw, str(bundle))
    if session is not None and not found.session.startswith(session):
        raise click.BadParameter(f"{bundle} is of session {found.session}", param_hint="--session")
    return _Loading(asked, bundle, found, principal).load(check=check, take_back=take_back)


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
        from deedbook.format.reader import read
        from deedbook_inspect.ledger_contexts import read_contexts

        source, notes = read_leniently(workspace)
        for note in notes:
            message(note)
        self.id = own_session(source, name)
        self.place = ledger_path(source, self.id)
        self.contexts: RunContexts
        self.contexts, self.head = read_contexts(self.place)
        self.events: Sequence[Event] = list(read(self.place))

    @classmethod
    def of(cls, session: str, contexts: "RunContexts", head: str, events: "Sequence[Event]") -> "_Session":
        """Return a session that is not in the state folder."""
        made = cls.__new__(cls)
        made.id, made.contexts, made.head, made.events = session, contexts, head, events
        return made

    def has(self, bundle: "SessionBundle") -> bool:
        """Return whether the ledger begins with the events of *bundle*."""
        from deedbook.format.files import Folder
        from deedbook_flow_runcontext.bundles import read_ledger

        with Folder.at(self.place.parent) as folder:
            return read_ledger(folder).startswith(bundle.raw)

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


class _Loading:
    """The bundle *found* in the file *bundle*, which is checked, or whose session is taken in."""

    def __init__(self, asked: GlobalOptions, bundle: Path, found: "SessionBundle", principal: str | None) -> None:
        from deedbook.cli.ledgers import read_leniently, session_ids

        self.asked, self.bundle, self.found, self.principal = asked, bundle, found, principal
        workspace, _ = read_leniently(asked.workspace)
        self.is_here = found.session in session_ids(workspace)

    def load(self, *, check: bool, take_back: bool) -> int:
        """Check it, or take its session in; print its context, and return the exit status."""
        if check and (take_back or self.principal is not None):
            raise click.UsageError("--check records nothing; leave it out, or leave out --take-back and --as")
        if not self.is_here and check:
            return self._print_alone()
        if not check and (not self.is_here or take_back or self._is_longer()):
            return self._receive()
        if self.principal is not None:
            raise click.UsageError("the session is here and nothing is recorded; leave out --as")
        here = _Session(self.asked.workspace, self.found.session)
        context = here.contexts.get(self.found.run)
        if not here.has(self.found) or context is None or context != self.found.context:
            raise _differs(self.bundle, self.found.session)
        return here.print(context, json=self.asked.json, bundle=str(self.bundle))

    def _is_longer(self) -> bool:
        """Return whether the bundle has what the state folder has of its session, and more."""
        here = _Session(self.asked.workspace, self.found.session)
        own = here.events[-1].seq + 1 if here.events else 0
        return own < len(self.found.lines) and (not own or self.found.lines[own - 1].envelope_hash == here.head)

    def _receive(self) -> int:
        from deedbook.kernel import open_kernel
        from deedbook.maintenance.authors import author
        from deedbook.workspace.workspace import read_workspace
        from deedbook_flow_runcontext.handover import receive

        by = author(read_workspace(self.asked.workspace), self.principal)
        with open_kernel(self.asked.workspace) as kernel:
            receive(kernel, self.found, by)
        here = _Session(self.asked.workspace, self.found.session)
        message(f"session {here.id} is here now; go on with: deedbook resume {here.id}")
        return here.print(here.contexts[self.found.run], json=self.asked.json, bundle=str(self.bundle))

    def _print_alone(self) -> int:
        from deedbook.format.context import ContextFold
        from deedbook.format.folds import fold

        contexts = fold(ContextFold(), self.found.events)
        here = _Session.of(self.found.session, contexts, self.found.head, self.found.events)
        return here.print(self.found.context, json=self.asked.json, bundle=str(self.bundle))


def _differs(bundle: Path, session: str) -> Exception:
    from deedbook.format.errors import LedgerError, fault

    why = f"the bundle is not what session {session} has here: it is of another time, or of another record"
    return LedgerError(fault("BUNDLE_REFUSED", why, place=str(bundle)))


def _is_older(raw: bytes, place: str) -> bool:
    """Return whether the bytes of a bundle say that they are of version 2."""
    from deedbook.format.errors import LedgerError, fault
    from deedbook.format.jsontext import load

    try:
        stated = load(raw)
    except (ValueError, RecursionError) as problem:
        raise LedgerError(fault("BUNDLE_REFUSED", f"not a bundle: {problem}", place=place)) from None
    return isinstance(stated, dict) and stated.get("schema_version") == "v2"


def _load_older(asked: GlobalOptions, bundle: Path, session: str | None) -> int:
    """Check a bundle of version 2, which has no events, against the ledger of its session."""
    from deedbook_inspect.ledger_contexts import load

    if session is None:
        why = f"{bundle} is of version 2, without events; name its session: --session SESSION"
        raise click.UsageError(why)
    found = _Session(asked.workspace, session)
    return found.print(load(bundle, found.place), json=asked.json, bundle=str(bundle))


def _require_file(bundle: Path) -> None:
    if not bundle.is_file():
        raise click.BadParameter(f"{bundle} is no file", param_hint="BUNDLE")


def _read_bundle(bundle: Path) -> dict[str, Any]:
    """Return the context that a bundle states; raises `LedgerError` for what is no bundle."""
    from deedbook_flow_runcontext.bundles import parse_bundle, read_bytes
    from deedbook_inspect.ledger_contexts import read_bundle

    _require_file(bundle)
    raw = read_bytes(bundle)
    return read_bundle(bundle) if _is_older(raw, str(bundle)) else parse_bundle(raw, str(bundle)).context.as_json()
