"""What a plugin's code says before it runs: what it imports, by its text and in a Python of its own."""

import ast
import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import deedbook
from deedbook.plugins.plugins import Offer

_PUBLIC_MODULES: Final = (
    "deedbook",
    "deedbook.contract",
    "deedbook.contract.facts",
    "deedbook.contract.hidden",
    "deedbook.contract.pointers",
    "deedbook.contract.urls",
)
"""The modules of the kernel that plugins may import: the contract, and nothing else is promised."""

HEAVY: Final = frozenset(
    {
        "anthropic", "boto3", "botocore", "google.genai", "grpc", "httpx", "httpx2", "langchain", "litellm",
        "llama_cpp", "mistralai", "numpy", "ollama", "onnxruntime", "openai", "pandas", "playwright", "pydantic",
        "requests", "scipy", "selenium", "sklearn", "sqlalchemy", "tensorflow", "torch", "transformers",
    }
)  # fmt: skip
"""What takes so long to import, or does so much, that it waits for the first call."""
_TOLD: Final = "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"


def foreign_imports(offer: Offer, rooms: Collection[str] = ()) -> Iterator[str]:
    """Yield what a plugin imports of the kernel that is neither its contract nor in one of *rooms*, with its line."""
    for path in sources(offer):
        for line, name in _kernel_imports(path):
            if not is_among(name, rooms):
                yield f"{path.name}:{line} imports {name}"


@cache
def _kernel_imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Return the lines at which a file imports private modules of the kernel; each file is read once."""
    nodes = ast.walk(ast.parse(path.read_bytes(), str(path)))
    return tuple((node.lineno, name) for node in nodes for name in set(_kernel_names(node)))  # type: ignore[attr-defined]


def sources(offer: Offer) -> list[Path]:
    """Return the Python files of the package, or the one module, that the entry point names."""
    found = find_spec(offer.target.partition(":")[0].partition(".")[0])
    assert found is not None, f"{offer} names {offer.target}, and there is no such module"
    if found.submodule_search_locations:
        return sorted(path for root in found.submodule_search_locations for path in Path(root).rglob("*.py"))
    return [Path(found.origin)] if found.origin else []


def modules_after(code: str) -> frozenset[str]:
    """Run some Python in a process of its own, and return the names of all modules that were imported meanwhile."""
    return _modules_after(code, tuple(place for place in sys.path if place))


@cache
def _modules_after(code: str, path: tuple[str, ...]) -> frozenset[str]:
    """Run *code* with the *path* in a process of its own; several plugins may be in one module."""
    whole = f"import sys; sys.path[:0] = {[*path]!r}\n{code}{_TOLD}"
    done = subprocess.run(  # noqa: S603 - this very Python
        [sys.executable, "-I", "-c", whole], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{code} ended with {done.stderr.strip().splitlines()[-1:]}"
    return frozenset(json.loads(done.stdout.splitlines()[-1]))


def is_among(module: str, names: Collection[str]) -> bool:
    """Return whether *module* is one of *names*, or inside one."""
    return any(module == name or module.startswith(f"{name}.") for name in names)


def _kernel_names(node: ast.AST) -> list[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        whole = node.module == "deedbook"
        names = [f"{node.module}.{alias.name}" for alias in node.names] if whole else [node.module]
    public = {*_PUBLIC_MODULES, *(f"deedbook.{name}" for name in deedbook.__all__)}
    return [name for name in names if name.partition(".")[0] == "deedbook" and name not in public]
