"""Show the memory and its grounds; propose, retract, import."""

import json
import re
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import (
    GlobalOptions,
    RefusedJson,
    SuggestingGroup,
    json_option,
    principal_option,
    profile_option,
    read_json,
    wait_option,
)
from deedbook.cli.output import as_json, data_command, escape_json, message, say, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deedbook.cli.execution import Ending
    from deedbook.sessions.session import Session
    from deedbook.workspace.declarations import Workspace
    from deedbook_memory.book import MemoryBook
    from deedbook_memory.recall import Change

SECTION: Final = "Do"

_ZONES: Final = ("world_state", "decision", "observation", "legacy")
_OWN: Final = "-"
_SEQ: Final = re.compile("0|[1-9][0-9]{0,15}")

zone_argument = click.argument("zone", type=click.Choice(_ZONES), metavar="ZONE")
persona_option = click.option(
    "--persona", metavar="ID", help="The memory of this persona (-: of none), not of the workspace's own."
)
expected_option = click.option(
    "--expected", type=click.IntRange(0), metavar="N", help="Only if the key is at this version; 0: not there yet."
)


@data_command
@click.group("memory", cls=SuggestingGroup)
def command() -> None:
    """Show the memory and its grounds; propose, retract, rebuild, import."""


# --- reading --------------------------------------------------------------------------------------------------------


@command.command("list", short_help="List what is remembered, zone by zone.")
@click.option("--zone", type=click.Choice(_ZONES), help="Only this zone.")
@persona_option
@json_option
@click.pass_obj
def list_entries(asked: GlobalOptions, *, zone: str | None, persona: str | None) -> int:
    """List the memory, zone by zone; it is read from the ledger, and nothing is written."""
    from deedbook_memory.recall import EntryName

    workspace = _read_workspace(asked)
    owner = _find_persona(workspace, persona)
    rows: list[dict[str, Any]] = []
    if (workspace.state / "workspace").exists():
        with _open_book(workspace, afresh=True) as book:
            for each in (zone,) if zone else _ZONES:
                rows += [
                    book.describe(EntryName(owner, each, key), slot) for key, slot in book.list_entries(owner, each)
                ]
    if asked.json:
        as_json({"schema_version": "v1", "persona": owner, "entries": rows})
    elif rows:
        table((r["zone"], r["key"], str(r["version"]), r["at"], _format_grounds(r), _format_value(r)) for r in rows)
    else:
        say("nothing is remembered")
    return 0


@command.command("show", short_help="Show what is remembered as KEY, who proposed it, and why.")
@zone_argument
@click.argument("key")
@persona_option
@json_option
@click.pass_obj
def show(asked: GlobalOptions, zone: str, key: str, persona: str | None) -> int:
    """Show the entry KEY in ZONE, who proposed it, and its grounds."""
    from deedbook.format.errors import MemoryRefused, fault
    from deedbook_memory.recall import EntryName

    workspace = _read_workspace(asked)
    name = EntryName(_find_persona(workspace, persona), zone, key)
    with _open_book(workspace, afresh=True) as book:
        slot = book.get_slot(name)
        if slot.content is None:
            raise MemoryRefused(fault("MEMORY_NOT_FOUND", f"nothing is remembered as {key} in {zone}"))
        found = book.describe(name, slot)
    if asked.json:
        as_json({"schema_version": "v1", "persona": name.persona, "entries": [found]})
        return 0
    for part in sorted(found.keys() - {"value"}):
        say(f"{part:11}{_format_plain(found[part])}")
    say(f"{'value':11}{_format_value(found)}")
    return 0


