"""Resolve the plugin names in YAML: find, load and check each plugin once, and collect every fault.

Nothing is constructed here. Schemas are compiled once per digest, however many abilities share a plugin.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias

import attrs

from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import (
    BindingError,
    DeedbookError,
    DomainError,
    IntakeError,
    SchemaError,
    describe_crash,
    fault,
)
from deedbook.format.schema import Validator, foreign, lint, suggest
from deedbook.plugins.groups import FEATURE
from deedbook.plugins.plugins import Catalogue, Offer, load

Locator: TypeAlias = Callable[[str], str]
"""Returns the place in a source, ``file:line:column``, for a JSON pointer into a value."""


class DefinitionOrigin(Protocol):
    """The position of a definition in a file."""

    def place(self, inner: str = "", *, key: bool = False) -> str:
        """Return ``file:line:column`` of the value at the JSON pointer *inner*; with *key*, of its key."""


class Definition(Protocol):
    """A definition in a file: an ability, a hook, a policy or another section entry."""

    @property
    def origin(self) -> DefinitionOrigin:
        """The position in the file."""


_ANNOTATIONS: Final = frozenset(
    {"$comment", "$defs", "$id", "$schema", "default", "deprecated", "description", "examples", "title"}
)


@attrs.frozen
class LoadedPlugin:
    """A loaded plugin: its *offer*, class, and the digest of its code (``None``: in place); *place* first names it."""

    offer: Offer
    plugin_class: type[Any]
    digest: str | None
    place: str

    @property
    def spec(self) -> Any:
        """The declaration of the class: a `HandlerSpec` or a `GateSpec`."""
        return self.plugin_class.spec

    def entry(self) -> dict[str, Any]:
        """Return the plugin's entry in a charter."""
        return {
            "distribution": self.offer.distribution,
            "version": self.offer.version,
            "target": self.offer.target,
            "digest": self.digest,
        }


Admit: TypeAlias = Callable[[Offer, str | None], DomainError | None]
"""Called before a plugin is imported; returns an error to refuse an offer whose code has that digest."""


def admit_all(_offer: Offer, _digest: str | None) -> None:
    """Accept every plugin."""


class Linker:
    """The plugins and schemas of one workspace; *faults* collects every fault."""

    def __init__(self, catalogue: Catalogue, admit: Admit = admit_all) -> None:
        self.faults: list[DomainError] = []
        self.schemas: dict[str, Any] = {}
        self._catalogue = catalogue
        self._admit = admit
        self._loaded: dict[tuple[str, str], LoadedPlugin | None] = {}
        self._validators: dict[str, Validator] = {}
        self._digests: dict[str, str | None] = {}

    # --- plugins ------------------------------------------------------------------------------------------------------

    def link(self, kind: str, name: str, place: str) -> LoadedPlugin | None:
        """Return the plugin, imported at its first use; ``None`` if it is missing or broken, which is a fault."""
        key = (kind, name)
        if key not in self._loaded:
            self._loaded[key] = None
            with self.collect_errors(place):
                self._loaded[key] = self._load(self._catalogue.find(kind, name, place), place)
        elif self._catalogue.get(kind, name) is None:
            with self.collect_errors():
                self._catalogue.find(kind, name, place)
        return self._loaded[key]

    def link_standing(self) -> None:
        """Load the standing features that are installed."""
        from deedbook.plugins.standing import installed_standing

        for name in installed_standing(self._catalogue):
            self.link(FEATURE, name, f"the feature {name!r}, which is installed")

    def is_installed(self, kind: str, name: str) -> bool:
        """Return whether a plugin of that name is installed."""
        return self._catalogue.get(kind, name) is not None

    def get(self, kind: str, name: str) -> LoadedPlugin | None:
        """Return a plugin that `link` loaded before, or ``None``; its fault is recorded already."""
        return self._loaded.get((kind, name))

    def linked_plugins(self) -> list[LoadedPlugin]:
        """Return every plugin that was linked, in the order of kind and name."""
        return [linked for _, linked in sorted(self._loaded.items()) if linked]

    def forget_broken(self) -> None:
        """Forget missing and broken plugins, so that the next `link` reports them again."""
        self._loaded = {key: linked for key, linked in self._loaded.items() if linked}

    def entries(self) -> dict[str, Any]:
        """Return the entry of every loaded plugin, by kind and name."""
        return {f"{kind}/{name}": linked.entry() for (kind, name), linked in self._loaded.items() if linked}

    def _load(self, offer: Offer, place: str) -> LoadedPlugin:
        if offer.distribution not in self._digests:
            self._digests[offer.distribution] = offer.digest
        digest = self._digests[offer.distribution]
        refused = self._admit(offer, digest)
        if refused:
            raise BindingError(refused)
        return LoadedPlugin(offer, object if offer.kind == "pack" else load(offer, place), digest, place)

    # --- schemas ------------------------------------------------------------------------------------------------------

    def schema(self, schema: Object | None, where: Locator) -> str | None:
        """Return the digest of *schema*, kept in `schemas`; a schema that the lint refuses is a fault."""
        digest = None if schema is None else self._compile(schema, where)
        if digest is not None and schema is not None:
            self.schemas.setdefault(digest, dict(schema))
        return digest

    def check(self, value: Object, schema: Object, who: str, where: Locator, *, declared: Locator) -> None:
        """Check settings in YAML against a plugin's *schema*; *where* and *declared* locate settings and schema."""
        digest = self._compile(schema, declared)
        for each in self._validators[digest].violations(dict(value)) if digest else ():
            self.refuse("BINDING_INVALID", f"settings of {who}: {each}", where(each.pointer))

    def _compile(self, schema: Object, where: Locator) -> str | None:
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
        """Record a fault."""
        self.faults.append(fault(code, message, place=place))

    def check_name(self, what: str, name: str, names: Iterable[str], place: str) -> bool:
        """Return whether *name* is one of *names*; if not, record a fault that suggests the nearest."""
        declared = sorted(names)
        if name in declared:
            return True
        why = f"{what} {name!r} is not declared{suggest(name, declared)}; declared: {', '.join(declared) or 'none'}"
        self.refuse("BINDING_INVALID", why, place)
        return False

    @contextmanager
    def collect_crashes(self, what: str, place: str) -> Iterator[None]:
        """Turn any exception of a plugin that is raised inside into a fault that begins with *what*."""
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a plugin may raise anything, even SystemExit
            self.refuse("PLUGIN_BROKEN", f"{what}: {describe_crash(problem)}", place)

    @contextmanager
    def collect_errors(self, place: str | None = None) -> Iterator[None]:
        """Turn errors raised inside into faults; those without a place get *place*."""
        try:
            yield
        except DeedbookError as problem:
            self.faults.extend(attrs.evolve(each, place=each.place or place) for each in problem.errors)


def locator(source: Definition, above: str = "") -> Locator:
    """Return a `Locator` for the parts of a definition; a place is looked up only for a fault."""
    return lambda pointer: source.origin.place(above + pointer, key=True)


def declaration_place(linked: LoadedPlugin, field: str) -> Locator:
    """Return a `Locator` for a field that a plugin declares."""
    return lambda pointer: f"{linked.place}: {linked.offer}: {field}{pointer}"


def profile_place(profile: str, *keys: str) -> str:
    """Return the place of a setting of a profile, by its keys."""
    return f".system/deedbook.yaml: {'.'.join(('profiles', profile, *keys))}"


def accepts_everything(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema accepts every value, because it holds annotations only."""
    return schema.keys() <= _ANNOTATIONS
