"""Installed plugins: a catalogue of entry points without imports; then single plugins, loaded and checked."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson
import pluggy

from deedbook.contract.lifecycle import EVENTS, Lifecycle
from deedbook.format import canonical
from deedbook.format.errors import BindingError, DomainError, describe, describe_crash, fault
from deedbook.format.schema import data_folder, suggest

from .groups import AGENT_PLUGIN, ENTRY_POINTS, MARKER, distribution_name, normalise_name

if TYPE_CHECKING:
    import importlib_metadata

    from .packs import PackFolder
    from .pinned_code import PinnedFiles

_TOLD: Final = (("entry_points.txt",), (MARKER,))
_KINDS: Final = MappingProxyType({group: kind for kind, group in ENTRY_POINTS.items()})


@attrs.frozen(eq=False, slots=False)
class Installation:
    """An installed distribution, whose files are hashed once for all plugins that it offers."""

    metadata: "importlib_metadata.Distribution"

    @cached_property
    def editable(self) -> bool:
        """Whether the distribution is installed in place, so that its files may change under the charter."""
        try:
            record = self.metadata.read_text("direct_url.json")
            return bool(record and orjson.loads(record).get("dir_info", {}).get("editable"))
        except (ValueError, AttributeError):
            return True  # unreadable metadata cannot be pinned

    @cached_property
    def digest(self) -> str | None:
        """SHA-256 over the distribution's module files and entry points as installed.

        ``None`` if it is editable, or has no record of its files.
        """
        if self.editable or not self.is_present:
            return None
        total = sha256()
        for name, digest in self._hashed:
            total.update(f"{name}\0{digest}\n".encode())
        return total.hexdigest()

    @cached_property
    def is_present(self) -> bool:
        """Whether any of the recorded files is there."""
        paths = _recorded_names(self.metadata)
        return bool(self._hashed) or any(self.metadata.locate_file(path).exists() for path in paths)

    @cached_property
    def _hashed(self) -> list[tuple[str, str]]:
        """The recorded files that count, by the name under which they are hashed."""
        paths = sorted(map(PurePosixPath, _recorded_names(self.metadata)), key=str)
        named = ((path, _hashed_name(path)) for path in paths)
        found = ((name, _file_digest(self.metadata.locate_file(path))) for path, name in named if name is not None)
        return [(name, digest) for name, digest in found if digest]

    def pin(self) -> "PinnedFiles | None":
        """Return the files that the digest covers; ``None`` if there is no digest, or they are in no folder."""
        from .pinned_code import PinnedFiles

        root = self.metadata.locate_file("")
        if self.digest is None or not isinstance(root, Path):
            return None
        return PinnedFiles(distribution_name(self.metadata), root.absolute(), dict(self._hashed))


@attrs.frozen(eq=False)
class Offer:
    """One entry point of an installed distribution, not imported."""

    kind: str
    name: str
    target: str
    distribution: str
    version: str
    installation: Installation = attrs.field(repr=False)

    @property
    def metadata(self) -> "importlib_metadata.Distribution":
        """The metadata of its distribution."""
        return self.installation.metadata

    @property
    def editable(self) -> bool:
        """Whether its distribution is installed in place."""
        return self.installation.editable

    @property
    def digest(self) -> str | None:
        """The digest of its distribution, if it has one."""
        return self.installation.digest

    def pack(self) -> "PackFolder":
        """Return the files of an offered pack, or Agent Plugin; raises `BindingError`."""
        from .packs import pack_folder, plugin_folder

        if self.name.startswith(AGENT_PLUGIN):
            return plugin_folder(self.metadata, editable=self.editable)
        return pack_folder(self.metadata, self.target, editable=self.editable)

    def __str__(self) -> str:
        return f"{self.kind} plugin {self.name!r} of {self.distribution} {self.version}"


@attrs.frozen
class Catalogue:
    """The installed plugins: offers by kind and name, names that two distributions claim, and unreadable metadata.

    *hidden*: distributions that come after another of the same name on the path, each with both places.
    """

    offers: Mapping[tuple[str, str], Offer]
    clashes: Mapping[tuple[str, str], tuple[Offer, ...]]
    unreadable: tuple[str, ...] = ()
    distributions: Mapping[str, "importlib_metadata.Distribution"] = attrs.field(factory=dict, repr=False)
    hidden: tuple[str, ...] = ()

    def get(self, kind: str, name: str) -> Offer | None:
        """Return the only offer of that name, or that Agent Plugin; ``None`` if there is none, or more than one."""
        if kind == "pack" and name.startswith(AGENT_PLUGIN):
            return self._agent_plugin(name)
        return self.offers.get((kind, name))

    def find(self, kind: str, name: str, place: str | None = None) -> Offer:
        """Return the only offer of that name; raises `BindingError` if there is none, or more than one."""
        rivals = self.clashes.get((kind, name))
        if rivals:
            owners = " and ".join(f"{rival.distribution} {rival.version}" for rival in rivals)
            why = f"{kind} {name!r} is offered by {owners}; uninstall all but one"
            raise BindingError(fault("PLUGIN_BROKEN", why, place=place))
        offer = self.get(kind, name)
        if offer is None:
            raise BindingError(self._missing_error(kind, name, place))
        return offer

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the installed names of one kind, sorted."""
        return tuple(sorted(name for of, name in self.offers if of == kind))

    def _agent_plugin(self, name: str) -> Offer | None:
        """Return an installed Agent Plugin by its distribution's name; the marker is searched only there."""
        owner = normalise_name(name.removeprefix(AGENT_PLUGIN))
        found = self.distributions.get(owner)
        if found is None or found.read_text(MARKER) is None:
            return None
        return Offer("pack", f"{AGENT_PLUGIN}{owner}", MARKER, owner, found.version, Installation(found))

    def _missing_error(self, kind: str, name: str, place: str | None) -> DomainError:
        if kind == "pack" and name.startswith(AGENT_PLUGIN):
            owner = name.removeprefix(AGENT_PLUGIN)
            is_there = "brings no Agent Plugin" if normalise_name(owner) in self.distributions else "is not installed"
            why = f"distribution {owner!r} {is_there}. Correct the name, or pip install it."
            return fault("PLUGIN_MISSING", why, place=place)
        names = self.names(kind)
        broken = f" (the metadata of {', '.join(self.unreadable)} cannot be read)" if self.unreadable else ""
        return fault(
            "PLUGIN_MISSING",
            f"{kind} {name!r} is not installed{suggest(name, names)}; installed: {', '.join(names) or 'none'}{broken}. "
            f"{_advice(kind, name)}",
            place=place,
        )


