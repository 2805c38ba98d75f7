"""Try Deedbook plugins in real workspaces."""

from .acting import FlowContract, ProviderContract, ToolContract
from .data import PackContract, SkillLoaderContract
from .examples import ANYTHING, Example, GateCase
from .gates import HookContract, PolicyContract
from .hosted import HostedProviderContract
from .lab import Lab
from .modes import FlowModesContract

__all__ = [
    "ANYTHING",
    "Example",
    "FlowContract",
    "FlowModesContract",
    "GateCase",
    "HookContract",
    "HostedProviderContract",
    "Lab",
    "PackContract",
    "PolicyContract",
    "ProviderContract",
    "SkillLoaderContract",
    "ToolContract",
]