@command.command("history", short_help="Show everything that happened to a zone or to KEY.")
@click.argument("zone", type=click.Choice(_ZONES), required=False, metavar="[ZONE]")
@click.argument("key", required=False)
@persona_option
@json_option
@click.pass_obj
def history(asked: GlobalOptions, zone: str | None, key: str | None, persona: str | None) -> int:
    """Show all changes of a zone or of KEY: committed, refused, retracted, imported; reads the whole ledger."""
    from deedbook_memory.book import read_history as changes

    workspace = _read_workspace(asked)
    owner = _find_persona(workspace, persona)
    wanted = [
        _describe_change(each)
        for each in _read_changes(changes(workspace.state))
        if each.name.persona == owner and zone in (None, each.name.zone) and key in (None, each.name.key)
    ]
    if asked.json:
        as_json({"schema_version": "v1", "persona": owner, "changes": wanted})
    elif wanted:
        table(
            (c["at"], c["what"], c["zone"], c["key"], str(c["version"]), str(c.get("why", c.get("by", ""))))
            for c in wanted
        )
    else:
        say("nothing happened to it")
    return 0


# --- changing -------------------------------------------------------------------------------------------------------


@command.command("propose")
@zone_argument
@click.argument("key")
@click.argument("value")
@click.option("--say", "said", metavar="TEXT", help="Declare it in these words; they are recorded as your message.")
@click.option("--result", metavar="SESSION:SEQ", help="A tool's result that holds the value.")
@click.option("--pointer", default="", metavar="POINTER", help="Where it stands in that result; all of it if left out.")
@click.option("--approved", is_flag=True, help="It rests on a person's approval of this very proposal.")
@click.option("--reason", metavar="TEXT", help="Why, in words.")
@expected_option
@profile_option
@principal_option
@wait_option
@json_option
@click.pass_obj
def propose(  # noqa: PLR0913 - one for each option
    asked: GlobalOptions, zone: str, key: str, value: str, *, said: str | None, result: str | None, pointer: str,
    approved: bool, reason: str | None, expected: int | None, profile: str | None, principal: str | None, wait: float,
) -> int:  # fmt: skip
    """Propose VALUE (JSON, or text) as KEY in ZONE. For world_state you declare it, unless you give other grounds."""
    more = {**({"reason": reason} if reason else {}), **({} if expected is None else {"expected_version": expected})}
    args = {"zone": zone, "key": key, "value": _parse_value(value), **more}
    if sum((said is not None, result is not None, approved)) > 1:
        raise click.UsageError("--say, --result and --approved are three different grounds; give one")
    grounds: dict[str, Any] | None = {"kind": "human_approved"} if approved else None
    if result is not None:
        grounds = _find_result(asked, result, pointer)
    declares = said if said is not None else f"{key} = {value}" if zone == "world_state" and not grounds else None

    def work(session: "Session") -> "Ending":
        from deedbook.cli.execution import call_ending

        rests = _declare(session, declares) if declares is not None else grounds
        return call_ending(
            session.call(_find_ability(session, "memory-propose"), {**args, **({"provenance": rests} if rests else {})})
        )

    return _act(asked, work, principal, wait, profile)


@command.command("retract", short_help="Remove the value of KEY in ZONE; the ledger keeps it.")
@zone_argument
@click.argument("key")
@click.option("--reason", required=True, metavar="TEXT", help="Why, in words.")
@expected_option
@profile_option
@principal_option
@wait_option
@json_option
@click.pass_obj
def retract(  # noqa: PLR0913 - one for each option
    asked: GlobalOptions, zone: str, key: str, *, reason: str, expected: int | None, profile: str | None,
    principal: str | None, wait: float,
) -> int:  # fmt: skip
    """Remove the content of KEY in ZONE; it stays in the ledger."""
    args = {"zone": zone, "key": key, "reason": reason, **({} if expected is None else {"expected_version": expected})}

    def work(session: "Session") -> "Ending":
        from deedbook.cli.execution import call_ending

        return call_ending(session.call(_find_ability(session, "memory-retract"), args))

    return _act(asked, work, principal, wait, profile)


