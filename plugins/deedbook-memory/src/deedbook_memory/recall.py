"""The memory: the fold of a workspace ledger's ``memory.*`` events; pure.

A proposal counts only after its commit, and a commit only if its version follows the key's: of two with the same
version the first counts. Sealed values stay sealed in the fold.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import attrs

from deedbook.charter.zones import LEGACY
from deedbook.contract import Event, Object
from deedbook.format.events import EXCISED_KEY
from deedbook.format.sealed import is_sealed

from .entries import is_key, upcast

FAMILY: Final = "memory."
_LINKS: Final = ("session", "span", "trace_id", "by", "charter")


class EntryName(NamedTuple):
    """The name of an entry: the *persona* (none: the workspace's own memory), the *zone* and the *key*."""

    persona: str | None
    zone: str
    key: str


@attrs.define
class Slot:
    """A key: its newest *version*, which counts changes from 1, and its *content*; none after a retraction."""

    version: int = 0
    content: dict[str, Any] | None = None


class Change(NamedTuple):
    """A change of a key by an event: ``committed``, ``imported``, ``retracted`` or ``refused``, and its version.

    *content* is the proposed entry with its links; for a refusal *why* holds the code and the reason.
    """

    what: str
    name: EntryName
    version: int
    content: Mapping[str, Any]
    why: str = ""


@attrs.define
class Memory:
    """All entries, and the undecided proposals by their ids.

    *excised* are the spans of proposals whose payload was excised.
    """

    slots: dict[EntryName, Slot] = attrs.field(factory=dict)
    pending: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    excised: list[str] = attrs.field(factory=list)

    def get_slot(self, name: EntryName) -> Slot:
        """Return a key; an empty slot if it never had content."""
        return self.slots.get(name) or Slot()

    def list_entries(self, persona: str | None, zone: str) -> Iterator[tuple[str, Slot]]:
        """Yield the keys of a zone that have content, in order."""
        found = [(name.key, slot) for name, slot in self.slots.items() if name[:2] == (persona, zone) and slot.content]
        yield from sorted(found, key=lambda each: each[0])

    def apply(self, event: Event) -> Change | None:
        """Apply *event* and return its change; an event that does not follow from the state changes nothing."""
        handlers: dict[str, Callable[[Event], Change | None]] = {
            "memory.proposed": self._propose,
            "memory.checked": self._check,
            "memory.refused": self._refuse,
            "memory.committed": self._commit,
            "memory.imported": self._import,
            "memory.retracted": self._retract,
        }
        try:
            return handlers[event.type](event) if event.type in handlers else None
        except (KeyError, TypeError, ValueError, AttributeError):
            return None  # an invalid payload; verification reports it

    def _propose(self, event: Event) -> None:
        payload = event.payload
        if EXCISED_KEY in payload:
            self.excised.append(event.span)
        elif payload["proposal"] not in self.pending:
            parts = ("proposal", "persona", "entry", *_LINKS)
            self.pending[payload["proposal"]] = {name: payload[name] for name in parts}

    def _check(self, event: Event) -> None:
        """Identify an excised proposal by its check."""
        payload = event.payload
        if event.parent in self.excised and payload["proposal"] not in self.pending:
            self.excised.remove(event.parent)
            self.pending[payload["proposal"]] = {"proposal": payload["proposal"], "entry": {EXCISED_KEY: ""}}

    def _refuse(self, event: Event) -> Change | None:
        content = self.pending.pop(event.payload["proposal"], None)
        if content is None:
            return None
        entry = content["entry"]
        name = EntryName(content.get("persona"), str(entry.get("zone", "")), str(entry.get("key", "")))
        why = f"{event.payload['code']}: {event.payload['reason']}"
        return Change("refused", name, self.get_slot(name).version, {**content, **_get_position(event)}, why)

    def _commit(self, event: Event) -> Change | None:
        payload = event.payload
        content = self.pending.pop(payload["proposal"], None)
        if content is None or content.get("persona", payload["persona"]) != payload["persona"]:
            return None
        return self._set("committed", payload, {**content, **_get_position(event)})

    def _import(self, event: Event) -> Change | None:
        payload = event.payload
        content = {
            "persona": payload["persona"],
            "entry": payload["entry"],
            "source": payload["source"],
            **_get_position(event),
        }
        return self._set("imported", {**payload, "zone": LEGACY, "key": payload["entry"]["key"]}, content)

    def _set(self, what: str, payload: Object, content: dict[str, Any]) -> Change | None:
        """Set the content of a key, unless *payload* is for another key, or out of order."""
        entry, version = content["entry"], payload["version"]
        hidden = is_sealed(entry) or EXCISED_KEY in entry
        current, zone = (entry, payload["zone"]) if hidden else upcast(entry)
        name = EntryName(payload["persona"], LEGACY if what == "imported" else zone, payload["key"])
        slot = self.slots.get(name) or Slot()
        fits = is_key(name.key) and (hidden or entry["key"] == name.key)
        if not fits or type(version) is not int or version != slot.version + 1:
            return None
        slot.version, slot.content = version, {**content, "entry": dict(current)}
        self.slots[name] = slot
        return Change(what, name, version, slot.content)

    def _retract(self, event: Event) -> Change | None:
        payload = event.payload
        name = EntryName(payload["persona"], payload["zone"], payload["key"])
        slot = self.slots.get(name)
        if slot is None or not slot.content or payload["version"] != slot.version + 1:
            return None
        slot.version, slot.content = payload["version"], None
        links = {key: payload[key] for key in _LINKS}
        return Change("retracted", name, slot.version, {**links, "reason": payload["reason"], **_get_position(event)})


def _get_position(event: Event) -> dict[str, Any]:
    """Return the position of an event in the workspace ledger."""
    return {"seq": event.seq, "ts": event.ts}
