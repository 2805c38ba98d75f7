"""A charter, bound: for each ability one immutable record of all that its calls need.

Everything that can be decided before a call is decided here, once: the handler is constructed, schemas are compiled,
hooks and policies that cannot match are left out, event names are rendered. What does not match costs nothing.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from . import canonical
from .charter import Charter
from .completions import Completion, CompletionSchema
from .contracts import ALLOW, Call, Decision, Effects, Handler, Host, Json, Principal, Skill
from .errors import BindingError, DeedbookError, DomainError, fault, raise_all
from .gates import BoundGate, in_order
from .match import AbilityFacts, Match
from .plugins import Catalogue, Offer, implementations, load
from .schema import Schemas, Validator, Violation, foreign

_ANSWERS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "SessionStart": frozenset({"allow", "deny"}),
        "UserPromptSubmit": frozenset({"allow", "deny", "transform"}),
        "SkillStart": frozenset({"allow", "deny", "transform"}),
        "PreToolUse": frozenset({"allow", "deny", "ask"}),
        "PostToolUse": frozenset({"allow", "transform"}),
        "Stop": frozenset({"allow", "deny"}),
        "SessionStop": frozenset({"allow"}),
    }
)
"""What a hook may answer at each event; a rewriter at PreToolUse may transform, too."""

_POLICY_LIMIT: Final = 1.0


@attrs.frozen
class Scope:
    """Which abilities a caller may use: *names* of tools and flows, *models* by name; ``None`` means all."""

    why: str
    names: frozenset[str] | None = None
    models: frozenset[str] | None = None

    def allows(self, bound: "Bound") -> bool:
        """Say whether *bound* is inside."""
        allowed = self.models if bound.kind == "model" else self.names
        return allowed is None or bound.id in allowed


EVERYTHING: Final = Scope("everything")


@attrs.frozen(kw_only=True)
class Caller:
    """Who asks: the principal, the class of actor, the scope, and where in a run they stand."""

    principal: Principal
    actor: str
    scope: Scope
    role: str | None = None
    skill: str | None = None
    depth: int = 0


@attrs.frozen
class Words:
    """How the calls of one ability are written: event types, and the payload's bytes around arguments and results."""

    intent: str
    result: str
    error: str
    result_actor: str
    name: str
    intent_head: bytes
    intent_tail: bytes
    result_head: bytes
    late_head: bytes
    result_tail: bytes


@attrs.frozen(eq=False, kw_only=True)
class Bound:
    """One ability, ready to be called. *timeout* is in seconds (infinity: none)."""

    id: str
    kind: str
    summary: str
    effects: Effects
    tags: frozenset[str]
    handler: Handler
    takes: Validator
    gives: Validator
    takes_document: Mapping[str, Any]
    interruptible: bool
    timeout: float
    durable: bool
    uses: Scope
    big_integers: bool
    rewriters: tuple[BoundGate, ...]
    guards: tuple[BoundGate, ...]
    policies: tuple[BoundGate, ...]
    observers: tuple[BoundGate, ...]
    reads: frozenset[str]
    words: Words


@attrs.frozen(eq=False, kw_only=True)
class Bindings:
    """A charter with everything it names loaded, checked and constructed."""

    charter: Charter
    abilities: Mapping[str, Bound]
    enforcement: str
    hooks: Mapping[str, tuple[BoundGate, ...]]
    skills: Mapping[str, Skill]

    @property
    def reads(self) -> frozenset[str]:
        """Every fact that some gate reads."""
        gates = (gate for hooks in self.hooks.values() for gate in hooks)
        return frozenset().union(*(a.reads for a in self.abilities.values()), *(gate.reads for gate in gates))

    def tier(self, role: str) -> str:
        """Return the model ability that serves *role*: its own tier, else ``standard``, else the first."""
        document = self.charter.document
        tiers = sorted(document["models"])
        tier = document["roles"].get(role) or ("standard" if "standard" in tiers else next(iter(tiers), "standard"))
        return f"model/{tier}"


def freeze(charter: Charter, catalogue: Catalogue, host: Host, schemas: Schemas) -> Bindings:
    """Load, check and construct all that *charter* names; raises `BindingError` with every fault."""
    return _Freezer(charter, catalogue, host, schemas).bindings()


