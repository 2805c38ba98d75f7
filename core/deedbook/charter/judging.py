"""Bind a charter for judging: no handler is constructed, and only pure gates that run on the calling thread.

Everything that can be decided before a call is decided here, once: schemas are compiled, hooks and policies that cannot
match are left out, event names are rendered. `bindings` binds a charter for execution on top of this. Nothing here
starts a program or a thread.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import attrs

from deedbook.contract import PATHS, Failed, Handler, Host, Skill
from deedbook.contract.lifecycle import EVENTS
from deedbook.format import canonical
from deedbook.format.errors import BindingError, DeedbookError, DomainError, describe_crash, fault, raise_all
from deedbook.format.schema import Schemas, Validator, Violation, foreign
from deedbook.plugins.host import masker_of
from deedbook.plugins.plugins import Catalogue, find_implementation
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import DURABLE, RUN_REFERENCE_DIGEST, AbilityTable, BoundAbility, Scope, event_names
from deedbook.policy.charter import Charter, identity, is_asynchronous
from deedbook.policy.fitting import Fitting, facts_of, fittings, judges_calls, rule_tags, tags_of
from deedbook.policy.gates import BoundGate, in_order
from deedbook.policy.kinds import KINDS
from deedbook.policy.match import AbilityFacts
from deedbook.policy.subjects import BoundSubject

from .linker import Linker, LoadedPlugin

if TYPE_CHECKING:
    from deedbook.plugins.call_files import CallFiles
    from deedbook.policy.defaults import DefaultAnswer
    from deedbook.policy.path_mapping import ServerPaths

    from .zones import Outside

T = TypeVar("T")

Trusts: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Called with a plugin's entry in the charter before it is loaded; returns whether its pure gates may run."""

CALL: Final = frozenset({"allow", "deny", "ask"})
POLICY: Final = CALL | {"advisory"}
POLICY_LIMIT: Final = 1.0
_SERVER: Final = ["tool", "mcp"]


def trust_all(_: Mapping[str, Any]) -> bool:
    """Trust every plugin that is installed."""
    return True


def bind_for_judging(
    charter: Charter,
    catalogue: Catalogue,
    host: Host,
    schemas: Schemas,
    trusts: Trusts = trust_all,
    root: Path | None = None,
) -> Bindings:
    """Bind *charter* so that its calls can be judged: no handlers, no impure gates, no hooks of other events.

    Pure gates are constructed where *trusts* accepts their plugins; the code of other plugins is not imported. For
    gates that are not constructed, the caller must supply the recorded answers. *root* is the workspace, needed only
    for new calls (`bindings.bind`). Raises `BindingError` with every fault.
    """
    return JudgingBinder(charter, Linker(catalogue), host, schemas, root, trusts).bindings(lazily=True)


@attrs.frozen(eq=False)
class _PreparedGate:
    """A constructed hook or policy: *always* runs at every call, *matching* only where its match holds."""

    fitting: Fitting
    always: BoundGate
    matching: BoundGate

    def gate_for(self, facts: AbilityFacts, named: list[str]) -> BoundGate:
        """Return the gate for an ability that it fits. Abilities with the same path arguments share it."""
        match = self.fitting.match
        test = None if match is None or self.fitting.name in named else match.test_for(facts)
        if test is None:
            return self.always
        return self.matching if test is self.matching.applies else attrs.evolve(self.always, applies=test)


# --- binding ----------------------------------------------------------------------------------------------------------


