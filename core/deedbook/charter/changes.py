"""Compare two charters: what became looser or tighter; pure.

Looser means that something is allowed that was not, or *may* be. Where this cannot be known (another schema, other
code, other settings of a policy), a change counts as looser, so that a person reviews it. Every difference is reported;
one that neither allows nor forbids is *other*.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from deedbook.format import canonical
from deedbook.plugins.moves import Moves, PluginMove
from deedbook.plugins.standing import read_standing
from deedbook.policy.charter import ROUNDS, lists_rules
from deedbook.policy.commands import allowed_abilities
from deedbook.policy.gates import LOOSENABLE
from deedbook.policy.match import EFFECTS

from .difference import Difference
from .settings import BEFORE, EVENTS, SECONDS

Direction: TypeAlias = Literal["looser", "tighter", "other"]
Change: TypeAlias = tuple[Direction, str]
Entry: TypeAlias = Mapping[str, Any]

_DURABILITY: Final = ("os", "boundary", "always")
_OUTCOMES: Final = ("allow", "ask", "deny")
_STRICTNESS: Final = {"enforcement": ("observe", "enforce"), "lock": ("auto", "required"), "durability": _DURABILITY}
_PLAIN: Final = ("kernel", "profile", "flow", "models", "roles", "secrets")
_NO_DEFAULT: Final = MappingProxyType({"irreversible": "allow", "write": "allow"})
"""The rule of a charter without the member: calls that no policy covers are allowed."""
_PLACES: Final = frozenset({"place", "rules"})
"""Positions in the sources. The sources are compared on their own."""


_NO_MOVES: Final[Moves] = MappingProxyType({})


def compare(old: Entry | None, new: Entry, moves: Moves = _NO_MOVES) -> Difference:
    """Compare two charter documents. Without *old* everything is new.

    *moves* are plugins whose distribution changed.
    """
    if old is None:
        return Difference(other=("first charter of this workspace",))
    if old["format"] != new["format"]:
        return Difference(looser=(f"the charter before has the form {old['format']}, which cannot be compared",))
    found = list(_changes(old, new, moves))
    return Difference(*(tuple(text for kind, text in found if kind == way) for way in ("looser", "tighter", "other")))


def _changes(old: Entry, new: Entry, moves: Moves) -> Iterator[Change]:
    for name, ranks in _STRICTNESS.items():
        yield from _compare_ranks(name, old[name], new[name], ranks)
    chosen = old["profile"] != new["profile"] and old["sources"] == new["sources"]
    yield from _section(old, new, "abilities", "ability", ("looser", "tighter"), partial(_ability, chosen))
    yield from _section(old, new, "hooks", "hook", ("tighter", "looser"), _hook)
    yield from _section(old, new, "policies", "policy", ("tighter", "looser"), _policy)
    yield from _default(*(document.get("default", _NO_DEFAULT) for document in (old, new)))
    yield from _section(old, new, "skills", "skill", ("looser", "tighter"), _skill)
    yield from _section({"set_aside": {}, **old}, {"set_aside": {}, **new}, "set_aside", "set-aside skill",
                        ("other", "other"), _text)  # fmt: skip
    yield from _section({"agents": {}, **old}, {"agents": {}, **new}, "agents", "agent", ("other", "other"), _agent)
    yield from _section(
        {"clients": {}, **old}, {"clients": {}, **new}, "clients", "client", ("looser", "tighter"), _client
    )
    yield from _section({"guides": {}, **old}, {"guides": {}, **new}, "guides", "guide", ("other", "other"), _text)
    yield from _section(
        {"servers": {}, **old}, {"servers": {}, **new}, "servers", "server", ("other", "other"), _server
    )
    yield from _section({"workflows": {}, **old}, {"workflows": {}, **new}, "workflows", "workflow file",
                        ("other", "other"), partial(_rest, done={"overrides"}, other={"digest"}))  # fmt: skip
    yield from _sets("workflow file", _overrides(old), _overrides(new), "looser", "other")
    yield from _section(
        {"features": {}, **old}, {"features": {}, **new}, "features", "feature", ("looser", "looser"),
        partial(_rest, done=set(), other=set()),
    )  # fmt: skip
    yield from _section({"records": {}, **old}, {"records": {}, **new}, "records", "event type",
                        ("other", "other"), _text)  # fmt: skip
    yield from _section(old, new, "principals", "principal", ("looser", "tighter"), _principal)
    yield from _section(old, new, "plugins", "plugin", ("other", "other"), partial(_plugin, moves))
    stood, stand = (
        [key for name in read_standing() if (key := f"feature/{name}") in it["plugins"]] for it in (old, new)
    )
    yield from _sets("standing plugin", stood, stand, "tighter", "looser")
    yield from _section(old, new, "instructions", "role", ("other", "other"), _text)
    yield from _expiry(*(document.get("approvals", {}) for document in (old, new)))
    was, now = (document.get("max_rounds", ROUNDS) for document in (old, new))
    if was != now:
        yield "looser" if now > was else "tighter", f"max_rounds: {now}, was {was}"
    yield from _log(*(document.get("checkpoints", {}) for document in (old, new)))
    pages = [document.get("workdocs", False) for document in (old, new)]
    if pages[0] != pages[1]:
        yield "other", f"workdocs: {_json_text(pages[1])}, was {_json_text(pages[0])}"
    yield from _memory(old.get("memory"), new.get("memory"))
    identities = [_json_text(document.get("persona", {}).get("id")) for document in (old, new)]
    if identities[0] != identities[1]:
        yield "looser", f"persona: {identities[1]}, was {identities[0]}"
    elif old.get("persona") != new.get("persona"):
        yield "other", "persona changed"
    yield from _sets("file root", old["file_roots"], new["file_roots"], "looser", "tighter")
    yield from _sets("seal", _texts(old["seal"]), _texts(new["seal"]), "tighter", "looser")
    for name in _PLAIN:
        if old[name] != new[name]:
            yield "other", f"{name}: {_json_text(new[name])}, was {_json_text(old[name])}"
    yield from _section(old, new, "sources", "source", ("other", "other"), _text)


# --- one entry of a section -------------------------------------------------------------------------------------------


def _ability(chosen: bool, what: str, old: Entry, new: Entry) -> Iterator[Change]:
    """Compare two abilities. If only another profile was *chosen*, its model is neither looser nor tighter."""
    yield from _compare_ranks(f"{what}: effects", old["effects"], new["effects"], EFFECTS)
    if chosen and old["kind"] == new["kind"] == "model":
        yield from _rest(what, old, new, {"effects"}, other={*old, *new})
        return
    yield from _limit(what, old, new)
    yield from _sets(f"{what}: uses", old["uses"], new["uses"], "looser", "tighter")
    for part, noun in (("tags", "tag"), ("policies", "policy")):
        yield from _sets(f"{what}: {noun}", old[part], new[part], "tighter", "looser")
    for moment in ("pre_create", "pre_call", "post_call"):
        was, now = (entry["hooks"].get(moment, []) for entry in (old, new))
        yield from _sets(f"{what}: hook at {moment}", was, now, "tighter", "looser")
    for part in ("schema_in", "schema_out"):
        if (old[part] is None) != (new[part] is None):
            yield ("tighter", f"{what}: {part} is new") if old[part] is None else ("looser", f"{what}: {part} is gone")
        elif old[part] != new[part]:
            yield "looser", f"{what}: {part} changed"
    done = {"effects", "timeout_ms", "uses", "tags", "policies", "hooks", "schema_in", "schema_out"}
    yield from _rest(what, old, new, done, other={"summary", "intents"})


def _hook(what: str, old: Entry, new: Entry) -> Iterator[Change]:
    yield from _limit(what, old, new)
    yield from _rest(what, old, new, {"timeout_ms"}, other={"priority"})


def _policy(what: str, old: Entry, new: Entry) -> Iterator[Change]:
    done = {"loosens", "limits"}
    if old.get("limits", False) != new.get("limits", False):
        limits = new.get("limits", False)
        yield "tighter" if limits else "looser", f"{what}: {'only limits' if limits else 'covers'} calls"
    was, now = (entry.get("loosens", LOOSENABLE) for entry in (old, new))
    yield from _sets(f"{what}: may loosen", was, now, "looser", "tighter")
    if old["plugin"] == new["plugin"] and lists_rules(new):
        done.add("settings")
        yield from _rules(what, old["settings"], new["settings"])
    yield from _rest(what, old, new, done, other=set())


def _default(old: Entry, new: Entry) -> Iterator[Change]:
    """Compare what happens to calls that no policy covers; without an answer they are denied."""
    for effects in sorted(new):
        was, now = (section[effects] or "deny" for section in (old, new))
        if was != now:
            direction: Direction = "looser" if _OUTCOMES.index(now) < _OUTCOMES.index(was) else "tighter"
            yield direction, f"default: {effects} that no policy covers: {now}, was {was}"


def _rules(what: str, old: Entry, new: Entry) -> Iterator[Change]:
    """Compare two lists of rules: the outcome of a rule decides whether adding it is looser or tighter."""
    yield from _compare_ranks(f"{what}: default", old.get("default", "deny"), new.get("default", "deny"), _OUTCOMES)
    was, now = (Counter(map(_json_text, body["rules"])) for body in (old, new))
    yield from (
        (_rule_direction(rule, "deny", "looser"), f"{what}: rule {rule} is new") for rule in (now - was).elements()
    )
    yield from (
        (_rule_direction(rule, "allow", "looser"), f"{what}: rule {rule} is gone") for rule in (was - now).elements()
    )
    if was == now and old["rules"] != new["rules"]:
        yield "looser", f"{what}: the rules stand in another order"


def _rule_direction(rule: str, tightening: str, otherwise: Direction) -> Direction:
    return "tighter" if canonical.decode(rule)["then"] == tightening else otherwise


def _skill(what: str, old: Entry, new: Entry) -> Iterator[Change]:
    yield from _sets(f"{what}: allowed ability", old["allowed"], new["allowed"], "looser", "tighter")
    was, now = (frozenset(allowed_abilities(entry)) - frozenset(entry["allowed"]) for entry in (old, new))
    yield from _sets(f"{what}: allowed command", was, now, "looser", "tighter")
    yield from _rest(what, old, new, {"allowed", "commands"}, other={*new, *old})


def _server(what: str, old: Entry, new: Entry) -> Iterator[Change]:
    """Compare two servers. A change of how a server is started or reached is looser; abilities describe its tools."""
    yield from _limit(what, old, new)
    other = {"about", "exclude", "include", "left_out", "listing", "offers"}
    yield from _rest(what, old, new, {"timeout_ms"}, other=other)


def _agent(what: str, old: Entry, new: Entry) -> Iterator[Change]:
    was, now = (each.get("allowed", each["capabilities"]) for each in (old, new))
    yield from _sets(f"{what}: capability", was, now, "looser", "tighter")
    done = {"allowed", "capabilities"} if (was, now) == (old["capabilities"], new["capabilities"]) else {"allowed"}
    yield from _rest(what, old, new, done, other={*old, *new})


def _principal(what: str, old: Entry, new: Entry) -> Iterator[Change]:
    yield from _sets(f"{what}: role", old["roles"], new["roles"], "looser", "tighter")
    yield from _rest(what, old, new, {"roles"}, other=set())


def _client(what: str, old: Entry, new: Entry) -> Iterator[Change]:
    yield from _compare_ranks(f"{what}: unknown_tools", old["unknown_tools"], new["unknown_tools"], _OUTCOMES)
    yield from _rest(what, old, new, {"unknown_tools"}, other={"wait_s"})


def _memory(old: Entry | None, new: Entry | None) -> Iterator[Change]:
    """Compare memory settings: more callers, proofs and room are looser; more conditions are tighter."""
    if old is None or new is None:
        if old is not new:
            yield ("looser", "memory is new") if old is None else ("tighter", "memory is gone")
        return
    for zone in sorted(new["zones"]):
        for access in ("read", "propose"):
            was, now = (_texts(entry["zones"][zone][access]) for entry in (old, new))
            yield from _sets(f"memory: {zone}: {access}", was, now, "looser", "tighter")
    yield from _sets("memory: verified_by", old["verified_by"], new["verified_by"], "looser", "tighter")
    yield from _sets("memory: never", old["never"], new["never"], "tighter", "looser")
    yield from _sets(
        "memory: keys",
        _texts(map(list, old["keys"].items())),
        _texts(map(list, new["keys"].items())),
        "tighter",
        "looser",
    )
    for most in ("max_bytes", "max_entries"):
        if old[most] != new[most]:
            yield "looser" if new[most] > old[most] else "tighter", f"memory: {most}: {new[most]}, was {old[most]}"


def _plugin(moves: Moves, what: str, old: Entry, new: Entry) -> Iterator[Change]:
    was, now = (f"{entry['distribution']} {entry['version']}" for entry in (old, new))
    if moves.get(what.removeprefix("plugin ")) == PluginMove(old["distribution"], new["distribution"]):
        yield "other", f"{what} moved from {was} to {now}"
    elif old != new:
        yield "looser", f"{what}: {now}, other code" + (f" than {was}" if was != now else " than before")


def _expiry(old: Entry, new: Entry) -> Iterator[Change]:
    """Yield changes of how long requests to people are valid; that of a run has no limit unless one is set."""
    for name, default in (("expires_s", 3600), ("run_expires_s", None)):
        was, now = (section.get(name, default) for section in (old, new))
        if was != now:
            longer = was is not None and (now is None or now > was)
            limits = [str(value) if value is not None else "no limit" for value in (now, was)]
            yield "looser" if longer else "tighter", f"approvals: {name}: {limits[0]}, was {limits[1]}"


def _log(old: Entry, new: Entry) -> Iterator[Change]:
    """Compare checkpoint settings: intervals, trusted keys and witnesses."""
    for part, usual in (("every_events", EVENTS), ("every_seconds", SECONDS)):
        was, now = (document.get(part, usual) for document in (old, new))
        if was != now:
            yield "looser" if now > was else "tighter", f"checkpoints: {part}: {_json_text(now)}, was {_json_text(was)}"
    was, now = (document.get("before", BEFORE) for document in (old, new))
    yield from _sets("checkpoints: before", was, now, "tighter", "looser")
    yield from _sets("checkpoints: trusted key", old.get("keys", ()), new.get("keys", ()), "looser", "tighter")
    was, now = (_texts(document.get("witnesses", ())) for document in (old, new))
    yield from _sets("checkpoints: witness", was, now, "tighter", "looser")
    if old.get("key") != new.get("key"):
        yield "other", f"checkpoints: key: {_json_text(new.get('key'))}, was {_json_text(old.get('key'))}"


def _overrides(document: Entry) -> list[str]:
    """Return the workflow files that replace a pack's file."""
    files = document.get("workflows", {}).items()
    return [f"{name} in place of the pack {said['overrides']}'s" for name, said in files if "overrides" in said]