class _Freezer:
    def __init__(self, charter: Charter, catalogue: Catalogue, host: Host, schemas: Schemas) -> None:
        self.schemas = schemas
        self.charter = charter
        self.document = charter.document
        self.catalogue = catalogue
        self.host = host
        self.faults: list[DomainError] = []
        self.gates: dict[str, tuple[Mapping[str, Any], BoundGate, Match | None]] = {}

    def bindings(self) -> Bindings:
        for name, entry in self.document["hooks"].items():
            self._collect(lambda name=name, entry=entry: self._hook(name, entry))
        for name, entry in self.document["policies"].items():
            self._collect(lambda name=name, entry=entry: self._policy(name, entry))
        made = {
            name: self._collect(lambda name=name, entry=entry: self._bound(name, entry))
            for name, entry in self.document["abilities"].items()
        }
        raise_all(BindingError, self.faults)
        return Bindings(
            charter=self.charter,
            abilities=MappingProxyType(made),
            enforcement=self.document["enforcement"],
            hooks=MappingProxyType({event: tuple(in_order(self._session_hooks(event))) for event in _ANSWERS}),
            skills=MappingProxyType({name: _skill(name, entry) for name, entry in self.document["skills"].items()}),
        )

    # --- gates --------------------------------------------------------------------------------------------------------

    def _hook(self, name: str, entry: Mapping[str, Any]) -> None:
        offer, made = self._make(entry)
        method = implementations(offer, made, entry["event"], entry["place"])
        may = _ANSWERS[entry["event"]]
        if entry["rewrites"] and entry["event"] == "PreToolUse":
            may |= {"transform"}
        if entry["event"] == "PostToolUse":
            method = _observer(method)
        elif entry["event"] == "SessionStop":
            method = _witness(method)
        self._keep(f"hook:{name}", name, "hook", entry, method, may, entry["timeout_ms"] / 1000)

    def _policy(self, name: str, entry: Mapping[str, Any]) -> None:
        _, made = self._make(entry)
        self._keep(f"policy:{name}", name, "policy", entry, made, _ANSWERS["PreToolUse"], _POLICY_LIMIT)

    def _keep(  # noqa: PLR0913 - the parts in which hooks and policies differ
        self, key: str, name: str, kind: str, entry: Mapping[str, Any], ask: Any, may: frozenset[str], limit: float
    ) -> None:
        match = None if entry["match"] is None else Match.compile(entry["match"], entry["place"])
        gate = BoundGate(
            id=name,
            kind=kind,
            digest=self._gate_digest(entry),
            ask=ask,
            may=may,
            limit=limit,
            pure=entry["pure"],
            rewrites=entry["rewrites"],
            reads=frozenset(entry["reads"]),
            rules=tuple(entry.get("rules", ())),
            place=entry["place"],
        )
        self.gates[key] = (entry, gate, match)

    def _gate_digest(self, entry: Mapping[str, Any]) -> str:
        """Return what identifies a gate: what it is told to do, and the code that does it."""
        plugin = self.document["plugins"]["/".join(entry["plugin"])]
        told = {key: entry[key] for key in ("plugin", "settings", "match")}
        return canonical.digest(canonical.encode({**told, "code": plugin["digest"], "version": plugin["version"]}))

    def _session_hooks(self, event: str) -> Iterator[tuple[int, BoundGate]]:
        for entry, gate, _ in self.gates.values():
            if entry.get("event") == event and event not in ("PreToolUse", "PostToolUse"):
                yield entry["priority"], gate

    def _gates_of(self, facts: AbilityFacts, prefix: str, named: list[str], event: str | None) -> list[BoundGate]:
        """Return the gates that can fit one ability: named by it, or matching it."""
        fitting: list[tuple[int, BoundGate]] = []
        for key, (entry, gate, match) in self.gates.items():
            if not key.startswith(prefix) or (event is not None and entry["event"] != event):
                continue
            if _fits(entry, match, gate.id in named, facts):
                holds = match.test_for(facts) if match is not None and gate.id not in named else None
                fitting.append((entry.get("priority", 0), attrs.evolve(gate, holds=holds)))
        return list(in_order(fitting))

    # --- abilities ----------------------------------------------------------------------------------------------------

    def _bound(self, name: str, entry: Mapping[str, Any]) -> Bound:
        _, handler = self._make(entry)
        takes, gives = _validator(entry, "takes", "schema_in"), _validator(entry, "gives", "schema_out")
        if entry["kind"] == "model":
            handler = Completion(handler)
            takes = CompletionSchema(self.schemas, "completion_request", takes)
            gives = CompletionSchema(self.schemas, "completion_response", gives)
        facts = _facts(name, entry)
        before = self._gates_of(facts, "hook:", entry["hooks"].get("pre_call", []), "PreToolUse")
        policies = self._gates_of(facts, "policy:", entry["policies"], None)
        gates = (*before, *policies)
        limit = entry["timeout_ms"]
        return Bound(
            id=name,
            kind=entry["kind"],
            summary=entry["summary"],
            effects=entry["effects"],
            tags=facts.tags,
            handler=handler,
            takes=takes,
            gives=gives,
            takes_document=entry["schema_in"] or entry["takes"],
            interruptible=entry["interruptible"],
            timeout=limit / 1000 if limit else float("inf"),
            durable=entry["effects"] in ("write", "irreversible"),
            uses=Scope(f"what {name} declares to use", frozenset(entry["uses"]), frozenset()),
            big_integers=entry["big_integers"],
            rewriters=tuple(gate for gate in before if "transform" in gate.may),
            guards=tuple(gate for gate in before if "transform" not in gate.may),
            policies=tuple(policies),
            observers=tuple(self._gates_of(facts, "hook:", entry["hooks"].get("post_call", []), "PostToolUse")),
            reads=frozenset().union(*(gate.reads for gate in gates)),
            words=words(entry["kind"], name),
        )

    def _make(self, entry: Mapping[str, Any]) -> tuple[Offer, Any]:
        """Construct a plugin; whatever its constructor does, the worst is a fault."""
        kind, name = entry["plugin"]
        offer = self.catalogue.find(kind, name, entry["place"])
        made = load(offer, entry["place"])
        try:
            return offer, made(dict(entry["settings"]), self.host)
        except DeedbookError:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a plugin may raise anything, even SystemExit
            why = f"{offer} cannot be constructed: {type(problem).__name__}: {problem}"
            raise BindingError(fault("PLUGIN_BROKEN", why, place=entry["place"])) from None

    def _collect(self, make: Any) -> Any:
        try:
            return make()
        except DeedbookError as problem:
            self.faults.extend(problem.errors)
            return None


