"""The kinds of plugins, and how a distribution names those that it has."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

MARKER: Final = "agent_plugins.json"
"""What an installed Agent Plugin leaves in the metadata of its distribution: its root, and the files below it."""
AGENT_PLUGIN: Final = "plugin:"
"""What the name of a pack begins with that is an Agent Plugin; the distribution's name follows."""
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
FEATURE: Final = "feature"
"""The kind of what takes part in the life of sessions (`deedbook.contract.features`)."""
ENTRY_POINTS: Final[Mapping[str, str]] = MappingProxyType({**GROUPS, FEATURE: "deedbook.features"})


def normalise_name(name: str) -> str:
    """Return a distribution's name in the form that indexes compare (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution_name(distribution: Any) -> str:
    """Return the normalised name (PEP 503), from the folder's name if possible: parsing metadata is much slower."""
    quick = getattr(distribution, "_normalized_name", None)
    return normalise_name(quick or distribution.metadata["Name"])
