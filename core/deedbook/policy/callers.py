"""Callers and their scopes at each position of a run: a skill's flow, a role inside it, a nested call.

Live runs and later judging both get their callers here.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from deedbook.contract import Principal, Skill
from deedbook.format.errors import BindingError, fault, require_type
from deedbook.format.schema import suggest

from .bindings import Bindings
from .bound import EVERYTHING, EXTERNAL, OWN_MODEL, Caller, Scope
from .fitting import facts_of
from .match import Match

if TYPE_CHECKING:
    from .limits import BranchLimits

OVER: Final = Scope("a call that is over", frozenset(), frozenset())
"""The scope of a call that has its outcome: nothing is allowed."""
_BRANCH: Final = ", and the branch"
_FLOWS: Final = ", and the flows in its uses"


PLAIN: Final = "mcp"
"""The default client: every tool and flow is available to it, unless ``agents:`` restricts it."""

LOCAL: Final = Principal("local", "cli")
"""The default principal of the command line; it counts as a person."""
PROGRAM: Final = Principal("local", "python")
"""The default principal of a program; the same person as `LOCAL`."""
AGENT: Final = "agent:"
"""The prefix of the principals of clients and roles."""

_NOTHING: Final = Scope("what an undeclared client may use, which is nothing", frozenset(), frozenset())


@attrs.frozen
class Client:
    """A client that acts by itself: its *name* under ``agents:``, its *principal*, and its *scope*."""

    name: str
    principal: Principal
    scope: Scope


def client_of(name: str, document: Mapping[str, Any], *, via: str, on_behalf_of: str | None) -> Client:
    """Return a client of the charter's *document*, acting for *on_behalf_of*; an undeclared one may use nothing."""
    return Client(name, Principal(f"{AGENT}{name}", via, frozenset(), on_behalf_of), _exposed_scope(name, document))


def declared_principal(document: Mapping[str, Any], name: str, via: str = LOCAL.via) -> Principal:
    """Return a principal that a charter's *document* declares, or a client as ``agent:NAME``; raises `BindingError`.

    *via* is the channel, unless the declaration names one.
    """
    require_type(name, (str,), "name")
    declared = document["principals"]
    if name.startswith(AGENT):
        return declared_client(document, name.removeprefix(AGENT), via, LOCAL.id).principal
    if name not in declared:
        known = ", ".join(sorted(declared)) or "none"
        why = f"principal {name!r} is not declared{suggest(name, declared) or '.'} Declared: {known}"
        raise BindingError(fault("USAGE", why))
    entry = declared[name]
    return Principal(name, entry["via"] or via, frozenset(entry["roles"]), entry["on_behalf_of"])


def declared_client(document: Mapping[str, Any], name: str, via: str, on_behalf_of: str) -> Client:
    """Return a client that a charter's *document* declares; raises `BindingError`."""
    require_type(name, (str,), "name")
    if not on_behalf_of:
        raise BindingError(fault("USAGE", f"client {name!r} has no principal to act for: on_behalf_of is empty"))
    known = {PLAIN, *document["clients"]}
    if name not in known:
        near = suggest(name, known) or f"; add to .system/deedbook.yaml: agents: {{{name}: {{expose: {{…}}}}}}."
        why = f"client {name!r} is not declared under agents:{near} Declared: {', '.join(sorted(known))}"
        raise BindingError(fault("USAGE", why))
    return client_of(name, document, via=via, on_behalf_of=on_behalf_of)


def session_caller(principal: Principal, bindings: Bindings, mode: str = "interactive") -> Caller:
    """Return the caller of a session of *principal* in *mode*: a person, who may use everything, or a client."""
    if not principal.id.startswith(AGENT):
        return Caller(principal=principal, actor="user", scope=EVERYTHING, mode=mode)
    scope = _exposed_scope(principal.id.removeprefix(AGENT), bindings.charter.document)
    return Caller(principal=principal, actor="agent", scope=scope, mode=mode)