def known_owners(kind: str) -> dict[str, str]:
    """Return the distributions of known plugins of a *kind*, by name, whether they are installed or not."""
    known = canonical.decode((data_folder("known") / "plugins.json").read_bytes())
    return {name.removeprefix(f"{kind}/"): owner for name, owner in known.items() if name.startswith(f"{kind}/")}


def _advice(kind: str, name: str) -> str:
    """Return what to do about a missing plugin, with its distribution if that is known."""
    if owner := known_owners(kind).get(name):
        return f"It is in {owner}: pip install {owner}"
    return "Correct the name, or pip install its plugin."


def discover(distributions: Iterable["importlib_metadata.Distribution"] | None = None) -> Catalogue:
    """Return the catalogue of installed distributions; imports no plugin.

    If two distributions have the same name, the first on the path counts, as for Python's own import. A distribution
    with unreadable metadata offers nothing; its plugins are reported as missing where they are named.
    """
    found: dict[tuple[str, str], list[Offer]] = {}
    unreadable: list[str] = []
    hidden: list[str] = []
    import importlib_metadata

    seen: dict[str, importlib_metadata.Distribution] = {}
    present: Iterable[Any] = importlib_metadata.distributions() if distributions is None else distributions
    for distribution in present:
        try:
            name = distribution_name(distribution)
            offers = [] if name in seen else list(_offers(name, distribution))
        except Exception as problem:  # noqa: BLE001 - a partly removed package must not stop every command
            unreadable.append(_where(distribution, problem))
            continue
        if _shadows(seen.setdefault(name, distribution), distribution):
            hidden.append(f"{name} {distribution.version} in {_home(distribution)} is hidden by {_home(seen[name])}")
        for offer in offers:
            found.setdefault((offer.kind, offer.name), []).append(offer)
    return Catalogue(
        {key: offers[0] for key, offers in found.items() if len(offers) == 1},
        {key: tuple(offers) for key, offers in found.items() if len(offers) > 1},
        tuple(unreadable),
        seen,
        tuple(hidden),
    )


def load(offer: Offer, place: str | None = None) -> type[Any]:
    """Import a plugin and return its class, checked against its kind; raises `BindingError` for any failure.

    Changes to the process by the import are undone as far as possible (see `importing`); it has limited time.
    """
    from .importing import guard_import
    from .pinned_code import pin
    from .shape import find_misfits

    made: Any = None
    pinned = offer.installation.pin()
    if pinned is not None and (wrong := list(pin(pinned))):
        raise BindingError(*(_broken_error(offer, problem, place) for problem in wrong))
    try:
        with guard_import(offer.target.partition(":")[0]) as replaced:
            made = _import(offer)
        problems = [*find_misfits(offer.kind, made), *(f"replaced {name} while it was loaded" for name in replaced)]
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - a plugin that calls sys.exit() must not end the kernel
        problems = [f"does not load from {offer.target}: {describe_crash(problem)}"]
    if not canonical.check_bindings():
        problems.append("replaced the kernel's hash functions while it was loaded")
    if problems:
        raise BindingError(*(_broken_error(offer, problem, place) for problem in problems))
    return made  # type: ignore[no-any-return]


