"""Pin a charter: compile it, compare it with the one pinned before, and write the lock file."""

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs
import orjson

from deedbook.charter.compiler import compile_charter
from deedbook.charter.locks import ActiveCharter, PreviousCharter, read_lock
from deedbook.charter.store import Store
from deedbook.format.errors import BindingError, DomainError, fault, raise_all
from deedbook.format.files import Folder
from deedbook.plugins.groups import normalise_name
from deedbook.plugins.plugins import Catalogue
from deedbook.policy.charter import Charter
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.lockfile import LOCK, Lock, Pin, current_platform

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA: Final = re.compile(r";.*\bextra\s*==")


def lock(
    workspace: Workspace, catalogue: Catalogue, store: Store, root: Folder, *, kernel: str, editable: bool = False
) -> ActiveCharter:
    """Compile, write the lock file, and return what changed against the charter pinned before.

    With *editable*, distributions that are installed in place are listed as such and accepted. The charter comes into
    force at the next start, which records it.
    """
    before = read_lock(root)
    previous = (before.charters.get(current_platform()) if before else None) or store.current()
    past = PreviousCharter.of(store, previous)
    charter = compile_charter(workspace, catalogue, kernel=kernel, known=past.scripts)
    if workspace.lock == "required" and not editable:
        raise_all(BindingError, dict.fromkeys(_editable_errors(charter)))
    store.keep(charter, root)
    write_lock(_pin_charter(charter.document, charter.digest, before, editable=editable), root)
    return ActiveCharter(charter, previous, past.compare(charter))


def _pin_charter(document: Mapping[str, Any], digest: str, before: Lock | None, *, editable: bool) -> Lock:
    """Pin a charter: its *document* and *digest*. With *editable*, distributions installed in place are accepted.

    Charters of other platforms stay from *before* if they have the same sources, and wheels of other platforms stay if
    they have the same version.
    """
    made = Lock(
        kernel=document["kernel"],
        profile=document["profile"],
        sources=document["sources"],
        charters={},
        plugins={
            entry["distribution"]: _pin(entry, before, editable=editable) for entry in document["plugins"].values()
        },
    )
    same = before is not None and attrs.evolve(before, charters={}, plugins={}) == attrs.evolve(made, plugins={})
    return attrs.evolve(made, charters={**(before.charters if before and same else {}), current_platform(): digest})


def _pin(entry: Mapping[str, Any], before: Lock | None, *, editable: bool) -> Pin:
    version, digest = entry["version"], entry["digest"]
    if digest is None:
        return Pin(version, editable=editable)
    old = before.plugins.get(entry["distribution"]) if before else None
    kept = old.digests if old and old.version == version else ()
    return Pin(version, sorted({*kept, digest}))


def write_lock(pins: Lock, root: Folder) -> None:
    """Write the lock file whole: sorted, indented, one entry a line."""
    made = attrs.asdict(pins, recurse=False)
    made |= {"schema_version": "v1", "plugins": {name: _pin_json(pin) for name, pin in pins.plugins.items()}}
    options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    root.replace(LOCK, orjson.dumps(made, option=options), mode=0o644)


def _pin_json(pin: Pin) -> dict[str, Any]:
    return {"version": pin.version} | ({"editable": True} if pin.editable else {"digests": list(pin.digests)})


def _editable_errors(charter: Charter) -> list[DomainError]:
    why = "is installed in place, which lock: required refuses; install its wheel, or run: deedbook lock --editable"
    return [
        fault("CHARTER_CHANGED", f"{entry['distribution']} {why}", place=LOCK)
        for entry in charter.document["plugins"].values()
        if entry["digest"] is None
    ]


def find_unpinned_libraries(document: Mapping[str, Any], catalogue: Catalogue) -> list[str]:
    """Return the installed distributions that the plugins of a charter need, directly or not, and that it does not pin.

    Each has its version. What only an extra of a distribution needs is left out.
    """
    pinned = {entry["distribution"] for entry in document["plugins"].values()}
    found, left = set[str](), [*pinned]
    while left:
        known = catalogue.distributions.get(left.pop())
        for line in (known.requires or ()) if known else ():
            name = normalise_name((_NAME.match(line) or [""])[0])
            if name in catalogue.distributions and name not in found and not _EXTRA.search(line):
                found.add(name)
                left.append(name)
    return [f"{name} {catalogue.distributions[name].version}" for name in sorted(found - pinned)]