@command.command("rebuild", short_help="Write the memory store anew from the ledger.")
@json_option
@click.pass_obj
def rebuild(asked: GlobalOptions) -> int:
    """Write the memory store again from the ledger; a store of a later form is left alone."""
    from deedbook.workspace.workspace import read_workspace

    workspace = read_workspace(asked.workspace)
    with _open_book(workspace, afresh=True) as book:
        migration = None
        if book.stored.state == "old":
            migration = _take_over(workspace, book, book.stored.raw, moved=True)
        before, digest = book.stored.state, book.rebuild()
        document = {"store": "memory/memory_store.json", "found": before, "sha256": digest, "seq": book.place.seq}
    more = {"taken_over": migration} if migration else {}
    if asked.json:
        as_json({"schema_version": "v1", **document, **more})
    else:
        say(f"memory/memory_store.json  {digest}  up to event {document['seq']}; before: {before}")
    return 0


@command.command("import", short_help="Import a memory_store.json of an older form.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@json_option
@click.pass_obj
def import_file(asked: GlobalOptions, file: str) -> int:
    """Import a memory_store.json of an older form into the zone legacy; its bytes are kept unchanged."""
    from pathlib import Path

    from deedbook.workspace.own_ledger import open_own_ledger
    from deedbook.workspace.workspace import read_workspace

    workspace = read_workspace(asked.workspace)
    raw = Path(file).read_bytes()
    with open_own_ledger(workspace):  # a new workspace may begin with an import
        pass
    with _open_book(workspace) as book:
        migration = _take_over(workspace, book, raw)
    if asked.json:
        as_json({"schema_version": "v1", **migration})
        return 0
    if migration["again"]:
        message("it was taken over before; nothing was done")
    say(f"{migration['entries']} entries in legacy, {migration['left_out']} left out; kept as {migration['kept']}")
    return 0


def _take_over(workspace: "Workspace", book: "MemoryBook", raw: bytes, *, moved: bool = False) -> dict[str, Any]:
    from deedbook.workspace.own_ledger import open_own_ledger
    from deedbook_memory.legacy import take_over

    with open_own_ledger(workspace) as own:
        return take_over(own, book, raw, _find_persona(workspace, None), moved=moved)._asdict()


def _act(
    asked: GlobalOptions, work: "Callable[[Session], Ending]", principal: str | None, wait: float, profile: str | None
) -> int:
    from deedbook.cli.execution import execute, session_starter

    return execute(asked, session_starter("call", principal, wait), work, profile=profile)


def _find_ability(session: "Session", tool: str) -> str:
    """Return the first ability over one of memory's handlers."""
    from deedbook.format.errors import MemoryRefused, fault

    abilities = session.bindings.charter.document["abilities"]
    found = sorted(name for name, entry in abilities.items() if entry["plugin"] == ["tool", tool])
    if not found:
        why = f"no ability is over the handler {tool}; declare one: kind: memory, handler: {{tool: {tool}}}"
        raise MemoryRefused(fault("TOOL_NOT_FOUND", why))
    return str(found[0])


def _declare(session: "Session", text: str) -> dict[str, Any]:
    """Record *text* as the person's message and return it as grounds."""
    from deedbook.format.errors import Err, MemoryRefused

    submitted = session.submit(text)
    if isinstance(submitted, Err):
        raise MemoryRefused(submitted.error)
    return {"kind": "user_declared", "session": session.id, "span": submitted.value.message}


def _find_result(asked: GlobalOptions, name: str, pointer: str) -> dict[str, Any]:
    """Return the tool result *name* as grounds; raises `click.BadParameter`."""
    from deedbook.format.events import split_line

    session, _, seq = name.partition(":")
    if not _SEQ.fullmatch(seq):
        raise click.BadParameter(f"{name!r} is no SESSION:SEQ", param_hint="--result")
    with _find_ledger(asked, session).open("rb") as file:
        for raw in file:
            if f'"seq":{seq},'.encode() in raw and (line := split_line(raw)).seq == int(seq):
                grounds = {"session": line.session_id, "seq": line.seq, "hash": line.envelope_hash}
                return {"kind": "tool_verified", **grounds, "pointer": pointer}
    raise click.BadParameter(f"{session!r} has no event {seq!r}", param_hint="--result")


def _find_ledger(asked: GlobalOptions, name: str) -> "Path":
    """Return the ledger *name*: a session by its id or its beginning, ``last``, ``workspace``, or a file."""
    from pathlib import Path

    from deedbook.cli.ledgers import FILE, WORKSPACE, ledger_path, own_ledger_path, read_leniently, session_id
    from deedbook.format.errors import LedgerError, fault
    from deedbook.format.events import SESSION_ID

    if not SESSION_ID.fullmatch(name):
        place = Path(name) / FILE if Path(name).is_dir() else Path(name)
        if not place.is_file():
            raise LedgerError(fault("SESSION_NOT_FOUND", f"{name!r} is no session id, and no file of that name exists"))
        return place
    source, _ = read_leniently(asked.workspace)
    if name == WORKSPACE and own_ledger_path(source).exists():
        return own_ledger_path(source)
    identity = session_id(source, name)
    if not ledger_path(source, identity).exists():
        why = f"session {identity} has no ledger; `deedbook verify` reports why"
        raise LedgerError(fault("SESSION_NOT_FOUND", why))
    return ledger_path(source, identity)


def _parse_value(text: str) -> Any:
    """Return the JSON in *text*, or the text itself if it is no JSON; raises `RefusedJson` for refused JSON."""
    try:
        return read_json(text, "VALUE")
    except RefusedJson as problem:
        if not problem.is_text:
            raise
        if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[", '"'):
            why = f"it begins like JSON and is none: {problem.message}; a text that begins so stands in quotation marks"
            raise RefusedJson(why, "VALUE") from None
        return text


# --- text output ----------------------------------------------------------------------------------------------------


def _read_workspace(asked: GlobalOptions) -> "Workspace":
    """Return the workspace for reading."""
    from deedbook.cli.ledgers import read_recorded

    return read_recorded(asked.workspace)


def _find_persona(workspace: "Workspace", persona: str | None) -> str | None:
    own = workspace.persona.id if workspace.persona else None
    return own if persona is None else None if persona == _OWN else persona


def _open_book(workspace: "Workspace", *, afresh: bool = False) -> "MemoryBook":
    """Open the memory; raises `MemoryRefused` if there is no ledger yet."""
    from deedbook.format.errors import MemoryRefused, fault
    from deedbook_memory.book import MemoryBook

    try:
        return MemoryBook(workspace.state, afresh=afresh)
    except FileNotFoundError:
        raise MemoryRefused(fault("MEMORY_NOT_FOUND", "nothing is remembered: there is no ledger yet")) from None


def _read_changes(changes: "Iterator[Change]") -> "Iterator[Change]":
    from contextlib import suppress

    with suppress(FileNotFoundError):
        yield from changes


def _describe_change(change: "Change") -> dict[str, Any]:
    from deedbook_memory.book import describe_change

    about = {"what": change.what, **change.name._asdict(), "version": change.version, **describe_change(change.content)}
    why = change.why or change.content.get("reason", "")
    entry = change.content.get("entry")
    return {**about, **({"why": why} if why else {}), **({"entry": entry} if entry is not None else {})}


def _format_grounds(row: dict[str, Any]) -> str:
    return str(row.get("provenance", {}).get("kind", _OWN))


def _format_value(row: dict[str, Any]) -> str:
    return "erased" if row.get("erased") else _format_plain(row["value"])


def _format_plain(value: Any) -> str:
    if isinstance(value, str) and value.isprintable():
        return str(value)
    return escape_json(json.dumps(value, ensure_ascii=False))
