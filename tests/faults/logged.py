"""Manipulations that a log finds whose key the reader knows, and those that only a checkpoint held elsewhere finds.

The log is not signed anew unless a name says so: who tampers does not have its key, or it is the attacker's own.
"""

import shutil

from .manipulations import Change, Manipulation, also, committed, cut, header, told, twice, without
from .states import HOME, LOG, THEIRS, Event, State

M = Manipulation
LEAF, CHECKPOINT, KEY = "leaf", "checkpoint", "key"
EVENTS, LINE = "events", r"envelope_hash of line \d+"
ANEW, STRANGE, BACK = r".* written anew", r".* none of the trusted keys .* vouches", "rolled_back"


def with_heads(*changes: Change) -> Change:
    """Change sessions, and let the workspace ledger say what it needs to, but for the log."""
    return also(*changes, State.heads)


def signed_by(seed: bytes | None, *changes: Change) -> Change:
    """Change sessions, forge heads, and write the whole log anew with a key; without one, with the stolen one."""

    def log(state: State) -> None:
        state.log(seed or state.seed)

    return also(
        with_heads(*changes), log, State.agree, log
    )  # the log moves answers, which sessions name by their place


def left_out(wanted: str) -> Change:
    """Take a session away, and all that the workspace ledger says of it but for the log."""

    def change(state: State) -> None:
        identity = state.names[wanted]
        shutil.rmtree(state.folder(wanted))
        state.edit(HOME, lambda events: [event for event in events if not _about(event, identity)])

    return change


def _about(event: Event, identity: str) -> bool:
    return event.type not in LOG and identity in (event.payload.get("session_id"), event.payload.get("session"))


def leaf(nth: int = 4, **payload: object) -> Change:
    """Let a leaf say something else."""
    return told(HOME, "ledger.leaf", nth, **payload)


def checkpoint(nth: int = 2, **payload: object) -> Change:
    """Let a checkpoint say something else."""
    return told(HOME, "ledger.checkpoint", nth, **payload)


def leaves_swapped(state: State) -> None:
    """Let two leaves change places, each with the other's index."""

    def edit(events: list[Event]) -> list[Event]:
        one, other = [number for number, event in enumerate(events) if event.type == "ledger.leaf"][4:6]
        events[one], events[other] = events[other], events[one]
        indexes = events[one].payload["index"], events[other].payload["index"]
        events[other].payload["index"], events[one].payload["index"] = indexes
        return events

    state.edit(HOME, edit)


def without_log(state: State) -> None:
    """Take the log out of the workspace ledger."""
    state.edit(HOME, lambda events: [event for event in events if event.type not in LOG])


def cut_at_checkpoint(nth: int) -> Change:
    """Cut the workspace ledger behind a checkpoint, and take away the sessions that came after it."""

    def change(state: State) -> None:
        number = state.number(HOME, "ledger.checkpoint", nth)
        gone = [event.payload["session_id"] for event in state.events(HOME)[number:] if event.type == "system.run"]
        cut(HOME, number + 1)(state)
        for identity in gone:
            shutil.rmtree(state.folder(identity))
        shutil.rmtree(state.state / "imported")

    return change


def file(text: str) -> Change:
    """Let the file with the newest checkpoint hold something else."""
    return lambda state: void(state.checkpoint.write_text(text, encoding="utf-8"))


def void(_: object) -> None:
    """Make a statement of an expression."""


def file_changed(state: State) -> None:
    """Change a digit of the file's signature."""
    text = state.checkpoint.read_text(encoding="utf-8")
    at = len(text) - 12
    state.checkpoint.write_text(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :], encoding="utf-8")


def file_of_attacker(state: State) -> None:
    """Put a checkpoint into the file that somebody else signed."""
    before = state.lines(HOME)
    state.log(THEIRS)
    state.put(HOME, before)


def file_of_another_workspace(state: State) -> None:
    """Put the checkpoint of a log into the file that has another name."""
    text = state.checkpoint.read_text(encoding="utf-8").replace(state.identity, "ws-" + "ab" * 16)
    state.checkpoint.write_text(text, encoding="utf-8")


