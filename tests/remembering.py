"""Workspaces that remember, as tests need them."""

import json
from typing import Any

from deedbook import Err, Ok
from deedbook.format.reader import read
from deedbook_memory.book import MemoryBook

ABILITIES = {
    f"memory/{name}": {"summary": f"{name}.", "kind": "memory", "handler": {"tool": f"memory-{name}"}}
    for name in ("read", "propose", "retract")
}
ALLOW = {"kind": "rules", "match": {"kind": "memory"}, "rules": [{"match": {"kind": "memory"}, "then": "allow"}]}


def remembering(lab: Any, *, policy: Any = ALLOW, persona: str = "", **memory: Any) -> Any:
    """Let *lab* remember: abilities, a policy that allows all of them, and the section ``memory:``."""
    lab.settings(abilities=ABILITIES, memory=memory)
    if policy:
        lab.settings(policies={"remember": policy})
    if persona:
        bound(lab, persona)
    return lab


def bound(lab: Any, persona: str, **more: Any) -> None:
    """Bind *lab* to a persona."""
    lab.write("persona.json", json.dumps({"schema_version": "v1", "id": persona, "version": 1, **more}))


def propose(session: Any, key: str, value: Any, zone: str = "observation", **more: Any) -> Any:
    """Propose an entry."""
    return session.call("memory/propose", {"zone": zone, "key": key, "value": value, **more})


def fine(result: Any) -> Any:
    """Return what a call gave; fail if it gave nothing."""
    assert isinstance(result, Ok), result
    return result.value


def code(result: Any) -> str:
    """Return the code with which a call was refused."""
    assert isinstance(result, Err), result
    return str(result.error.code)


def why(result: Any) -> str:
    """Return why a call was refused."""
    assert isinstance(result, Err), result
    return str(result.error.message)


def declared(session: Any, text: str = "I say so") -> dict[str, Any]:
    """Return the grounds that a message of the session's own person is."""
    return {"kind": "user_declared", "session": session.id, "span": fine(session.submit(text)).message}


def kept(session: Any, zone: str = "observation") -> dict[str, Any]:
    """Return what is remembered in a zone, as a session reads it."""
    found = fine(session.call("memory/read", {"zone": zone}))
    return {entry["key"]: entry["value"] for entry in found["entries"]}


def told(lab: Any) -> list[Any]:
    """Return the ``memory.*`` events of the workspace ledger."""
    return [event for event in read(lab.state / "workspace") if event.type.startswith("memory.")]


def folded(lab: Any, *, afresh: bool = False) -> dict[Any, Any]:
    """Return what is remembered, by the fold alone."""
    with MemoryBook(lab.state, afresh=afresh) as book:
        slots = book.memory.slots.items()
        return {tuple(name): slot.content["entry"]["value"] if slot.content else None for name, slot in slots}
