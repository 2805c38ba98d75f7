"""What somebody can do who may write the files of a workspace: each function returns a change of a `State`."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from .states import Event, State

Change = Callable[[State], None]


@attrs.frozen
class Manipulation:
    """One manipulation: what it does, and where which rule (a regular expression) has to be named as broken."""

    change: Change
    where: str
    check: str


def cut(name: str, kept: int) -> Change:
    """Take lines away from the end."""
    return lambda state: state.put(name, state.lines(name)[:kept])


def raw(name: str, old: bytes, new: bytes) -> Change:
    """Change bytes of a ledger, and nothing else."""

    def change(state: State) -> None:
        whole = state.file(name).read_bytes()
        assert old in whole
        state.file(name).write_bytes(whole.replace(old, new, 1))

    return change


def told(name: str, event_type: str, nth: int = 0, **payload: Any) -> Change:
    """Let an event say something else, with all hashes of its ledger made right."""

    def change(state: State) -> None:
        def edit(events: list[Event]) -> None:
            event = [event for event in events if event.type == event_type][nth]
            for member, value in payload.items():
                before = event.payload.get(member)
                event.payload[member] = value(before) if callable(value) else value

        state.edit(name, edit)

    return change


def without(name: str, event_type: str, nth: int = 0) -> Change:
    """Take an event away, with all hashes of its ledger made right."""

    def change(state: State) -> None:
        number = state.number(name, event_type, nth)
        state.edit(name, lambda events: events[:number] + events[number + 1 :])

    return change


def twice(name: str, event_type: str, nth: int = 0) -> Change:
    """Have an event twice, the second with a span of its own, with all hashes made right."""

    def change(state: State) -> None:
        number = state.number(name, event_type, nth)

        def edit(events: list[Event]) -> list[Event]:
            again = Event(events[number].header | {"span_id": "f" * 15 + "a"}, dict(events[number].payload))
            return [*events[: number + 1], again, *events[number + 1 :]]

        state.edit(name, edit)

    return change


def header(name: str, of: str, nth: int = 0, **fields: Any) -> Change:
    """Change fields of a header, with all hashes made right."""

    def change(state: State) -> None:
        def edit(events: list[Event]) -> None:
            [event for event in events if event.type == of][nth].header.update(fields)

        state.edit(name, edit)

    return change


def also(*changes: Change) -> Change:
    """Do one after the other."""

    def change(state: State) -> None:
        for each in changes:
            each(state)

    return change


def swapped(one: str, other: str) -> Change:
    """Let two sessions change places."""

    def change(state: State) -> None:
        spare = state.folder(one).with_name("spare")
        state.folder(one).rename(spare)
        state.folder(other).rename(state.folder(one))
        spare.rename(state.folder(other))

    return change


def put_in_place(of: str, other: str) -> Change:
    """Put one session's ledger in the place of another's."""
    return lambda state: state.put(of, state.lines(other))


def invented(state: State) -> None:
    """Add a session that never was: a copy under another id, with all hashes right."""
    identity = "e" * 32
    shutil.copytree(state.folder("call"), state.folder(identity))

    def edit(events: list[Event]) -> None:
        for event in events:
            event.header["session_id"] = identity

    state.edit(identity, edit)


def linked(name: str) -> Change:
    """Let a ledger be a symbolic link to itself elsewhere."""

    def change(state: State) -> None:
        state.file(name).rename(state.root / "elsewhere")
        state.file(name).symlink_to(state.root / "elsewhere")

    return change


def hard_linked(name: str) -> Change:
    """Let a ledger have a second name."""
    return lambda state: os.link(state.file(name), state.root / "second")


def piped(name: str) -> Change:
    """Put a named pipe in a ledger's place."""

    def change(state: State) -> None:
        state.file(name).unlink()
        os.mkfifo(state.file(name))

    return change


# --- sealed values ----------------------------------------------------------------------------------------------------


def sealed(edit: Callable[[bytes], bytes], name: str = "sealed") -> Change:
    """Change the bytes of a sealed value: 32 of salt, and what they keep from being guessed."""

    def change(state: State) -> None:
        file = state.sealed(name)[0]
        file.write_bytes(edit(file.read_bytes()))

    return change


def sealed_swapped(state: State) -> None:
    """Let the sealed values of a session change places."""
    one, other = state.sealed("sealed")[:2]
    first, second = one.read_bytes(), other.read_bytes()
    assert first != second
    one.write_bytes(second)
    other.write_bytes(first)


def sealed_from_another(state: State) -> None:
    """Put the sealed value of another session in the place of this one's."""
    state.sealed("sealed")[0].write_bytes(state.sealed("two")[0].read_bytes())


def sealed_link(state: State) -> None:
    """Let a sealed value be a symbolic link to its own bytes."""
    file = state.sealed("sealed")[0]
    file.rename(state.root / "bytes")
    file.symlink_to(state.root / "bytes")


def sealed_folder(state: State) -> None:
    """Put a folder in a sealed value's place."""
    file = state.sealed("sealed")[0]
    file.unlink()
    file.mkdir()


def committed(value: Any) -> Change:
    """Let a call have had another argument than a sealed one, with hashes made right."""
    return told("sealed", "tool.call", args={"text": value})


# --- what was taken out, and what was taken in ------------------------------------------------------------------------


def taken_out(state: State) -> None:
    """Take a payload out of its line, and say nothing of it."""
    lines = state.lines("call")
    number = state.number("call", "tool.call")
    head, _, _ = lines[number].partition(b',"payload":')
    digest = Event.parse(lines[number]).header["payload_hash"]
    lines[number] = head + b',"payload":{"$excised":"' + digest.encode() + b'"}}\n'
    state.put("call", lines)


def put_back(state: State) -> None:
    """Put another payload where one was taken out."""
    lines = state.lines("gone")
    head, _, _ = lines[1].partition(b',"payload":')
    lines[1] = head + b',"payload":{"args":{"text":"never said"},"tool_name":"echo"}}\n'
    state.put("gone", lines)


def imported(edit: Callable[[Path], object]) -> Change:
    """Do something to the bytes of an old ledger that was taken in."""

    def change(state: State) -> None:
        (file,) = (state.state / "imported").glob("*/events.jsonl")
        file.chmod(0o600)
        edit(file)

    return change


def unknown_import(state: State) -> None:
    """Lay an old ledger beside the others that nobody took in."""
    folder = state.state / "imported" / ("0" * 64)
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(b"{}\n")