def forged_rotation(state: State) -> None:
    """Bring an attacker's key into force after ours, which is said to be lost, and sign the log anew with it."""
    ours = state.events(HOME)[state.number(HOME, "ledger.key")]
    state.log(THEIRS)
    number = state.number(HOME, "ledger.key")

    def edit(events: list[Event]) -> list[Event]:
        lost = Event(events[number].header | {"span_id": "a" * 15 + "b"}, events[number].payload | {"lost": True})
        lost.payload["previous"] = ours.payload["key"]
        return [*events[:number], ours, lost, *events[number + 1 :]]

    state.edit(HOME, edit)


def renamed_workspace(state: State) -> None:
    """Let the workspace ledger be that of another workspace."""

    def edit(events: list[Event]) -> None:
        for event in events:
            event.header["session_id"] = "ws-" + "ab" * 16

    state.edit(HOME, edit)


def forgotten(state: State) -> None:
    """Take the log away, and the file with it."""
    without_log(state)
    state.agree()
    state.checkpoint.unlink()


LOGGED = {
    "an argument changed and its head forged": M(
        with_heads(told("call", "tool.call", args={"text": "rm"})), "call", LINE
    ),
    "a result changed and its head forged": M(
        with_heads(told("call", "tool.result", result={"text": "rm"})), "call", LINE
    ),
    "an ability changed and its head forged": M(with_heads(told("call", "tool.call", tool_name="asked")), "call", LINE),
    "a principal changed and its head forged": M(
        with_heads(header("call", "tool.call", principal="eve")), "call", LINE
    ),
    "a time changed and its head forged": M(
        with_heads(header("call", "tool.call", ts="2020-01-01T00:00:00.000Z")), "call", LINE
    ),
    "the end of a session changed and its head forged": M(
        with_heads(told("call", "session.end", reason="otherwise")), "call", LINE
    ),
    "a commitment replaced and its head forged": M(with_heads(committed("my PIN")), "sealed", LINE),
    "a result left out and its head forged": M(with_heads(without("call", "tool.result")), "call", EVENTS),
    "a session cut and its head forged": M(with_heads(cut("call", 3)), "call", EVENTS),
    "a session continued and its head forged": M(with_heads(twice("call", "tool.result")), "call", LINE),
    "a session left out wherever it is named": M(left_out("call"), "call", "file"),
    "an event of the workspace ledger changed": M(told(HOME, "ledger.charter", looser=["nothing"]), HOME, ANEW),
    "an event of the workspace ledger left out": M(without(HOME, "system.shutdown"), HOME, LEAF),
    "an event of the workspace ledger twice": M(twice(HOME, "ledger.session"), HOME, ANEW),
    "a principal of the workspace ledger changed": M(header(HOME, "system.boot", principal="eve"), HOME, ANEW),
    "the ledger of another workspace": M(renamed_workspace, HOME, KEY),
    "a leaf with another index": M(leaf(index=9), HOME, LEAF),
    "a leaf of more lines": M(leaf(size=40), HOME, CHECKPOINT),
    "a leaf of fewer lines": M(leaf(size=1), HOME, CHECKPOINT),
    "a leaf with another head": M(leaf(head="0" * 64), HOME, CHECKPOINT),
    "a leaf with another root": M(leaf(root="0" * 64), HOME, CHECKPOINT),
    "a leaf with other peaks": M(leaf(peaks=["0" * 64]), HOME, ANEW),
    "a leaf of another session": M(leaf(5, session_id="f" * 32), HOME, CHECKPOINT),
    "a leaf left out": M(without(HOME, "ledger.leaf", 4), HOME, CHECKPOINT),
    "a leaf twice": M(twice(HOME, "ledger.leaf", 4), HOME, LEAF),
    "leaves swapped": M(leaves_swapped, HOME, LEAF),
    "a checkpoint of more leaves": M(checkpoint(size=99), HOME, CHECKPOINT),
    "a checkpoint of fewer leaves": M(checkpoint(size=1), HOME, CHECKPOINT),
    "a checkpoint with another root": M(checkpoint(root="0" * 64), HOME, CHECKPOINT),
    "a checkpoint with other peaks": M(checkpoint(peaks=[]), HOME, CHECKPOINT),
    "a checkpoint of another log": M(checkpoint(origin="deedbook/other"), HOME, CHECKPOINT),
    "a checkpoint whose note is another's": M(
        lambda state: checkpoint(note=state.events(HOME)[state.number(HOME, "ledger.checkpoint")].payload["note"])(
            state
        ),
        HOME,
        CHECKPOINT,
    ),
    "a checkpoint whose signature was changed": M(
        checkpoint(note=lambda old: old[:-12] + ("A" if old[-12] != "A" else "B") + old[-11:]), HOME, CHECKPOINT
    ),
    "a checkpoint without signature": M(checkpoint(note=lambda old: old[: old.index("\n\n") + 2]), HOME, CHECKPOINT),
    "a checkpoint whose note is nothing": M(checkpoint(note="x"), HOME, CHECKPOINT),
    "a checkpoint told for another reason": M(checkpoint(why="asked"), HOME, ANEW),
    "a checkpoint left out": M(without(HOME, "ledger.checkpoint", 2), HOME, LEAF),
    "a checkpoint twice": M(twice(HOME, "ledger.checkpoint", -1), HOME, CHECKPOINT),
    "the key left out": M(without(HOME, "ledger.key"), HOME, CHECKPOINT),
    "the key twice": M(twice(HOME, "ledger.key"), HOME, KEY),
    "the key's signature changed": M(
        told(HOME, "ledger.key", signed=lambda old: old[:-12] + ("A" if old[-12] != "A" else "B") + old[-11:]),
        HOME,
        KEY,
    ),
    "a key before the first": M(told(HOME, "ledger.key", previous="x+00000000+AAAA"), HOME, KEY),
    "a key that nobody trusts": M(signed_by(THEIRS), HOME, STRANGE),
    "all written anew and signed with another key": M(
        signed_by(THEIRS, told("call", "tool.call", args={"text": "rm"})), HOME, STRANGE
    ),
    "a session left out, and all signed with another key": M(
        also(left_out("call"), lambda state: state.log(THEIRS)), HOME, STRANGE
    ),
    "our key told lost, and another in its place": M(forged_rotation, HOME, STRANGE),
    "the workspace ledger cut at an earlier checkpoint": M(cut_at_checkpoint(2), HOME, BACK),
    "the workspace ledger cut at the first checkpoint": M(cut_at_checkpoint(0), HOME, BACK),
    "the log taken out of the ledger": M(without_log, HOME, BACK),
    "the log taken away, and the file with it": M(forgotten, HOME, BACK),
    "the file's signature changed": M(file_changed, HOME, r"BROKEN .* in .*checkpoint.*"),
    "the file signed by somebody else": M(file_of_attacker, HOME, r"(BROKEN|ROLLED BACK).* in .*checkpoint.*"),
    "the file of another workspace": M(file_of_another_workspace, HOME, r"BROKEN .* in .*checkpoint.*"),
}
"""What a log finds, for who knows its key."""


def rolled_back(state: State) -> None:
    """Put everything back to where it was at an earlier checkpoint, the file with it."""
    cut_at_checkpoint(2)(state)
    note = state.events(HOME)[state.number(HOME, "ledger.checkpoint", -1)].payload["note"]
    state.checkpoint.write_text(note, encoding="utf-8")


CONTROLS = {
    "all of it put back to an earlier day": rolled_back,
    "an argument changed, and all signed anew with the log's own key": signed_by(
        None, told("call", "tool.call", args={"text": "rm"})
    ),
    "a charter changed, and all signed anew with the log's own key": signed_by(
        None, told(HOME, "ledger.charter", looser=["nothing"])
    ),
    "a principal changed, and all signed anew with the log's own key": signed_by(
        None, header("call", "tool.call", principal="eve")
    ),
}
"""What no reader of the files alone can find; a checkpoint held by somebody else shows it."""
