"""The kinds of plugins, and how a distribution names those that it has."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

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
