"""From the names in YAML to loaded plugins: each found, loaded and checked once, every fault collected.

Nothing is constructed here. Schemas are compiled once per digest, however many abilities share a plugin.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias

import attrs

from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import BindingError, DeedbookError, DomainError, IntakeError, SchemaError, fault
from deedbook.format.schema import Validator, foreign, lint, suggest
from deedbook.plugins.plugins import Catalogue, Offer, load

Where: TypeAlias = Callable[[str], str]
"""From a JSON pointer into a value to the place where it is written."""


class Origin(Protocol):
    """Where a definition stands in a file."""

    def place(self, inner: str = "", *, key: bool = False) -> str:
        """Return ``file:line:column`` of what the JSON pointer *inner* leads to; with *key*, of its key."""


class Definition(Protocol):
    """What a file defines: an ability, a hook, a policy, and others."""

    @property
    def origin(self) -> Origin:
        """Where it stands."""


_ANNOTATIONS: Final = frozenset(
    {"$comment", "$defs", "$id", "$schema", "default", "deprecated", "description", "examples", "title"}
)


@attrs.frozen
class Linked:
    """A plugin that is loaded: where it comes from, its class, and the digest of its code (``None``: may change)."""

    offer: Offer
    made: type[Any]
    digest: str | None

    @property
    def spec(self) -> Any:
        """What the class declares: a `HandlerSpec` or a `GateSpec`."""
        return self.made.spec

    def entry(self) -> dict[str, Any]:
        """Return what a charter says of the plugin."""
        return {
            "distribution": self.offer.distribution,
            "version": self.offer.version,
            "target": self.offer.target,
            "digest": self.digest,
        }


Admit: TypeAlias = Callable[[Offer, str | None], DomainError | None]
"""Asked before a plugin is imported: what speaks against an offer whose code has that digest."""


def admit_all(_offer: Offer, _digest: str | None) -> None:
    """Have nothing against any plugin."""


class Linker:
    """The plugins and schemas of one workspace; *faults* is everything that was found wrong."""

    def __init__(self, catalogue: Catalogue, admit: Admit = admit_all) -> None:
        self.faults: list[DomainError] = []
        self.schemas: dict[str, Any] = {}
        self._catalogue = catalogue
        self._admit = admit
        self._linked: dict[tuple[str, str], Linked | None] = {}
        self._validators: dict[str, Validator] = {}
        self._digests: dict[str, str | None] = {}

    # --- plugins ------------------------------------------------------------------------------------------------------

    def link(self, kind: str, name: str, place: str) -> Linked | None:
        """Return the plugin, imported at its first use; ``None`` if it is missing or broken, which is a fault."""
        key = (kind, name)
        if key not in self._linked:
            self._linked[key] = None
            with self.collecting(place):
                self._linked[key] = self._load(self._catalogue.find(kind, name, place), place)
        elif self._catalogue.offered(kind, name) is None:
            with self.collecting():
                self._catalogue.find(kind, name, place)
        return self._linked[key]

    def linked(self, kind: str, name: str) -> Linked | None:
        """Return a plugin that was linked before, if it was; that it is missing was said then."""
        return self._linked.get((kind, name))

    def all_linked(self) -> list[Linked]:
        """Return every plugin that was linked, in the order of kind and name."""
        return [linked for _, linked in sorted(self._linked.items()) if linked]

    def forget_broken(self) -> None:
        """Let plugins that are missing or broken be tried again, so that whoever names them next hears of it, too."""
        self._linked = {key: linked for key, linked in self._linked.items() if linked}

    def entries(self) -> dict[str, Any]:
        """Return every plugin that was linked, by kind and name."""
        return {f"{kind}/{name}": linked.entry() for (kind, name), linked in self._linked.items() if linked}

    def _load(self, offer: Offer, place: str) -> Linked:
        if offer.distribution not in self._digests:
            self._digests[offer.distribution] = offer.digest
        digest = self._digests[offer.distribution]
        refused = self._admit(offer, digest)
        if refused:
            raise BindingError(refused)
        return Linked(offer, object if offer.kind == "pack" else load(offer, place), digest)

    # --- schemas ------------------------------------------------------------------------------------------------------

    def schema(self, schema: Object | None, where: Where) -> str | None:
        """Return the digest under which *schema* is kept in `schemas`; one that the lint refuses is a fault."""
        digest = None if schema is None else self._compile(schema, where)
        if digest is not None and schema is not None:
            self.schemas.setdefault(digest, dict(schema))
        return digest

    def check(self, value: Object, schema: Object, who: str, where: Where, *, declared: Where) -> None:
        """Check settings in YAML against a plugin's *schema*; *where* and *declared* say where the two stand."""
        digest = self._compile(schema, declared)
        for each in self._validators[digest].violations(dict(value)) if digest else ():
            self.refuse("BINDING_INVALID", f"settings of {who}: {each}", where(each.pointer))

    def _compile(self, schema: Object, where: Where) -> str | None:
        """Compile a schema once; return its digest, or ``None`` if it is refused."""
        own = dict(schema)
        try:
            digest = canonical.digest(canonical.encode(own))
            if digest not in self._validators:
                self._validators[digest] = foreign(own, place=where(""))
        except IntakeError as problem:
            self.refuse("SCHEMA_REFUSED", str(problem), where(""))
        except SchemaError as problem:
            found = lint(own)
            for each in found:
                self.refuse("SCHEMA_REFUSED", str(each), where(each.pointer))
            self.faults.extend(() if found else problem.errors)
        else:
            return digest
        return None

    # --- faults -------------------------------------------------------------------------------------------------------

    def refuse(self, code: str, message: str, place: str) -> None:
        """Note a fault."""
        self.faults.append(fault(code, message, place=place))

    def known(self, what: str, name: str, names: Iterable[str], place: str) -> bool:
        """Say whether *name* is one of *names*; if not, that is a fault, with the nearest of them."""
        declared = sorted(names)
        if name in declared:
            return True
        why = f"{what} {name!r} is not declared{suggest(name, declared)}; declared: {', '.join(declared) or 'none'}"
        self.refuse("BINDING_INVALID", why, place)
        return False

    @contextmanager
    def collecting(self, place: str | None = None) -> Iterator[None]:
        """Turn what is raised inside into faults; those without a place are at *place*."""
        try:
            yield
        except DeedbookError as problem:
            self.faults.extend(attrs.evolve(each, place=each.place or place) for each in problem.errors)


def at(source: Definition, above: str = "") -> Where:
    """Return where the parts of a definition stand, as ``file:line:column``; looked up only for faults."""
    return lambda pointer: source.origin.place(above + pointer, key=True)


def declared(linked: Linked, field: str) -> Where:
    """Return where a plugin declares something."""
    return lambda pointer: f"{linked.offer}: {field}{pointer}"


def in_profile(profile: str, *keys: str) -> str:
    """Return the place of something in a profile, by its keys."""
    return f".system/deedbook.yaml: {'.'.join(('profiles', profile, *keys))}"


def says_nothing(schema: Mapping[str, Any]) -> bool:
    """Say whether a schema accepts every value, because it holds annotations only."""
    return schema.keys() <= _ANNOTATIONS