def exposed_abilities(document: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return the tools and flows available to each client of a charter's *document*, by its principal."""
    names = (PLAIN, *document.get("clients", {}))
    return {f"{AGENT}{name}": _exposed_scope(name, document).names or frozenset() for name in names}


def route_data(document: Mapping[str, Any], scopes: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Return, as JSON, the part of a charter's *document* that ranking needs.

    *scopes* names, by the principal of each client, the abilities that are available to it.
    """
    abilities = {
        name: {part: entry[part] for part in ("summary", "intents", "scopes")}
        for name, entry in document["abilities"].items()
        if entry["kind"] in ("tool", "flow")
    }
    guides = {name: dict(entry) for name, entry in document.get("guides", {}).items()}
    return {"abilities": abilities, "guides": guides, "scopes": {who: sorted(names) for who, names in scopes.items()}}


def _exposed_scope(name: str, document: Mapping[str, Any]) -> Scope:
    known = {PLAIN: {"expose": {}, "place": None}, **document.get("clients", {})}
    if name not in known:
        return _NOTHING
    match = Match.compile(known[name]["expose"], known[name]["place"], at=("expose",), allows=True)
    fitting = {
        id_: entry["kind"] for id_, entry in document["abilities"].items() if match.could_match(facts_of(id_, entry))
    }
    models = frozenset(id_ for id_, kind in fitting.items() if kind == "model")
    return Scope(f"what is exposed to {name}", frozenset(fitting) - models, models | _own_model(name, document))


def _own_model(client: str, document: Mapping[str, Any]) -> frozenset[str]:
    """Return the ability for models that a client asks itself: it needs no exposure, and policies decide about it."""
    own = f"{client}/{OWN_MODEL}"
    entry = document["abilities"].get(own)
    is_own = entry is not None and entry["kind"] == "model" and list(entry["plugin"] or ()) == ["tool", EXTERNAL]
    return frozenset([own]) if is_own else frozenset()


def with_skill(caller: Caller, skill: str | None) -> Caller:
    """Return *caller* in a run of *skill*, which limits the scope of its flow."""
    return attrs.evolve(caller, skill=skill)


def under_call(caller: Caller, uses: Scope) -> Caller:
    """Return the caller for nested calls of an ability: its scope is what the ability declares to use."""
    return attrs.evolve(caller, actor="tool", scope=uses, depth=caller.depth + 1, run=None)


def under_flow(caller: Caller, bindings: Bindings, flow: str = "") -> Caller:
    """Return the caller for *flow*, which *caller* started: the skill's scope without models, which are for roles.

    The flows in the ``uses:`` of *flow* are also in its scope: what happens inside them stays in the skill's scope.
    """
    scope = skill_scope(bindings.skills.get(caller.skill or ""), bindings, None)
    passes = _nested_flows(flow, bindings)
    if passes - (scope.names or frozenset()):
        scope = attrs.evolve(scope, why=f"{scope.why}{_FLOWS}", names=(scope.names or frozenset()) | passes)
    return attrs.evolve(caller, actor="agent", scope=scope, depth=caller.depth + 1)


def _nested_flows(flow: str, bindings: Bindings) -> frozenset[str]:
    entry = bindings.entry_of(flow) if flow else None
    used = ((name, bindings.entry_of(name)) for name in entry["uses"]) if entry else ()
    return frozenset(name for name, other in used if other is not None and other["kind"] == "flow")


def as_role(caller: Caller, role: str, bindings: Bindings) -> Caller:
    """Return the caller for *role* in a flow of *caller*: the skill's scope with the models, on their behalf."""
    principal = Principal(f"agent:{role}", "run", frozenset(), caller.principal.id)
    scope = skill_scope(bindings.skills.get(caller.skill or ""), bindings, role)
    return attrs.evolve(caller, actor="agent", scope=scope, depth=caller.depth + 1, principal=principal, role=role)


def narrow_caller(caller: Caller, allowed: Collection[str] | None) -> Caller:
    """Return *caller* in a branch that may use only the tools and flows of *allowed*; models stay."""
    if allowed is None:
        return caller
    scope = caller.scope
    names = frozenset(allowed) if scope.names is None else scope.names & frozenset(allowed)
    return attrs.evolve(caller, scope=attrs.evolve(scope, why=f"{scope.why}{_BRANCH}", names=names))


def skill_excess(skill: Skill, within: Skill, bindings: Bindings) -> frozenset[str]:
    """Return the abilities of which *skill* allows more than the skill *within*."""
    outer, inner = bindings.commands(within.name), bindings.commands(skill.name)
    some = frozenset(name for name, said in inner.items() if name not in within.allowed and said != outer.get(name))
    return (skill.allowed - within.allowed) | some


def intersect_allowed(outer: Collection[str] | None, allowed: Collection[str] | None) -> frozenset[str] | None:
    """Return what a branch with *allowed* may use inside a branch with *outer*; ``None`` is no limit."""
    if outer is None or allowed is None:
        left = outer if allowed is None else allowed
        return None if left is None else frozenset(left)
    return frozenset(outer) & frozenset(allowed)


def skill_scope(skill: Skill | None, bindings: Bindings, role: str | None) -> Scope:
    """Return the scope of *skill* (nothing without one); a *role* may ask every model of the profile."""
    why = f"what skill {skill.name} allows" if skill else "what a run without a skill allows, which is nothing"
    models = frozenset(f"model/{tier}" for tier in bindings.tiers) if role else frozenset()
    commands = bindings.commands(skill.name) if skill else {}
    allowed = skill.allowed.union(commands) if skill else frozenset()
    left = bindings.within(role, allowed)
    return Scope(why if left == allowed else f"{why}, and the card of {role}", left, models, commands)


def requested_limits(request: Mapping[str, Any]) -> "tuple[BranchLimits, ...]":
    """Return the limits of the caller of a stored request."""
    if not request.get("limits"):
        return ()
    from .limits import compile_limits

    return tuple(
        compile_limits(each["branch"], {name: part for name, part in each.items() if name != "branch"})
        for each in request["limits"]
    )


def restore_caller(caller: Caller, bindings: Bindings) -> Caller:
    """Return *caller*, read from a stored request, with the commands that its skill allows.

    A request names abilities and no patterns; the skill of its charter has them.
    """
    skill = bindings.skills.get(caller.skill or "")
    scope = skill_scope(skill, bindings, caller.role)
    same = skill is not None and scope.why == caller.scope.why.removesuffix(_BRANCH).removesuffix(_FLOWS)
    return attrs.evolve(caller, scope=attrs.evolve(caller.scope, commands=scope.commands)) if same else caller