def unguarded(charter: Charter) -> list[str]:
    """Return the tools and flows that no policy can fit: what they do is allowed by scope, schema and hooks alone."""
    document = charter.document
    policies = [
        (name, policy, Match.compile(policy["match"], policy["place"]) if policy["match"] is not None else None)
        for name, policy in document["policies"].items()
    ]
    return [
        ability
        for ability, entry in sorted(document["abilities"].items())
        if entry["kind"] != "model"
        and not any(_fits(policy, match, name in entry["policies"], _facts(ability, entry)) for name, policy, match in policies)
    ]


def _facts(name: str, entry: Mapping[str, Any]) -> AbilityFacts:
    return AbilityFacts(
        id=name,
        kind=entry["kind"],
        effects=entry["effects"],
        tags=frozenset(entry["tags"]),
        scopes=frozenset(entry["scopes"]),
        paths=tuple(entry["paths"]),
    )


def _fits(entry: Mapping[str, Any], match: Match | None, named: bool, facts: AbilityFacts) -> bool:
    """Say whether a hook or policy can fit an ability: named by it, matching it, or for all in ``deedbook.yaml``."""
    if named:
        return True
    if match is not None:
        return match.could_match(facts)
    return bool(entry.get("inline")) and facts.kind in ("tool", "flow")


class _Both:
    """A validator that wants two others to agree: what the plugin takes, narrowed by YAML."""

    def __init__(self, first: Validator, second: Validator) -> None:
        self._first = first
        self._second = second

    def valid(self, value: Any) -> bool:
        return self._first.valid(value) and self._second.valid(value)

    def violations(self, value: Any) -> tuple[Violation, ...]:
        return (*self._first.violations(value), *self._second.violations(value))


def _validator(entry: Mapping[str, Any], own: str, narrowed: str) -> Validator:
    first = foreign(dict(entry[own]), place=f"{entry['place']}: {own}")
    if entry[narrowed] is None:
        return first
    return _Both(first, foreign(dict(entry[narrowed]), place=f"{entry['place']}: {narrowed}"))


def _observer(method: Any) -> Any:
    def observe(call: Call, result: Json) -> Decision:
        return Decision("transform", args={"result": method(call, result)})

    return observe


def _witness(method: Any) -> Any:
    def witness(*subject: Any) -> Decision:
        method(*subject)
        return ALLOW

    return witness


def _skill(name: str, entry: Mapping[str, Any]) -> Skill:
    return Skill(
        name=name,
        description=entry["description"],
        body=entry["body"],
        allowed=frozenset(entry["allowed"]),
        triggers=tuple(entry["triggers"]),
        metadata=entry["metadata"],
        source=entry["source"],
    )


def words(kind: str, name: str) -> Words:
    """Return how calls of an ability are written; members stand in canonical order."""
    quoted = canonical.encode(name)
    if kind == "model":
        head = b'{"ability":%b,' % quoted
        return Words(
            "llm.request", "llm.response", "llm.error", "agent", "ability",
            head + b'"request":', b"}", head + b'"response":', head + b'"late":true,"response":', b"}",
        )  # fmt: skip
    if kind == "flow":
        head, tail = b'{"flow":%b,' % quoted, b',"flow":%b}' % quoted
        return Words(
            "flow.call", "flow.result", "flow.error", "runtime", "flow",
            b'{"args":', tail, head + b'"result":', head + b'"late":true,"result":', b"}",
        )  # fmt: skip
    tail = b',"tool_name":%b}' % quoted
    return Words(
        "tool.call", "tool.result", "tool.error", "tool", "tool_name",
        b'{"args":', tail, b'{"result":', b'{"late":true,"result":', tail,
    )  # fmt: skip
