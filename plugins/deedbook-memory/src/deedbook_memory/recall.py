"""What is remembered: the fold of a workspace ledger's ``memory.*`` events; pure.

A proposal is nothing until it is committed, and a commit counts only if it follows on what its key was: of two that
claim the same version the first one is remembered. What was sealed stays so in the fold.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import attrs

from deedbook.contract import Event, Object
from deedbook.format.entries import LEGACY, is_key, upcast
from deedbook.format.events import EXCISED_KEY
from deedbook.format.sealed import is_sealed

FAMILY: Final = "memory."
_LINKS: Final = ("session", "span", "trace_id", "by", "charter")


class Name(NamedTuple):
    """Which entry: the *persona* whose memory it is (none: the workspace's own), the *zone* and the *key*."""

    persona: str | None
    zone: str
    key: str


@attrs.define
class Slot:
    """A key: its newest *version*, which counts changes from 1, and what it *holds*; nothing after a retraction."""

    version: int = 0
    holds: dict[str, Any] | None = None


class Change(NamedTuple):
    """What an event did to a key: it is ``committed``, ``imported``, ``retracted`` or ``refused``, as which version.

    *held* is what was proposed, with links to where; for a refusal *why* says the code and the reason.
    """

    what: str
    name: Name
    version: int
    held: Mapping[str, Any]
    why: str = ""


@attrs.define
class Memory:
    """Everything that is remembered, and the proposals that nothing was decided about yet, by their ids.

    *taken_out* are the spans of proposals whose payload was taken out of its line.
    """

    slots: dict[Name, Slot] = attrs.field(factory=dict)
    pending: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    taken_out: list[str] = attrs.field(factory=list)

    def slot(self, name: Name) -> Slot:
        """Return what is known of a key; an empty slot where nothing ever was."""
        return self.slots.get(name) or Slot()

    def entries(self, persona: str | None, zone: str) -> Iterator[tuple[str, Slot]]:
        """Yield the keys of a zone that hold something, in order."""
        found = [(name.key, slot) for name, slot in self.slots.items() if name[:2] == (persona, zone) and slot.holds]
        yield from sorted(found, key=lambda each: each[0])

    def take(self, event: Event) -> Change | None:
        """Take *event* in and return what it changed; an event that does not fit what was before changes nothing."""
        takers: dict[str, Callable[[Event], Change | None]] = {
            "memory.proposed": self._propose,
            "memory.checked": self._check,
            "memory.refused": self._refuse,
            "memory.committed": self._commit,
            "memory.imported": self._import,
            "memory.retracted": self._retract,
        }
        try:
            return takers[event.type](event) if event.type in takers else None
        except (KeyError, TypeError, ValueError, AttributeError):
            return None  # not in the form of its type; verification says so

    def _propose(self, event: Event) -> None:
        said = event.payload
        if EXCISED_KEY in said:
            self.taken_out.append(event.span)
        elif said["proposal"] not in self.pending:
            parts = ("proposal", "persona", "entry", *_LINKS)
            self.pending[said["proposal"]] = {name: said[name] for name in parts}

    def _check(self, event: Event) -> None:
        """Let a proposal be known again by its check, where nothing else is left of it."""
        said = event.payload
        if event.parent in self.taken_out and said["proposal"] not in self.pending:
            self.taken_out.remove(event.parent)
            self.pending[said["proposal"]] = {"proposal": said["proposal"], "entry": {EXCISED_KEY: ""}}

    def _refuse(self, event: Event) -> Change | None:
        held = self.pending.pop(event.payload["proposal"], None)
        if held is None:
            return None
        entry = held["entry"]
        name = Name(held.get("persona"), str(entry.get("zone", "")), str(entry.get("key", "")))
        why = f"{event.payload['code']}: {event.payload['reason']}"
        return Change("refused", name, self.slot(name).version, {**held, **_at(event)}, why)

    def _commit(self, event: Event) -> Change | None:
        said = event.payload
        held = self.pending.pop(said["proposal"], None)
        if held is None or held.get("persona", said["persona"]) != said["persona"]:
            return None
        return self._hold("committed", said, {**held, **_at(event)})

    def _import(self, event: Event) -> Change | None:
        said = event.payload
        held = {"persona": said["persona"], "entry": said["entry"], "source": said["source"], **_at(event)}
        return self._hold("imported", {**said, "zone": LEGACY, "key": said["entry"]["key"]}, held)

    def _hold(self, what: str, said: Object, held: dict[str, Any]) -> Change | None:
        """Let a key hold what *held* says, unless *said* is about another one, or out of turn."""
        entry, version = held["entry"], said["version"]
        hidden = is_sealed(entry) or EXCISED_KEY in entry
        made, zone = (entry, said["zone"]) if hidden else upcast(entry)
        name = Name(said["persona"], LEGACY if what == "imported" else zone, said["key"])
        slot = self.slots.get(name) or Slot()
        fits = is_key(name.key) and (hidden or entry["key"] == name.key)
        if not fits or type(version) is not int or version != slot.version + 1:
            return None
        slot.version, slot.holds = version, {**held, "entry": dict(made)}
        self.slots[name] = slot
        return Change(what, name, version, slot.holds)

    def _retract(self, event: Event) -> Change | None:
        said = event.payload
        name = Name(said["persona"], said["zone"], said["key"])
        slot = self.slots.get(name)
        if slot is None or not slot.holds or said["version"] != slot.version + 1:
            return None
        slot.version, slot.holds = said["version"], None
        links = {key: said[key] for key in _LINKS}
        return Change("retracted", name, slot.version, {**links, "reason": said["reason"], **_at(event)})


def _at(event: Event) -> dict[str, Any]:
    """Return where an event stands in the workspace ledger."""
    return {"seq": event.seq, "ts": event.ts}


class RecallFold:
    """The fold whose state is `Memory`."""

    def start(self) -> Memory:
        """Return an empty memory."""
        return Memory()

    def step(self, state: Memory, event: Event) -> Memory:
        """Take *event* in; what it is not about stays as it was."""
        state.take(event)
        return state
