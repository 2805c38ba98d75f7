"""What became looser or tighter between two charters; pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

Change: TypeAlias = tuple[Literal["looser", "tighter", "other"], str]

_EFFECTS: Final = ("none", "read", "write", "irreversible")


@attrs.frozen
class Difference:
    """Changes in words: *looser* allows more (or may), *tighter* allows less, *other* is neither."""

    looser: tuple[str, ...] = ()
    tighter: tuple[str, ...] = ()
    other: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.looser or self.tighter or self.other)


def difference(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Difference:
    """Compare two charter documents; without *old* everything is new."""
    found = list(_changes(old, new)) if old is not None else [("other", "first charter of this workspace")]
    return Difference(*(tuple(text for kind, text in found if kind == way) for way in ("looser", "tighter", "other")))


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    yield from _enforcement(old, new)
    yield from _section(old, new, "abilities", "ability", "looser", "tighter", _ability)
    yield from _section(old, new, "hooks", "hook", "tighter", "looser", _gate)
    yield from _section(old, new, "policies", "policy", "tighter", "looser", _gate)
    yield from _section(old, new, "skills", "skill", "looser", "tighter", _skill)
    yield from _section(old, new, "principals", "principal", "looser", "tighter", _principal)
    yield from _section(old, new, "plugins", "plugin", "other", "other", _plugin)
    if old["file_roots"] != new["file_roots"]:
        yield "looser", f"file roots are {', '.join(new['file_roots'])}"
    if old["seal"] != new["seal"]:
        yield "looser", "what is sealed changed"
    for name in ("kernel", "profile", "durability", "flow", "models", "roles", "instructions", "secrets"):
        if old[name] != new[name]:
            yield "other", f"{name} changed"


def _enforcement(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    if old["enforcement"] != new["enforcement"]:
        way: Literal["looser", "tighter"] = "looser" if new["enforcement"] == "observe" else "tighter"
        yield way, f"enforcement is {new['enforcement']}"


def _section(  # noqa: PLR0913 - one row of a table
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    name: str,
    noun: str,
    added: Literal["looser", "tighter", "other"],
    removed: Literal["looser", "tighter", "other"],
    changed: Any,
) -> Iterator[Change]:
    before, after = old[name], new[name]
    yield from ((added, f"{noun} {key} is new") for key in sorted(after.keys() - before.keys()))
    yield from ((removed, f"{noun} {key} is gone") for key in sorted(before.keys() - after.keys()))
    for key in sorted(after.keys() & before.keys()):
        yield from changed(f"{noun} {key}", before[key], after[key])


def _ability(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    if old["effects"] != new["effects"]:
        lower = _EFFECTS.index(new["effects"]) < _EFFECTS.index(old["effects"])
        yield "looser" if lower else "tighter", f"{what}: effects are {new['effects']}"
    yield from _sets(f"{what}: uses", old["uses"], new["uses"], "looser", "tighter")
    yield from _sets(f"{what}: tag", old["tags"], new["tags"], "tighter", "looser")
    yield from _sets(f"{what}: policy", old["policies"], new["policies"], "tighter", "looser")
    for moment in ("pre_call", "post_call"):
        was, now = (entry["hooks"].get(moment, []) for entry in (old, new))
        yield from _sets(f"{what}: hook at {moment}", was, now, "tighter", "looser")
    for part in ("takes", "gives", "schema_in", "schema_out", "settings", "plugin", "timeout_ms", "paths", "scopes"):
        if old[part] != new[part]:
            yield "looser", f"{what}: {part} changed"


def _gate(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    parts = [part for part in new if part not in ("place", "rules") and old.get(part) != new[part]]
    if parts:
        yield "looser", f"{what}: {', '.join(parts)} changed"


def _skill(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    yield from _sets(f"{what}: allowed ability", old["allowed"], new["allowed"], "looser", "tighter")
    if {**old, "allowed": (), "source": ""} != {**new, "allowed": (), "source": ""}:
        yield "other", f"{what}: text changed"


def _principal(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    yield from _sets(f"{what}: role", old["roles"], new["roles"], "looser", "tighter")
    if {**old, "roles": ()} != {**new, "roles": ()}:
        yield "looser", f"{what} changed"


def _plugin(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    if old != new:
        yield "looser", f"{what} is {new['distribution']} {new['version']}, other code than before"


def _sets(
    what: str,
    old: list[str],
    new: list[str],
    added: Literal["looser", "tighter"],
    removed: Literal["looser", "tighter"],
) -> Iterator[Change]:
    yield from ((added, f"{what} {name} is new") for name in sorted(set(new) - set(old)))
    yield from ((removed, f"{what} {name} is gone") for name in sorted(set(old) - set(new)))
