"""Installed plugins: entry points to a catalogue without importing anything; then one at a time, loaded and checked."""

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

import attrs
import importlib_metadata
import orjson
import pluggy

from . import canonical
from .contracts import GateSpec, HandlerSpec, Lifecycle
from .errors import BindingError, DomainError, fault
from .schema import suggest

GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tool": "deedbook.tools",
        "provider": "deedbook.providers",
        "flow": "deedbook.flows",
        "hook": "deedbook.hooks",
        "skill": "deedbook.skill_loaders",
        "policy": "deedbook.policy_kinds",
        "pack": "deedbook.packs",
    }
)
"""Kind of plugin, and its entry-point group."""

EVENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SessionStart": "session_start",
        "UserPromptSubmit": "user_prompt_submit",
        "SkillStart": "skill_start",
        "PreToolUse": "pre_tool_use",
        "PostToolUse": "post_tool_use",
        "Stop": "stop",
        "SessionStop": "session_stop",
    }
)
"""Life-cycle event in YAML, and the method of `contracts.Lifecycle` that answers it."""

_ACTING: Final = frozenset({"tool", "provider", "flow"})


@attrs.frozen(eq=False, slots=False)
class Offer:
    """One entry point of an installed distribution, not imported."""

    kind: str
    name: str
    target: str
    distribution: str
    version: str
    metadata: importlib_metadata.Distribution = attrs.field(repr=False)

    @cached_property
    def editable(self) -> bool:
        """Whether the distribution is installed in place, so that its files may change under the charter."""
        record = self.metadata.read_text("direct_url.json")
        return bool(record and orjson.loads(record).get("dir_info", {}).get("editable"))

    @cached_property
    def digest(self) -> str | None:
        """SHA-256 over the distribution's module files and entry points as installed; ``None`` if editable."""
        return None if self.editable else _distribution_digest(self.metadata)

    def __str__(self) -> str:
        return f"{self.kind} plugin {self.name!r} of {self.distribution} {self.version}"


