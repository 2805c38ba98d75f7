"""What outlives a task, in the workspace ledger: rewards of finished tasks, and revisions of routing policies.

The feature writes the first when a session ends, ``deedbook swe routing revise`` the second. `LearnedIndex` reads both
once and follows the ledger; gates get what they read as facts, which are recorded with each decision.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from deedbook import EventType, Object
from deedbook.contract import Event
from deedbook.format import canonical
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import Entry, label, split_line
from deedbook_flow_swe.task_record import TaskRecord

from .evidence import collect_rows

ROUTING_REVISED: Final = "swe.routing_revised"
TASK_REWARDED: Final = "swe.task_rewarded"
MARK: Final = b'"event_type":"swe.'
"""What the lines of these events have in common."""
ROUTING_FACT: Final = "swe.routing"
EVIDENCE_FACT: Final = "swe.evidence"
MAX_ROWS: Final = 16
"""The most tasks of one pattern that a decision gets to see; one that contradicts the pattern is always among them."""

_HEADER: Final = 600
_NAME: Final = {"type": "string", "minLength": 1}
_HASH: Final = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_OBJECT: Final = {"type": "object"}


def _object(**members: Object) -> Object:
    return {"type": "object", "required": list(members), "properties": members, "additionalProperties": False}


def _rows(**members: Object) -> Object:
    return {"type": "array", "items": _object(**members)}


_COMBINATION: Final = {"phase": _NAME, "rule": _NAME}
EVENTS: Final[Mapping[str, EventType]] = MappingProxyType(
    {
        ROUTING_REVISED: EventType(
            schema=_object(
                pipeline=_NAME,
                base_digest=_HASH,
                from_digest=_HASH,
                to_digest=_HASH,
                before=_OBJECT,
                policy=_OBJECT,
                changes=_rows(**_COMBINATION, from_tier=_NAME, to_tier=_NAME, runs=_COUNT, sent_back=_COUNT),
                counts=_rows(**_COMBINATION, tier=_NAME, runs=_COUNT, sent_back=_COUNT),
                evidence=_rows(session=_NAME, task_id=_NAME, generated={"type": "boolean"}),
                generated=_COUNT,
            ),
            text="the routing of {pipeline} is revised to {to_digest}",
            layer="L8",
        ),
        TASK_REWARDED: EventType(
            schema=_object(session=_NAME, reward=_OBJECT, promoted=_rows(kind=_NAME, pattern=_NAME)),
            text="a task of session {session} is rewarded",
            layer="L8",
        ),
    }
)
"""The event types of the workspace ledger, with their schemas."""

FACTS: Final[Mapping[str, Object]] = MappingProxyType(
    {
        ROUTING_FACT: {
            "type": "object",
            "properties": {"revisions": _OBJECT, "broken": {"type": "string"}},
        },
        EVIDENCE_FACT: {
            "type": "object",
            "properties": {"patterns": {"type": "array", "items": _OBJECT}, "broken": {"type": "string"}},
        },
    }
)
"""The facts that gates may read: the last revision of each pipeline's routing, and the evidence about patterns."""


class LearnedIndex:
    """The rewards and revisions in a workspace ledger, each the last of its subject."""

    def __init__(self) -> None:
        self.revisions: dict[str, dict[str, Any]] = {}
        self._rewards: dict[tuple[str, str], Object] = {}
        self._promoted: set[tuple[str, str]] = set()
        self._broken = ""

    @classmethod
    def load(cls, ledger: Any) -> "LearnedIndex":
        """Read *ledger* (a `WorkspaceLedger`) and follow it; raises `LedgerError`."""
        made = cls()
        with ledger.exclusive():
            made.read_lines(ledger.since(0), ledger.place)
            ledger.subscribe(made.step)
        return made

    def read_lines(self, lines: Iterable[bytes], place: str) -> None:
        """Apply the lines of a ledger; raises `LedgerError`."""
        for raw in lines:
            if MARK in raw[:_HEADER]:
                self.step(split_line(raw.rstrip(b"\n"), place=place).event)

    def step(self, event: Event) -> None:
        """Apply one more event. A revision that cannot be read makes the facts say so: nothing is decided on it."""
        payload = event.payload
        try:
            if event.type == ROUTING_REVISED:
                self.revisions[payload["pipeline"]] = {
                    "seq": event.seq,
                    "base": payload["base_digest"],
                    "digest": payload["to_digest"],
                    "policy": payload["policy"],
                }
            elif event.type == TASK_REWARDED:
                reward = payload["reward"]
                self._rewards[payload["session"], reward["task_id"]] = reward
                self._promoted |= {(each["kind"], each["pattern"]) for each in payload["promoted"]}
        except (KeyError, TypeError) as problem:
            self._broken = f"event {event.seq} ({event.type}) cannot be read: {problem!r}"

    def read_routing(self) -> dict[str, Any]:
        """Return the fact `ROUTING_FACT`."""
        return {"broken": self._broken} if self._broken else {"revisions": dict(self.revisions)}

    def read_evidence(self) -> dict[str, Any]:
        """Return the fact `EVIDENCE_FACT`."""
        if self._broken:
            return {"broken": self._broken}
        rewards = ((reward, session) for (session, _), reward in self._rewards.items() if not reward["generated"])
        found = collect_rows(rewards)
        return {
            "patterns": [
                {"kind": kind, "pattern": name, "rows": _limit(rows), "promoted": (kind, name) in self._promoted}
                for (kind, name), rows in sorted(found.items())
            ]
        }

    def require_sound(self) -> None:
        """Raise `LedgerError` if an event could not be read."""
        if self._broken:
            raise LedgerError(fault("LEDGER_UNSOUND", f"{self._broken}; verify the workspace ledger"))


def _limit(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the newest rows, with the newest that contradicts the pattern, however old it is."""
    recent = rows[-MAX_ROWS:]
    against = [row for row in rows[:-MAX_ROWS] if row["composite_score"] in (0, -1)]
    return [*against[-1:], *recent[bool(against) :]]


# --- writing ----------------------------------------------------------------------------------------------------------


def build_entry(ledger: Any, event_type: str, payload: Object, *, principal: str | None = None) -> Entry:
    """Return the entry for an event under the root of the workspace *ledger*."""
    actor = "runtime" if principal is None else "user"
    return Entry(
        label(event_type, actor, principal), ledger.span(), ledger.root, canonical.encode_payload(dict(payload))
    )


def find_rewards(records: Iterable[TaskRecord]) -> Iterator[dict[str, Any]]:
    """Yield the payload of `TASK_REWARDED` for each task that has a reward."""
    for record in records:
        if record.reward is not None:
            promoted = [{"kind": kind, "pattern": pattern} for kind, pattern in record.promoted]
            yield {"session": record.session, "reward": dict(record.reward), "promoted": promoted}