class JudgingBinder:
    """Binds a charter for judging calls. It collects faults instead of stopping at the first.

    Gates that act, or may not run again, are not constructed; they are bound as impure gates.
    """

    def __init__(
        self,
        charter: Charter,
        linker: Linker,
        host: Host,
        schemas: Schemas,
        root: Path | None = None,
        trusts: Trusts = trust_all,
    ) -> None:
        self.charter = charter
        self.root = root
        self.document = charter.document
        self.linker = linker
        self.host = host
        self.schemas = schemas
        self.ready: dict[str, list[_PreparedGate]] = {event: [] for event in (*EVENTS, "policy")}
        self.subjects: dict[str, dict[str, BoundSubject]] = {}
        self._trusts = trusts
        self._validators: dict[str, Validator] = {}

    def bindings(self, *, lazily: bool) -> Bindings:
        """Return the complete bindings; raises `BindingError` with every fault."""
        for fitting in fittings(self.document, "hooks"):
            self._collect(self.hook, fitting)
        for fitting in fittings(self.document, "policies"):
            self._collect(self.policy, fitting)
        declared, records = self.document["abilities"], self.document.get("records", {})
        made = {} if lazily else {name: self._collect(self._bind, name, entry) for name, entry in declared.items()}
        self._check()
        ready = {name: bound for name, bound in made.items() if bound}
        return Bindings(
            charter=self.charter,
            abilities=AbilityTable(declared, ready, self._bind_late),
            enforcement=self.document["enforcement"],
            hooks=MappingProxyType({name: self._session_hooks(name) for name in EVENTS if not EVENTS[name].call}),
            skills=MappingProxyType({name: _skill(name, entry) for name, entry in self.document["skills"].items()}),
            records=MappingProxyType({name: self._record(name, row) for name, row in records.items()}),
            subjects=MappingProxyType(self.subjects),
        )

    def _bind_late(self, name: str) -> BoundAbility:
        """Bind one more ability; raises `BindingError`."""
        self.linker.faults.clear()
        bound = self._collect(self._bind, name, self.document["abilities"][name])
        self.linker.forget_broken()
        self._check()
        assert bound is not None
        return bound

    def _check(self) -> None:
        if not canonical.check_bindings():
            why = "a plugin replaced the kernel's hash functions while it was constructed; find and remove it"
            self.linker.faults.append(fault("PLUGIN_BROKEN", why))
        raise_all(BindingError, dict.fromkeys(self.linker.faults))

    # --- gates --------------------------------------------------------------------------------------------------------

    def hook(self, fitting: Fitting) -> None:
        """Add a hook that decides about calls, constructed if it may run. Hooks of other events are left out."""
        if fitting.entry["event"] != "PreToolUse":
            return
        if self._may_run(fitting.entry):
            self.keep_hook(fitting, *self.construct_hook(fitting))
        else:
            self.keep_hook(_as_impure(fitting), _refuse_to_act, fitting.entry["timeout_ms"] / 1000)

    def policy(self, fitting: Fitting) -> None:
        """Add a policy, constructed if it may run."""
        if self._may_run(fitting.entry):
            self.keep_policy(fitting, self.construct(fitting.entry)[1])
        else:
            self.keep_policy(_as_impure(fitting), None)

    def construct_hook(self, fitting: Fitting) -> tuple[Callable[..., Any], float]:
        """Construct a hook in this process; return the function that asks it, and its limit in seconds."""
        entry, event = fitting.entry, fitting.entry["event"]
        linked, made = self.construct(entry)
        method = find_implementation(linked.offer, made, event, entry["place"])
        from deedbook.plugins.answers import adapt_method

        return adapt_method(event, method), entry["timeout_ms"] / 1000

    def keep_hook(self, fitting: Fitting, ask: Callable[..., Any], limit: float) -> None:
        """Add a hook; *ask* answers for it within *limit* seconds."""
        event = EVENTS[fitting.entry["event"]]
        may = event.may | (event.rewriter if fitting.entry["rewrites"] else frozenset())
        self._keep(event.name, fitting, ask, may, limit)

    def keep_policy(self, fitting: Fitting, made: Any) -> None:
        """Add a policy; *made* is the gate that its kind constructed, or ``None`` if it is not to be asked."""
        entry = fitting.entry
        if judges_calls(entry):
            self._keep("policy", fitting, _refuse_to_act if made is None else made, POLICY, POLICY_LIMIT)
        if subjects := entry.get("subjects"):
            ask = _refuse_to_act if made is None else made.decide
            gate = self._gate("policy", fitting, ask, frozenset(), POLICY_LIMIT)
            self.subjects[fitting.name] = {
                name: BoundSubject(
                    name,
                    attrs.evolve(gate, may=frozenset(row["answers"])),
                    self._compile(row["schema"], f"subject {name} of {fitting.name}"),
                )
                for name, row in subjects.items()
            }

    def _may_run(self, entry: Mapping[str, Any]) -> bool:
        if not entry["pure"] or is_asynchronous(entry):
            return False
        return self._trusts(self.document["plugins"]["/".join(entry["plugin"])])

    def _keep(self, at: str, fitting: Fitting, ask: Callable[..., Any], may: frozenset[str], limit: float) -> None:
        gate, match = self._gate(at, fitting, ask, may, limit), fitting.match
        applies = match.holds if match else None
        self.ready[at].append(_PreparedGate(fitting, gate, attrs.evolve(gate, applies=applies)))

    def _gate(self, at: str, fitting: Fitting, ask: Callable[..., Any], may: frozenset[str], limit: float) -> BoundGate:
        entry = fitting.entry
        waits = is_asynchronous(entry)
        return BoundGate(
            id=fitting.name,
            kind="policy" if at == "policy" else "hook",
            digest=identity(entry, self.document["plugins"]),
            ask=ask,
            may=may,
            limit=limit,
            pure=entry["pure"] and not waits,
            waits=waits,
            rewrites=entry["rewrites"],
            reads=frozenset(entry["reads"]),
            rules=tuple(entry.get("rules", ())),
            place=entry["place"],
            signals=None if at == "policy" else EVENTS[at].signals,
            **(_loosened_tags(entry) if at == "policy" else {}),
            limits=entry.get("limits", False),
            mask=masker_of(self.host),
        )

    def _session_hooks(self, event: str) -> tuple[BoundGate, ...]:
        return tuple(in_order((ready.fitting.entry["priority"], ready.always) for ready in self.ready[event]))

    def _gates_for(self, at: str, facts: AbilityFacts, named: list[str]) -> tuple[BoundGate, ...]:
        """Return the gates that can fit one ability, by priority and id."""
        fitting = [ready for ready in self.ready[at] if ready.fitting.fits(facts, named)]
        return tuple(
            in_order((ready.fitting.entry.get("priority", 0), ready.gate_for(facts, named)) for ready in fitting)
        )

    # --- abilities ----------------------------------------------------------------------------------------------------

    def _bind(self, name: str, entry: Mapping[str, Any]) -> BoundAbility:
        handler, call_files = self.construct_handler(entry)
        takes, gives = self._validator(entry, "takes", "schema_in"), self._validator(entry, "gives", "schema_out")
        if entry["kind"] == "model":
            from deedbook.policy.completions import CompletionSchema

            takes = CompletionSchema(self.schemas, "completion_request", takes)
            gives = CompletionSchema(self.schemas, "completion_response", gives)
        facts, limit, uses = facts_of(name, entry), entry["timeout_ms"], frozenset(entry["uses"])
        before = self._gates_for("PreToolUse", facts, entry["hooks"].get("pre_call", []))
        policies = self._gates_for("policy", facts, entry["policies"])
        return BoundAbility(
            id=name,
            kind=entry["kind"],
            summary=entry["summary"],
            effects=entry["effects"],
            tags=facts.tags,
            scopes=facts.scopes,
            paths=facts.paths,
            handler=handler,
            takes=takes,
            gives=gives,
            takes_document=self._input_schema(entry),
            interruptible=entry["interruptible"],
            timeout=limit / 1000 if limit else float("inf"),
            durable=entry["effects"] in DURABLE,
            uses=Scope(f"what {name} declares to use", uses, uses),
            big_integers=entry["big_integers"],
            rewriters=tuple(gate for gate in before if "transform" in gate.may),
            guards=tuple(gate for gate in before if "transform" not in gate.may),
            policies=policies,
            observers=self._gates_for("PostToolUse", facts, entry["hooks"].get("post_call", [])),
            creators=self._gates_for("PreAbilityCreate", facts, entry["hooks"].get("pre_create", [])),
            reads=frozenset().union(*(gate.reads for gate in (*before, *policies))),
            keeps_context=entry["kind"] == "flow" and entry["gives"] == RUN_REFERENCE_DIGEST,
            reconciles=getattr(getattr(handler, "spec", None), "reconciles", False) is True,
            event_names=event_names(entry["kind"], name),
            scope_violation=self._zone_test(entry),
            server_paths=self._server_paths(entry, facts.paths),
            mask=masker_of(self.host),
            files=entry.get("files"),
            call_files=call_files,
            default=self._default(name, entry),
        )

    def _default(self, name: str, entry: Mapping[str, Any]) -> "DefaultAnswer | None":
        """Return what answers for calls that no policy covers; only abilities with effects need it."""
        if entry["effects"] not in DURABLE:
            return None
        from deedbook.policy.defaults import default_answer

        return default_answer(self.document, name, entry)

    def _zone_test(self, entry: Mapping[str, Any]) -> "Outside | None":
        """Return the test of zones for an ability of a kind that has them; ``None`` for any other."""
        if not KINDS[entry["kind"]].tools:
            return None
        from .zones import zone_test

        return zone_test(self.document, entry)

    def _server_paths(self, entry: Mapping[str, Any], paths: tuple[str, ...]) -> "ServerPaths | None":
        """Return how paths reach a server that runs on this machine; other servers do not share its paths."""
        settings = entry["settings"]
        if self.root is None or entry["plugin"] != _SERVER or "command" not in settings:
            return None
        from deedbook.policy.path_mapping import ServerPaths

        return ServerPaths(self.root, paths, settings.get("cwd", ""), here=paths != PATHS)

    def _validator(self, entry: Mapping[str, Any], own: str, narrowed: str) -> Validator:
        """Return a validator for the plugin's schema and the one in YAML, the same for all that share them."""
        digests = [digest for digest in (entry[own], entry[narrowed]) if digest is not None]
        key = " ".join(digests)
        if key not in self._validators:
            both = [self._compile(digest, f"schema {digest}") for digest in digests]
            self._validators[key] = both[0] if len(both) == 1 else _BothValidators(*both)
        return self._validators[key]

    def _compile(self, digest: str, place: str) -> Validator:
        """Return the validator of one of the charter's schemas, compiled once for all that share it."""
        if digest not in self._validators:
            self._validators[digest] = foreign(self.document["schemas"][digest], place=place)
        return self._validators[digest]

    def _record(self, event_type: str, row: Mapping[str, Any]) -> Validator:
        """Return the validator for payloads of a plugin's event type."""
        return self._compile(row["schema"], f"event type {event_type}")

    def _input_schema(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the argument schema for models: the plugin's, overwritten by the schema in YAML."""
        plugin: Mapping[str, Any] = self.document["schemas"][entry["takes"]]
        if entry["schema_in"] is None:
            return plugin
        narrowed: Mapping[str, Any] = self.document["schemas"][entry["schema_in"]]
        merged = {
            part: {**plugin.get(part, {}), **narrowed.get(part, {})}
            for part in ("properties", "$defs")
            if part in plugin or part in narrowed
        }
        required = sorted({*plugin.get("required", ()), *narrowed.get("required", ())})
        return {**plugin, **narrowed, **merged, **({"required": required} if required else {})}

    def construct_handler(
        self,
        entry: Mapping[str, Any],  # noqa: ARG002 - no handler is constructed
    ) -> "tuple[Handler, CallFiles | None]":
        """Return a placeholder for the handler of an ability, which cannot be called, and for the calls of its host."""
        return _refuse_to_act, None

    # --- plugins and faults -------------------------------------------------------------------------------------------

    def construct(self, entry: Mapping[str, Any], host: Host | None = None) -> tuple[LoadedPlugin, Any]:
        """Construct a plugin with *host*, or the common one. Any exception of its constructor becomes a fault."""
        kind, name = entry["plugin"]
        linked = self.linker.link(kind, name, entry["place"])
        if linked is None:
            raise _PluginUnusable
        try:
            return linked, linked.plugin_class(dict(entry["settings"]), host or self.host)
        except DeedbookError as problem:
            raise BindingError(*(_add_place(each, entry, linked) for each in problem.errors)) from None
        except Failed as problem:
            raise BindingError(_add_place(fault(problem.code, str(problem)), entry, linked)) from None
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a plugin may raise anything, even SystemExit
            why = f"{linked.offer} cannot be constructed: {describe_crash(problem)}"
            raise BindingError(fault("PLUGIN_BROKEN", why, place=entry["place"])) from None

    def _collect(self, make: Callable[..., T], *what: Any) -> T | None:
        try:
            return make(*what)
        except _PluginUnusable:
            return None
        except DeedbookError as problem:
            self.linker.faults.extend(problem.errors)
            return None


class _PluginUnusable(Exception):  # noqa: N818 - a state, not an error of its own
    """A plugin is missing or broken, and the fault is recorded already."""


def _add_place(error: DomainError, entry: Mapping[str, Any], linked: LoadedPlugin) -> DomainError:
    """Return *error* with the place and plugin where a constructor gave none."""
    if error.place:
        return error
    return attrs.evolve(error, place=entry["place"], message=f"{linked.offer}: {error.message}")


def _loosened_tags(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tags that a policy names, as far as it may loosen what they ask for."""
    tags, of_rules = tags_of(entry["match"]), rule_tags(entry)
    if "loosens" not in entry:
        return {"tags": tags, "rule_tags": of_rules}
    loosens = frozenset(entry["loosens"])
    return {"tags": tags & loosens, "rule_tags": tuple(each & loosens for each in of_rules), "loosens": loosens}


def _as_impure(fitting: Fitting) -> Fitting:
    """Return *fitting* as an impure gate, whose answer comes from the record."""
    return attrs.evolve(fitting, entry={**fitting.entry, "pure": False})


def _refuse_to_act(*_: Any) -> Any:
    raise AssertionError("bound for judging only: nothing is called, and only pure gates are asked")


class _BothValidators:
    """A validator that requires two others to accept: the plugin's schema and the one in YAML."""

    def __init__(self, first: Validator, second: Validator) -> None:
        self._first = first
        self._second = second

    def valid(self, value: Any) -> bool:
        return self._first.valid(value) and self._second.valid(value)

    def violations(self, value: Any) -> tuple[Violation, ...]:
        return tuple(dict.fromkeys((*self._first.violations(value), *self._second.violations(value))))


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
