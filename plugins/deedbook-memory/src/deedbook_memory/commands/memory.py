"""Show what is remembered and why; propose, retract, import."""

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

    from deedbook.call.session import Session
    from deedbook.cli.execution import Ending
    from deedbook.workspace.declarations import Workspace
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
    """Show what is remembered and why; propose, retract, rebuild, import."""


# --- reading --------------------------------------------------------------------------------------------------------


@command.command("list", short_help="List what is remembered, zone by zone.")
@click.option("--zone", type=click.Choice(_ZONES), help="Only this zone.")
@persona_option
@json_option
@click.pass_obj
def listed(asked: GlobalOptions, *, zone: str | None, persona: str | None) -> int:
    """List what is remembered, zone by zone; it is read from the ledger, and nothing is written."""
    from deedbook_memory.recall import Name

    workspace = _workspace(asked)
    whose = _whose(workspace, persona)
    rows: list[dict[str, Any]] = []
    if (workspace.state / "workspace").exists():
        with _book(workspace, afresh=True) as book:
            for each in (zone,) if zone else _ZONES:
                rows += [book.told(Name(whose, each, key), slot) for key, slot in book.entries(whose, each)]
    if asked.json:
        as_json({"schema_version": "v1", "persona": whose, "entries": rows})
    elif rows:
        table((r["zone"], r["key"], str(r["version"]), r["at"], _why(r), _value(r)) for r in rows)
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
    """Show what is remembered as KEY in ZONE, who proposed it, and on what grounds."""
    from deedbook.format.errors import MemoryRefused, fault
    from deedbook_memory.recall import Name

    workspace = _workspace(asked)
    name = Name(_whose(workspace, persona), zone, key)
    with _book(workspace, afresh=True) as book:
        slot = book.slot(name)
        if slot.holds is None:
            raise MemoryRefused(fault("MEMORY_NOT_FOUND", f"nothing is remembered as {key} in {zone}"))
        found = book.told(name, slot)
    if asked.json:
        as_json({"schema_version": "v1", "persona": name.persona, "entries": [found]})
        return 0
    for part in sorted(found.keys() - {"value"}):
        say(f"{part:11}{_plain(found[part])}")
    say(f"{'value':11}{_value(found)}")
    return 0