@attrs.frozen
class Catalogue:
    """What is installed: offers by kind and name, and names that two distributions claim."""

    offers: Mapping[tuple[str, str], Offer]
    clashes: Mapping[tuple[str, str], tuple[Offer, ...]]

    def find(self, kind: str, name: str, place: str | None = None) -> Offer:
        """Return the one offer of that name; raises `BindingError` if there is none, or more than one."""
        rivals = self.clashes.get((kind, name))
        if rivals:
            owners = " and ".join(f"{rival.distribution} {rival.version}" for rival in rivals)
            raise BindingError(
                fault("PLUGIN_BROKEN", f"{kind} {name!r} is offered by {owners}; uninstall all but one", place=place)
            )
        offer = self.offers.get((kind, name))
        if offer is None:
            raise BindingError(self._missing(kind, name, place))
        return offer

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the installed names of one kind, sorted."""
        return tuple(sorted(name for of, name in self.offers if of == kind))

    def _missing(self, kind: str, name: str, place: str | None) -> DomainError:
        names = self.names(kind)
        return fault(
            "PLUGIN_MISSING",
            f"{kind} {name!r} is not installed{suggest(name, names)}; installed: {', '.join(names) or 'none'}. "
            "Correct the name, or pip install its plugin.",
            place=place,
        )


def discover(distributions: Iterable[importlib_metadata.Distribution] | None = None) -> Catalogue:
    """Read the metadata of installed distributions; imports no plugin.

    Of distributions with one name the first on the path counts, as for Python's own import.
    """
    found: dict[tuple[str, str], list[Offer]] = {}
    for offer in _offers(importlib_metadata.distributions() if distributions is None else distributions):
        found.setdefault((offer.kind, offer.name), []).append(offer)
    return Catalogue(
        {key: offers[0] for key, offers in found.items() if len(offers) == 1},
        {key: tuple(offers) for key, offers in found.items() if len(offers) > 1},
    )


def load(offer: Offer, place: str | None = None) -> type[Any]:
    """Import a plugin and return its class, checked against its kind; raises `BindingError` whatever it does."""
    try:
        module, _, attribute = offer.target.partition(":")
        __import__(module)
        made: Any = sys.modules[module]
        for part in attribute.split("."):
            made = getattr(made, part)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - a plugin that says sys.exit() must not end the kernel
        why = f"{offer} does not load from {offer.target}: {type(problem).__name__}: {problem}"
        raise BindingError(fault("PLUGIN_BROKEN", why, place=place)) from None
    problems = list(_problems(offer, made))
    if not canonical.check_bindings():
        problems.append("changed how the kernel hashes while it was loaded")
    if problems:
        raise BindingError(*(fault("PLUGIN_BROKEN", f"{offer}: {problem}", place=place) for problem in problems))
    return made  # type: ignore[no-any-return]


def implementations(offer: Offer, made: object, event: str, place: str | None = None) -> Any:
    """Return the method of a hook object that answers *event*; raises `BindingError` if it has none."""
    method = EVENTS[event]
    manager = pluggy.PluginManager("deedbook")
    manager.add_hookspecs(Lifecycle)
    try:
        manager.register(made)
        manager.check_pending()
    except pluggy.PluginValidationError as problem:
        raise BindingError(fault("PLUGIN_BROKEN", f"{offer}: {problem}", place=place)) from None
    found = getattr(manager.hook, method).get_hookimpls()
    if not found:
        has = ", ".join(name for name, hook in EVENTS.items() if getattr(manager.hook, hook).get_hookimpls())
        why = f"{offer} does not answer {event}; it answers {has or 'nothing (is @hookimpl missing?)'}"
        raise BindingError(fault("PLUGIN_BROKEN", why, place=place))
    return found[0].function


# --- reading metadata -------------------------------------------------------------------------------------------------


def _offers(distributions: Iterable[importlib_metadata.Distribution]) -> Iterator[Offer]:
    kinds = {group: kind for kind, group in GROUPS.items()}
    seen: set[str] = set()
    for distribution in distributions:
        name = _normal(distribution.metadata["Name"] or "")
        if name in seen:
            continue
        seen.add(name)
        for point in distribution.entry_points:
            if point.group in kinds:
                yield Offer(kinds[point.group], point.name, point.value, name, distribution.version, distribution)


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _distribution_digest(distribution: importlib_metadata.Distribution) -> str:
    total = sha256()
    for path in sorted(distribution.files or (), key=str):
        inside = path.parent.name.endswith(".dist-info")
        if (inside and path.name != "entry_points.txt") or path.suffix == ".pyc" or ".." in path.parts:
            continue
        name = path.name if inside else str(path)  # the folder's name holds the version, which stands elsewhere
        total.update(f"{name}\0{sha256(path.read_binary()).hexdigest()}\n".encode())
    return total.hexdigest()


# --- checking a class against its kind --------------------------------------------------------------------------------


def _problems(offer: Offer, made: Any) -> Iterator[str]:
    if not inspect.isclass(made):
        yield f"{offer.target} is not a class"
        return
    wanted = HandlerSpec if offer.kind in _ACTING else GateSpec
    spec = inspect.getattr_static(made, "spec", None)
    if not isinstance(spec, wanted):
        yield f"its `spec` is {type(spec).__name__}, not a {wanted.__name__}"
    yield from _argument_problems(made.__init__, "__init__", ("self", "settings", "host"))
    if offer.kind in _ACTING:
        yield from _call_problems(made, ("self", "args", "ctx"))
        if getattr(spec, "reconciles", False) and not callable(getattr(made, "reconcile", None)):
            yield "it declares `reconciles` and has no method `reconcile`"
    elif offer.kind == "policy":
        yield from _call_problems(made, ("self", "call"))
    elif offer.kind == "skill":
        yield from _call_problems(made, ("self",))
    elif offer.kind == "hook":
        yield from _hook_problems(made)


def _call_problems(made: type[Any], wanted: tuple[str, ...]) -> Iterator[str]:
    call = inspect.getattr_static(made, "__call__", None)
    if call is None:
        yield "its objects cannot be called: there is no method `__call__`"
    else:
        yield from _argument_problems(call, "__call__", wanted)


def _argument_problems(function: Any, name: str, wanted: tuple[str, ...]) -> Iterator[str]:
    """Positional arguments are counted, not named: a tool may call its arguments as it likes."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        yield f"the signature of `{name}` cannot be read"
        return
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    spread = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    named_only = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if named_only or len(required) > len(wanted) or (len(positional) < len(wanted) and not spread):
        yield f"`{name}{inspect.signature(function)}` should take ({', '.join(wanted)})"


def _hook_problems(made: type[Any]) -> Iterator[str]:
    """Compare each implementation with its specification: pluggy accepts fewer arguments, and ordering marks."""
    for name, method in inspect.getmembers(made, inspect.isfunction):
        marks = getattr(method, "deedbook_impl", None)
        if marks is None:
            continue
        specification = getattr(Lifecycle, marks.get("specname") or name, None)
        if specification is None:
            yield f"`{name}` answers no event of the life cycle"
            continue
        wanted = list(inspect.signature(specification).parameters)
        if list(inspect.signature(method).parameters) != wanted:
            yield f"`{name}{inspect.signature(method)}` should take ({', '.join(wanted)})"
        if any(marks.get(mark) for mark in ("hookwrapper", "wrapper", "tryfirst", "trylast", "optionalhook")):
            yield f"`{name}` is marked as a wrapper or with an order; priority stands in YAML"