def _text(what: str, old: Any, new: Any) -> Iterator[Change]:
    if old != new:
        yield "other", f"{what} changed"


# --- ways to compare --------------------------------------------------------------------------------------------------


def _section(
    old: Entry,
    new: Entry,
    name: str,
    noun: str,
    ways: tuple[Direction, Direction],
    changed: Callable[..., Iterator[Change]],
) -> Iterator[Change]:
    """Compare a section entry by entry; *ways* are the directions of a new entry and of a removed one."""
    before, after = old[name], new[name]
    yield from ((ways[0], f"{noun} {key} is new") for key in sorted(after.keys() - before.keys()))
    yield from ((ways[1], f"{noun} {key} is gone") for key in sorted(before.keys() - after.keys()))
    for key in sorted(after.keys() & before.keys()):
        yield from changed(f"{noun} {key}", before[key], after[key])


def _rest(what: str, old: Entry, new: Entry, done: set[str], other: set[str]) -> Iterator[Change]:
    """Report changed parts that no other comparison covers: as looser, except for those in *other*."""
    for part in sorted((old.keys() | new.keys()) - done - _PLACES):
        if old.get(part) != new.get(part):
            yield "other" if part in other else "looser", f"{what}: {part} changed"


def _compare_ranks(what: str, old: str, new: str, ranks: Sequence[str]) -> Iterator[Change]:
    """Compare two values of an ordered scale, from the loosest to the strictest."""
    if old != new:
        yield "looser" if ranks.index(new) < ranks.index(old) else "tighter", f"{what}: {new}, was {old}"


def _limit(what: str, old: Entry, new: Entry) -> Iterator[Change]:
    was, now = old["timeout_ms"], new["timeout_ms"]
    if was != now:
        longer = now is None or (was is not None and now > was)
        yield "looser" if longer else "tighter", f"{what}: timeout_ms: {_json_text(now)}, was {_json_text(was)}"


def _sets(what: str, old: Iterable[str], new: Iterable[str], added: Direction, removed: Direction) -> Iterator[Change]:
    yield from ((added, f"{what} {name} is new") for name in sorted(set(new) - set(old)))
    yield from ((removed, f"{what} {name} is gone") for name in sorted(set(old) - set(new)))


def _texts(values: Iterable[Any]) -> list[str]:
    return [value if isinstance(value, str) else _json_text(value) for value in values]


def _json_text(value: Any) -> str:
    return canonical.encode(value).decode()
