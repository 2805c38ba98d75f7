"""Count calls, time, tokens, cost, denials; also for Prometheus."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, display_path, json_option
from deedbook.cli.output import as_json, data_command, report_error, say, table
from deedbook.format.terminal import short
from deedbook_inspect.reading import UNSOUND, LedgerFile, Ledgers, describe_unread

if TYPE_CHECKING:
    from deedbook.format.errors import DeedbookError
    from deedbook_inspect.observing.figures import Figures, FiguresFold, Window
    from deedbook_inspect.observing.prices import Prices

SECTION: Final = "Record"

EVERY = "all"
_NAME: Final = 40
"""How many characters of a name the tables show; ``--json`` has the whole names."""
_LISTS: Final = (
    ("hooks", ("hook", "event"), "decisions"),
    ("policies", ("policy", "enforcement"), "decisions"),
    ("denials", ("kind", "ability", "code", "by", "name"), "count"),
    ("errors", ("kind", "ability", "code"), "count"),
)


@data_command
@click.command("stats")
@click.argument("sessions", nargs=-1, metavar="[SESSION…|all]", shell_complete=completing.sessions)
@click.option("--since", metavar="TIME", help="Count from then on: a time, or how long ago, such as 24h or 7d.")
@click.option("--until", metavar="TIME", help="Count what was before then.")
@click.option("--prices", metavar="FILE", help="YAML with prices of models, for answers without a recorded cost.")
@click.option("--prometheus", is_flag=True, help="Print the text format that Prometheus reads.")
@json_option
@click.pass_obj
def command(
    asked: GlobalOptions, /, sessions: tuple[str, ...], since: str | None, until: str | None, prices: str | None, *,
    prometheus: bool,
) -> int:  # fmt: skip
    """Count calls, their time and outcome, tokens, cost, denials and approvals of each SESSION, or of all.

    A SESSION is an id, or a file. A ledger that is still being written counts up to its last event.
    """
    from deedbook_inspect.observing.accounts import build_document as told
    from deedbook_inspect.observing.figures import FiguresFold

    if prometheus and asked.json:
        raise click.UsageError("say either --json or --prometheus")
    ledgers, known = Ledgers(asked.workspace), _read_prices(prices)
    fold = FiguresFold(
        providers=ledgers.list_providers,
        prices=known,
        window=_build_window(since, until),
        types=ledgers.types,
    )
    figures, damaged = _count(fold, _choose(ledgers, sessions))
    if asked.json:
        wrong = [{"ledger": place, "code": error.errors[0].code, "message": str(error)} for place, error in damaged]
        dated = {"prices": {"date": known.date, "source": known.source}} if known and known.date else {}
        as_json({**told(figures), **dated, "damaged": wrong})
    elif prometheus:
        from deedbook_inspect.observing.exposition import format_figures

        say(format_figures(figures), nl=False)
    else:
        _print_figures(told(figures))
        if known and known.date:
            say(f"prices of {known.date}, from {known.source}")
    for place, error in damaged:
        report_error(f"{place} is counted as far as it can be read: {error}")
    return UNSOUND if damaged else 0


# --- counting -------------------------------------------------------------------------------------------------------


def _choose(ledgers: Ledgers, names: tuple[str, ...]) -> list[LedgerFile]:
    if names and EVERY not in names:
        return list({found.place: found for name in names for found in _list_parts(ledgers.find(name))}.values())
    return list(ledgers.list_all())


def _list_parts(found: LedgerFile) -> list[LedgerFile]:
    """Return the ledgers of one name: a ledger, or each session in a file of an older form."""
    from deedbook.format.errors import LedgerError
    from deedbook_audit.upcasting.naming import split_source
    from deedbook_audit.upcasting.reader import sessions_in

    place, session = split_source(found.place)
    try:
        names = [] if session else sessions_in(place)
    except LedgerError:  # reading the ledger reports it
        names = []
    return [LedgerFile(Path(f"{place}#{name}")) for name in names] if len(names) > 1 else [found]


def _count(fold: "FiguresFold", ledgers: list[LedgerFile]) -> "tuple[Figures, list[tuple[str, DeedbookError]]]":
    """Count the ledgers one after the other; return the figures, and the ledgers that could not be read to their end.

    If the workspace's own ledger is among them, it supplies the approvals of all.
    """
    from deedbook.format.errors import LedgerError, fault
    from deedbook_audit.upcasting.reader import read
    from deedbook_inspect.commands.progress import ProgressCounter

    figures = fold.start()
    damaged: list[tuple[str, DeedbookError]] = []
    with ProgressCounter("events counted") as counting:
        for each in ledgers:
            fold.approvals = each.is_workspace or not any(other.is_workspace for other in ledgers)
            try:
                for event in counting(read(each.place)):
                    fold.step(figures, event)
                if why := describe_unread(each):
                    damaged.append((display_path(each.place), LedgerError(fault("LEDGER_UNSOUND", why))))
            except LedgerError as problem:
                damaged.append((display_path(each.place), problem))
            fold.close(figures, live=each.is_live)
    return figures, damaged


def _build_window(since: str | None, until: str | None) -> "Window":
    from deedbook_inspect.observing.figures import Window
    from deedbook_inspect.observing.times import parse_moment

    now, ends = time.time(), []
    for name, text in (("--since", since), ("--until", until)):
        try:
            ends.append(None if text is None else parse_moment(text, now))
        except ValueError as problem:
            raise click.BadParameter(str(problem), param_hint=name) from None
    return Window(*ends)


def _read_prices(path: str | None) -> "Prices | None":
    """Read a file of prices; raises `SourceError`."""
    from deedbook.format.errors import SourceError, fault
    from deedbook.format.schema import Schemas, data_folder
    from deedbook.workspace.documents import parse_yaml
    from deedbook_inspect.observing.prices import SCHEMAS, Prices

    if path is None:
        return None
    document: Any = parse_yaml(Path(path).read_bytes(), path).value
    version = document.get("schema_version") if isinstance(document, dict) else None
    schema = SCHEMAS.get(version if isinstance(version, str) else "", SCHEMAS["v2"])
    violations = Schemas.load(data_folder("schemas")).validator(schema).violations(document)
    if violations:
        raise SourceError(
            *(fault("SCHEMA_VIOLATION", f"{each.path} {each.message}", place=path) for each in violations)
        )
    return Prices.parse(document)


# --- text output ----------------------------------------------------------------------------------------------------


def _print_figures(figures: Mapping[str, Any]) -> None:
    if not figures["events"]:
        say("nothing to count")
        return
    ledgers = "1 ledger" if figures["ledgers"] == 1 else f"{figures['ledgers']} ledgers"
    say(f"{ledgers}, {figures['events']} events, {figures['first']} to {figures['last']}")
    for name in ("sessions", "layers", "approvals", "violations"):
        words = [f"{word} {count}" for word, count in figures[name].items() if isinstance(count, int)]
        wait = figures[name].get("wait_ms")
        words += [f"waited p50 {wait['p50']} ms, longest {wait['max']} ms"] if wait else []
        if words:
            say(f"{name}: {', '.join(words)}")
    _print_calls(figures["abilities"])
    _print_models(figures["models"])
    _print_roles(figures["roles"])
    for name, keys, last in _LISTS:
        _print_section(name, [*keys, last], ([row[key] for key in (*keys, last)] for row in figures[name]))


def _print_calls(rows: list[Mapping[str, Any]]) -> None:
    heads = ["ability", "kind", "calls", "outcomes", "denied", "p50 ms", "p90", "p99", "max"]
    _print_section("abilities", heads, (
        [row["ability"], row["kind"], row["calls"], row["outcomes"], row["denied"],
         *_format_times(row["latency_ms"])]
        for row in rows
    ))  # fmt: skip


def _print_models(rows: list[Mapping[str, Any]]) -> None:
    heads = ["provider", "model", "role", "calls", "in", "out", "US$", "p50 ms", "p90", "p99", "max"]
    _print_section("models", heads, (
        [row["provider"], row["model"], row["role"], row["calls"], row["input_tokens"], row["output_tokens"],
         _format_cost(row["cost_usd"]), *_format_times(row["latency_ms"])]
        for row in rows
    ))  # fmt: skip


def _print_roles(rows: list[Mapping[str, Any]]) -> None:
    heads = ["role", "model calls", "other calls", "denied", "in", "out", "US$"]
    members = ("role", "model_calls", "other_calls", "denied", "input_tokens", "output_tokens", "cost_usd")
    _print_section("roles", heads, ([row[member] for member in members] for row in rows))


def _print_section(name: str, heads: list[str], rows: Iterator[list[Any]]) -> None:
    cells = [tuple(map(_format_cell, row)) for row in rows]
    if cells:
        say(f"\n{name}")
        table([tuple(heads), *cells])


def _format_cell(value: Any) -> str:
    if isinstance(value, dict):
        return _format_counts(value)
    return f"{value:g}" if isinstance(value, float) else short(str(value), _NAME)


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{word} {count}" for word, count in counts.items()) or "-"


def _format_times(latency: Mapping[str, int] | None) -> list[Any]:
    return [latency[name] for name in ("p50", "p90", "p99", "max")] if latency else ["-"] * 4


def _format_cost(cost: Mapping[str, Any]) -> str:
    known = f"{cost['recorded'] + cost['priced']:g}"
    return f"{known} (and {cost['unpriced_answers']} unpriced)" if cost["unpriced_answers"] else known
