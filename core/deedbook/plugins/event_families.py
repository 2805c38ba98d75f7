"""Families of event types that belong to a distribution: ``known/families.json``.

The event types of any plugin are called ``x.<plugin>.<name>``. The plugins of a distribution in this table may also
declare types of its family, such as ``workflow.started``; no other distribution may.
"""

from collections.abc import Mapping

from deedbook.format import canonical
from deedbook.format.families import plugin_family
from deedbook.format.schema import data_folder


def read_granted_families() -> Mapping[str, str]:
    """Return the distribution of each granted family."""
    known = canonical.decode((data_folder("known") / "families.json").read_bytes())
    return {family: row["distribution"] for family, row in known.items()}


def declared_family(event_type: str, granted: Mapping[str, str]) -> str:
    """Return the family of an event type that a charter declares (``x.shop``, ``workflow``), otherwise empty text."""
    family = event_type.partition(".")[0]
    return family if family in granted else plugin_family(event_type)
