"""Standing features: ``known/standing.json`` names those that act in every workspace, without a line in YAML.

A standing feature holds a decision of a person outside the workspace's files: it lies in the state folder and in the
workspace ledger. Where its distribution is installed, every charter names it. Where the distribution is missing, a
workspace in which it ever recorded something does not open.
"""

from collections.abc import Container, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import attrs

from deedbook.format import canonical
from deedbook.format.errors import BindingError, fault
from deedbook.format.schema import data_folder

from .groups import FEATURE
from .plugins import Catalogue

_CHUNK: Final = 1 << 20
_PAYLOAD: Final = b',"payload":'


@attrs.frozen
class StandingFeature:
    """The *distribution* that has the feature, and the file in the *state* folder that only the feature understands."""

    distribution: str
    state: str


@cache
def read_standing() -> Mapping[str, StandingFeature]:
    """Return all standing features, by name."""
    known = canonical.decode((data_folder("known") / "standing.json").read_bytes())
    return {name: StandingFeature(**row) for name, row in known.items()}


def installed_standing(catalogue: Catalogue) -> Iterator[str]:
    """Yield the names of the standing features that are installed; another distribution's of that name does not count.

    A name that several distributions offer is one of them: to use it is an error.
    """
    for name, each in read_standing().items():
        key = (FEATURE, name)
        offers = [*([catalogue.offers[key]] if key in catalogue.offers else ()), *catalogue.clashes.get(key, ())]
        if any(offer.distribution == each.distribution for offer in offers):
            yield name


def refuse_missing(plugins: Container[str], state: Path, ledger: Path | None) -> None:
    """Raise `BindingError` if a standing feature that this workspace used is not among the *plugins* of its charter.

    *state* is the state folder, *ledger* the file of the workspace ledger, if that may name it too.
    """
    from deedbook.format.families import family_of

    for name, each in read_standing().items():
        if f"{FEATURE}/{name}" in plugins:
            continue
        found = Path(state, each.state)
        if not found.is_symlink() and not found.exists():
            if ledger is None or not _has_events(ledger, f"{family_of(name)}."):
                continue
            found = ledger
        why = f"{found} has what the feature {name!r} of {each.distribution} recorded, which each call must heed"
        todo = f"the feature is not installed: pip install {each.distribution}"
        raise BindingError(fault("PLUGIN_MISSING", f"{why}, and {todo}", place=str(found)))


def _has_events(ledger: Path, family: str) -> bool:
    """Return whether a ledger has an event of a *family*; the text in payloads does not count."""
    mark, rest = f'"event_type":"{family}'.encode(), b""
    with ledger.open("rb") as file:
        while chunk := file.read(_CHUNK):
            whole, _, rest = (rest + chunk).rpartition(b"\n")
            if mark in whole and any(mark in line.partition(_PAYLOAD)[0] for line in whole.split(b"\n")):
                return True
    return False