def find_implementation(offer: Offer, made: object, event: str, place: str | None = None) -> Any:
    """Return the method of a hook object that answers *event*; raises `BindingError` if it has none."""
    manager = pluggy.PluginManager("deedbook")
    manager.add_hookspecs(Lifecycle)
    try:
        manager.register(made)
        manager.check_pending()
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - registering reads every attribute, which may run any code
        raise BindingError(_broken_error(offer, describe_crash(problem), place)) from None
    found = {name: getattr(manager.hook, known.method).get_hookimpls() for name, known in EVENTS.items()}
    if len(found[event]) != 1:
        has = ", ".join(name for name, methods in found.items() if methods)
        why = f"has {len(found[event])} answers to {event}; it answers {has or 'nothing (is @hookimpl missing?)'}"
        raise BindingError(_broken_error(offer, why, place))
    return found[event][0].function


def _broken_error(offer: Offer, problem: str, place: str | None) -> DomainError:
    return fault("PLUGIN_BROKEN", f"{offer}: {problem}", place=place)


# --- reading metadata -------------------------------------------------------------------------------------------------


def _offers(name: str, distribution: "importlib_metadata.Distribution") -> Iterator[Offer]:
    points = _entry_points(distribution)
    version = _version(distribution) if points else ""
    installation = Installation(distribution)
    for point in points:
        yield Offer(_KINDS[point.group], point.name, point.value, name, version, installation)


def _entry_points(distribution: "importlib_metadata.Distribution") -> "list[importlib_metadata.EntryPoint]":
    """Return the entry points of plugins; the file of a distribution that names no group of them is not parsed."""
    text = distribution.read_text("entry_points.txt") or ""
    if not any(group in text for group in _KINDS):
        return []
    return [point for point in distribution.entry_points if point.group in _KINDS]


def _version(distribution: "importlib_metadata.Distribution") -> str:
    """Return the version, from the headers alone: the library also parses the description below them."""
    head = (distribution.read_text("METADATA") or "").partition("\n\n")[0]
    found = re.findall(r"(?m)^Version: *(\S+) *$", head)
    return found[0] if len(found) == 1 else distribution.version


def _home(distribution: "importlib_metadata.Distribution") -> Any:
    """Return the folder that a distribution is installed in."""
    return getattr(getattr(distribution, "_path", None), "parent", None)


def _shadows(first: "importlib_metadata.Distribution", distribution: "importlib_metadata.Distribution") -> bool:
    """Return whether *first*, in another folder, hides plugins of *distribution*."""
    if first is distribution or _home(first) == _home(distribution):
        return False
    return bool(_entry_points(distribution))


def _where(distribution: "importlib_metadata.Distribution", problem: Exception) -> str:
    return f"{getattr(distribution, '_path', None) or type(distribution).__name__}: {describe(problem)}"


def _recorded_names(distribution: "importlib_metadata.Distribution") -> list[str]:
    """Return the paths in the record; `Distribution.files` would look for each of them first."""
    record = distribution.read_text("RECORD")
    if not record:
        return [str(path) for path in distribution.files or ()]
    return [row[0] for row in csv.reader(record.splitlines()) if row and row[0]]


def _hashed_name(path: PurePosixPath) -> str | None:
    """Return the name under which a file is hashed; ``None`` for a file that is not."""
    is_metadata = path.parts[0].endswith(".dist-info")
    if (is_metadata and path.parts[1:] not in _TOLD) or path.suffix == ".pyc" or ".." in path.parts:
        return None
    return path.name if is_metadata else str(path)  # the folder's name holds the version, which is recorded separately


def _file_digest(place: Any) -> str | None:
    """Hash a file; ``None`` if it is missing."""
    try:
        return sha256(place.read_bytes()).hexdigest()
    except OSError:
        return "absent" if place.exists() else None


# --- importing --------------------------------------------------------------------------------------------------------


def _import(offer: Offer) -> Any:
    if offer.kind == "pack":
        raise TypeError("a pack is data, and is never imported")
    from importlib_metadata import EntryPoint

    return EntryPoint(offer.name, offer.target, ENTRY_POINTS[offer.kind]).load()
