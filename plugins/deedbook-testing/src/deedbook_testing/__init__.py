"""Try Deedbook plugins in real workspaces."""

from .acting import FlowContract, ProviderContract, ToolContract
from .data import PackContract, SkillLoaderContract
from .examples import ANYTHING, Asked, Example
from .gates import HookContract, PolicyContract
from .hosted import HostedProviderContract
from .lab import Lab

__all__ = [
    "ANYTHING",
    "Asked",
    "Example",
    "FlowContract",
    "HookContract",
    "HostedProviderContract",
    "Lab",
    "PackContract",
    "PolicyContract",
    "ProviderContract",
    "SkillLoaderContract",
    "ToolContract",
]
