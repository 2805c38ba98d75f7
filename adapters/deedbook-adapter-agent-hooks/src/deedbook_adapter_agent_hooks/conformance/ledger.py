"""What the ledger of a run has to show: the guard cannot be passed by, whatever the kit's assertions say."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from deedbook.contract import Event

INTERCEPTION: Final = "Interception"
"""The event about an emission (``bridge.told``), with the SDK's record of it and whether the host goes on."""
_INTENTS: Final = {"tool.call": "pre_tool_call", "llm.request": "pre_model_call"}
_OUTCOMES: Final = frozenset({"tool.result", "tool.error", "llm.response", "llm.error"})


def find_faults(found: Sequence[Event], ran: Sequence[dict[str, Any]], requests: int) -> list[str]:
    """Return what is wrong with the events of a run in which the tools *ran*, and the model got *requests*."""
    return [*_find_differences(found, ran, requests), *_find_open(found), *_find_denied(found)]


def _find_differences(found: Sequence[Event], ran: Sequence[dict[str, Any]], requests: int) -> Iterator[str]:
    payloads = [event.payload for event in found if event.type == "tool.call"]
    intents = [{"name": each["tool_name"].partition("/")[2], "args": each["args"]} for each in payloads]
    if intents != list(ran):
        yield f"the tools ran {ran}, and the ledger has the intents {intents}"
    recorded = sum(event.type == "llm.request" for event in found)
    if recorded != requests:
        yield f"the model got {requests} requests, and the ledger has {recorded}"


def _find_open(found: Sequence[Event]) -> Iterator[str]:
    outcomes = Counter(event.parent for event in found if event.type in _OUTCOMES)
    for event in found:
        if event.type in _INTENTS and outcomes[event.span] != 1:
            yield f"event {event.seq} ({event.type}) has {outcomes[event.span]} outcomes"
        elif event.type in _OUTCOMES and event.payload.get("outcome") == "unknown":
            yield f"event {event.seq} ({event.type}): the outcome of a call is unknown"


def _find_denied(found: Sequence[Event]) -> Iterator[str]:
    """Find an intent that no emission allowed just before it, and a denied call without its own event."""
    allowed, denied = "", 0
    for event in found:
        if event.payload.get("event") == INTERCEPTION:
            said = event.payload["said"]
            allowed = said["interception_point"] if said["proceeds"] else ""
            denied += said["interception_point"] == "pre_tool_call" and not said["proceeds"]
        elif event.type in _INTENTS:
            if allowed != _INTENTS[event.type]:
                yield f"event {event.seq} ({event.type}) follows no allowed {_INTENTS[event.type]}"
            allowed = ""
        elif event.type == "tool.denied":
            denied -= 1
    if denied:
        yield f"{denied} calls that the interceptors denied are not recorded as denied"
