"""The format of charters: its name, and the form of policies that the kernel compares rule by rule."""

from collections.abc import Mapping
from typing import Any, Final

FORMAT: Final = "charter-1"
"""The format that every charter names."""
ROUNDS: Final = 3
"""How often hooks of ``Stop`` may send a run into another round, unless the profile says otherwise."""
RULE_LISTS: Final = frozenset({"rules"})
"""Kinds whose body is ``{rules: [{match, then, …}], default}``, where the first rule that holds decides.

The kernel compares such policies of two charters rule by rule, and knows the tags that each rule names. A stored
charter has only the name of a kind, so the form is known by that name.
"""


def lists_rules(policy: Mapping[str, Any]) -> bool:
    """Return whether the body of a charter's policy is a list of rules."""
    kind, name = policy["plugin"]
    return kind == "policy" and name in RULE_LISTS
