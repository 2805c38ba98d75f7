"""The provider behind each model of a charter; pure."""

from collections.abc import Mapping
from typing import Any

__all__ = ["list_providers"]


def list_providers(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the provider of each model ability in a charter's *document*, by the ability's id."""
    return {
        name: ability["plugin"][1] for name, ability in document["abilities"].items() if ability.get("kind") == "model"
    }
