"""The provider behind each model of a charter; pure."""

from collections.abc import Mapping
from typing import Any

__all__ = ["list_providers"]


def list_providers(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the provider of each model ability in a charter's *document*, by the ability's id.

    That of a model which a program asks itself is not known.
    """
    return {
        name: ability["plugin"][1]
        for name, ability in document["abilities"].items()
        if ability.get("kind") == "model" and ability["plugin"][0] == "provider"
    }
