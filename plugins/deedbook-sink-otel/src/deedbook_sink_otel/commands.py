"""Send spans to an OpenTelemetry collector.

The SDK is imported when a command is called.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import click

if TYPE_CHECKING:
    from deedbook_inspect.reading import Ledgers

    from .cursors import Cursor
    from .delivery import Collector

SECTION: Final = "Record"
_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_UNSOUND: Final = 4
F = TypeVar("F", bound=Callable[..., Any])


@attrs.frozen(kw_only=True)
class Options:
    """The common options of the commands. *cursor* is a file; *timeout* is in seconds, for a batch and its retries."""

    endpoint: str
    headers: tuple[str, ...]
    timeout: float
    contents: bool
    cursor: str | None
    from_start: bool


def _add_options(command: F) -> F:
    for option in reversed(
        (
            click.option(
                "--endpoint", metavar="URL", default="",
                help="Where traces go, such as http://localhost:4318/v1/traces; else OTEL_EXPORTER_OTLP_ENDPOINT says.",
            ),
            click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="Send this header, too."),
            click.option(
                "--timeout", type=click.FloatRange(0.1, 3600), default=30.0, show_default=True, metavar="SECONDS",
                help="Give up on a batch, with all retries, after so long.",
            ),
            click.option("--contents", is_flag=True, help="Send prompts, arguments, results, too; sealed ones never."),
            click.option("--cursor", metavar="FILE", help="Go on where this file says, and keep it."),
            click.option("--from-start", is_flag=True, help="Send everything again, whatever the cursor says."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


@click.group("otel")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Send the events of ledgers to an OpenTelemetry collector, as spans."""
    from deedbook_inspect.reading import Ledgers  # noqa: PLC0415 - help is quick

    ctx.obj = Ledgers(ctx.obj.workspace)


@command.command("export", short_help="Send the spans of each SESSION, or of all sessions, and end.")
@click.argument("sessions", nargs=-1, metavar="[SESSION…|all]")
@_add_options
@click.pass_obj
def export(ledgers: "Ledgers", /, sessions: tuple[str, ...], **given: Any) -> int:
    """Send the spans of each SESSION (an id, or a file), or of all, and end.

    Ids are the ledger's: sent twice, they are the same spans.
    """
    from .work import LedgerExport  # noqa: PLC0415 - help is quick

    options = Options(**given)
    every = not sessions or "all" in sessions
    found = list(ledgers.list_all()) if every else [ledgers.find(name) for name in sessions]
    sent = unfinished = 0
    with _connect(options, options.cursor and Path(options.cursor)) as (collector, cursor):
        for each in {one.place: one for one in found}.values():
            with LedgerExport(ledgers, each.place, collector, cursor, contents=options.contents) as sending:
                sent += sending()
                unfinished += sending.unfinished
        _print_result(sent, unfinished, collector)
    torn = [why for each in found if (why := ledgers.describe_unread(each))]
    for why in torn:
        click.echo(f"error: {why}", err=True)
    return _UNSOUND if torn else 1 if collector.rejected else 0


@command.command("follow", short_help="Send spans as they end, until the sessions are over.")
@click.argument("sessions", nargs=-1, metavar="[SESSION…]")
@_add_options
@click.pass_obj
def follow(ledgers: "Ledgers", /, sessions: tuple[str, ...], **given: Any) -> int:
    """Send spans as they end, of each SESSION until it ends, or of all and new ones until interrupted.

    A restart continues where the last run ended: the sent position is kept in a cursor beside the ledgers.
    """
    from .cursors import find_cursor  # noqa: PLC0415 - help is quick
    from .work import LedgerFollower  # noqa: PLC0415 - help is quick

    options = Options(**given)
    target = options.endpoint or "".join(f"{name}={os.environ.get(name, '')}\n" for name in _VARIABLES)
    place = Path(options.cursor) if options.cursor else find_cursor(ledgers.state, target, contents=options.contents)
    names = () if "all" in sessions else sessions
    with _connect(options, place) as (collector, cursor):
        sent = LedgerFollower(ledgers, names, collector, cursor, contents=options.contents)()
        _print_result(sent, 0, collector)
    return 1 if collector.rejected else 0


@contextmanager
def _connect(options: Options, place: "Path | str | None") -> "Iterator[tuple[Collector, Cursor]]":
    """Open the collector and the cursor; report a refused batch in one line."""
    from .cursors import Cursor  # noqa: PLC0415 - help is quick
    from .delivery import Collector, UndeliveredError  # noqa: PLC0415 - the SDK is slow to import

    headers = dict(_parse_header(each) for each in options.headers)
    collector = Collector(options.endpoint, headers=headers, timeout=options.timeout)
    try:
        with Cursor.open(Path(place) if place else None) as cursor:
            if options.from_start:
                cursor.reset()
            yield collector, cursor
    except UndeliveredError as problem:
        hint = "; what was taken is kept, so call it again" if place else "; nothing is lost, call it again"
        hint = hint if problem.is_temporary else ""
        raise click.ClickException(f"{problem}{hint}") from None
    finally:
        collector.close()


def _parse_header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{text!r} is not NAME=VALUE")
    return name, value


def _print_result(sent: int, unfinished: int, collector: "Collector") -> None:
    click.echo("1 span sent" if sent == 1 else f"{sent} spans sent")
    if unfinished:
        click.echo(f"{unfinished} have begun and not ended; they are sent when they have", err=True)
    if collector.rejected:
        click.echo(f"error: the collector took the batches and rejected {collector.rejected} spans", err=True)