@command.command("history", short_help="Show everything that happened to a zone or to KEY.")
@click.argument("zone", type=click.Choice(_ZONES), required=False, metavar="[ZONE]")
@click.argument("key", required=False)
@persona_option
@json_option
@click.pass_obj
def history(asked: GlobalOptions, zone: str | None, key: str | None, persona: str | None) -> int:
    """Tell everything that happened to a zone or to KEY: committed, refused, retracted, imported; the whole ledger."""
    from deedbook_memory.book import history as changes

    workspace = _workspace(asked)
    whose = _whose(workspace, persona)
    wanted = [
        _change(each)
        for each in _sound(changes(workspace.state))
        if each.name.persona == whose and zone in (None, each.name.zone) and key in (None, each.name.key)
    ]
    if asked.json:
        as_json({"schema_version": "v1", "persona": whose, "changes": wanted})
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
    """Propose VALUE (JSON, or text) as KEY in ZONE. For world_state you declare it, unless you say otherwise."""
    more = {**({"reason": reason} if reason else {}), **({} if expected is None else {"expected_version": expected})}
    args = {"zone": zone, "key": key, "value": _given(value), **more}
    if sum((said is not None, result is not None, approved)) > 1:
        raise click.UsageError("--say, --result and --approved are three different grounds; give one")
    grounds: dict[str, Any] | None = {"kind": "human_approved"} if approved else None
    if result is not None:
        grounds = _result(asked, result, pointer)
    declares = said if said is not None else f"{key} = {value}" if zone == "world_state" and not grounds else None

    def work(session: "Session") -> "Ending":
        from deedbook.cli.execution import call_ending

        rests = _declared(session, declares) if declares is not None else grounds
        return call_ending(
            session.call(_ability(session, "memory-propose"), {**args, **({"provenance": rests} if rests else {})})
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
    """Let KEY in ZONE hold nothing any more; what it held stays in the ledger."""
    args = {"zone": zone, "key": key, "reason": reason, **({} if expected is None else {"expected_version": expected})}

    def work(session: "Session") -> "Ending":
        from deedbook.cli.execution import call_ending

        return call_ending(session.call(_ability(session, "memory-retract"), args))

    return _act(asked, work, principal, wait, profile)


@command.command("rebuild", short_help="Write the memory store anew from the ledger.")
@json_option
@click.pass_obj
def rebuild(asked: GlobalOptions) -> int:
    """Write the memory store anew from the ledger, whatever is there now; one of a later form is left alone."""
    workspace = _workspace(asked)
    with _book(workspace, afresh=True) as book:
        taken = None
        if book.found.what == "old":
            taken = _take_over(workspace, book, book.found.raw, moved=True)
        before, digest = book.found.what, book.rebuild()
        told = {"store": "memory/memory_store.json", "found": before, "sha256": digest, "seq": book.place.seq}
    more = {"taken_over": taken} if taken else {}
    if asked.json:
        as_json({"schema_version": "v1", **told, **more})
    else:
        say(f"memory/memory_store.json  {digest}  up to event {told['seq']}; before: {before}")
    return 0


@command.command("import", short_help="Import a memory_store.json of an older form.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@json_option
@click.pass_obj
def imported(asked: GlobalOptions, file: str) -> int:
    """Take over a memory_store.json of an older form into the zone legacy; its bytes are kept as they are."""
    from pathlib import Path

    from deedbook.workspace.own_ledger import open_own_ledger

    workspace = _workspace(asked)
    raw = Path(file).read_bytes()
    with open_own_ledger(workspace):  # a workspace may begin with what was remembered before
        pass
    with _book(workspace) as book:
        taken = _take_over(workspace, book, raw)
    if asked.json:
        as_json({"schema_version": "v1", **taken})
        return 0
    if taken["again"]:
        message("it was taken over before; nothing was done")
    say(f"{taken['entries']} entries in legacy, {taken['left_out']} left out; kept as {taken['kept']}")
    return 0


def _take_over(workspace: "Workspace", book: Any, raw: bytes, *, moved: bool = False) -> dict[str, Any]:
    from deedbook.workspace.own_ledger import open_own_ledger
    from deedbook_memory.legacy import take_over

    with open_own_ledger(workspace) as own:
        return take_over(own, book, raw, _whose(workspace, None), moved=moved)._asdict()


def _act(
    asked: GlobalOptions, work: "Callable[[Session], Ending]", principal: str | None, wait: float, profile: str | None
) -> int:
    from deedbook.cli.execution import execute, session_starter

    return execute(asked, session_starter("call", principal, wait), work, profile=profile)


def _ability(session: "Session", tool: str) -> str:
    """Return the ability over one of memory's handlers: the first, where there are several."""
    from deedbook.format.errors import MemoryRefused, fault

    abilities = session.bindings.charter.document["abilities"]
    found = sorted(name for name, entry in abilities.items() if entry["plugin"] == ["tool", tool])
    if not found:
        why = f"no ability is over the handler {tool}; declare one: kind: memory, handler: {{tool: {tool}}}"
        raise MemoryRefused(fault("TOOL_NOT_FOUND", why))
    return str(found[0])


def _declared(session: "Session", text: str) -> dict[str, Any]:
    """Record *text* as the person's message and return it as grounds."""
    from deedbook.format.errors import Err, MemoryRefused

    submitted = session.submit(text)
    if isinstance(submitted, Err):
        raise MemoryRefused(submitted.error)
    return {"kind": "user_declared", "session": session.id, "span": submitted.value.message}


def _result(asked: GlobalOptions, name: str, pointer: str) -> dict[str, Any]:
    """Return the result of a tool that *name* names as grounds; raises `click.BadParameter`."""
    from deedbook.cli.ledgers import session_file
    from deedbook.format.events import split_line

    session, _, seq = name.partition(":")
    if not _SEQ.fullmatch(seq):
        raise click.BadParameter(f"{name!r} is no SESSION:SEQ", param_hint="--result")
    place: Path = session_file(asked.workspace, session)
    with place.open("rb") as file:
        for raw in file:
            if f'"seq":{seq},'.encode() in raw and (line := split_line(raw)).seq == int(seq):
                grounds = {"session": line.session_id, "seq": line.seq, "hash": line.envelope_hash}
                return {"kind": "tool_verified", **grounds, "pointer": pointer}
    raise click.BadParameter(f"{session!r} has no event {seq!r}", param_hint="--result")


def _given(text: str) -> Any:
    """Return the JSON that *text* is, or the text itself where it is none; raises `RefusedJson` for refused JSON."""
    try:
        return read_json(text, "VALUE")
    except RefusedJson as problem:
        if not problem.is_text:
            raise
        if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[", '"'):
            why = f"it begins like JSON and is none: {problem.message}; a text that begins so stands in quotation marks"
            raise RefusedJson(why, "VALUE") from None
        return text


# --- what is said ---------------------------------------------------------------------------------------------------


def _workspace(asked: GlobalOptions) -> "Workspace":
    from deedbook.workspace.workspace import read_workspace

    return read_workspace(asked.workspace)


def _whose(workspace: "Workspace", persona: str | None) -> str | None:
    own = workspace.persona.id if workspace.persona else None
    return own if persona is None else None if persona == _OWN else persona


def _book(workspace: "Workspace", *, afresh: bool = False) -> Any:
    """Open the memory; raises `MemoryRefused` where there is no ledger yet that it could be the fold of."""
    from deedbook.format.errors import MemoryRefused, fault
    from deedbook_memory.book import Book

    try:
        return Book(workspace.state, afresh=afresh)
    except FileNotFoundError:
        raise MemoryRefused(fault("MEMORY_NOT_FOUND", "nothing is remembered: there is no ledger yet")) from None


def _sound(changes: "Iterator[Change]") -> "Iterator[Change]":
    from contextlib import suppress

    with suppress(FileNotFoundError):
        yield from changes


def _change(change: "Change") -> dict[str, Any]:
    from deedbook_memory.book import shown

    about = {"what": change.what, **change.name._asdict(), "version": change.version, **shown(change.held)}
    why = change.why or change.held.get("reason", "")
    entry = change.held.get("entry")
    return {**about, **({"why": why} if why else {}), **({"entry": entry} if entry is not None else {})}


def _why(row: dict[str, Any]) -> str:
    return str(row.get("provenance", {}).get("kind", _OWN))


def _value(row: dict[str, Any]) -> str:
    return "erased" if row.get("erased") else _plain(row["value"])


def _plain(value: Any) -> str:
    if isinstance(value, str) and value.isprintable():
        return str(value)
    return escape_json(json.dumps(value, ensure_ascii=False))
