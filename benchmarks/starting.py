"""What it costs to import Deedbook, in time and memory, and to start the command line (T10)."""

import compileall
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Final

import deedbook
from benchmarks.measures import Line, Measure, Note
from benchmarks.processes import cpu_seconds, resident

_REQUIRED: Final = (
    "import attrs, cattrs, click, fastjsonschema, importlib_metadata, jsonschema_rs, orjson, pluggy, ruamel.yaml"
)
_OURS: Final = "import deedbook, deedbook.kernel"
_FRAMEWORKS: Final = {
    "langchain-core": ("langchain_core", "from langchain_core.tools import StructuredTool"),
    "mcp": ("mcp", "from mcp import Client; from mcp.server.mcpserver import MCPServer"),
    "pydantic-ai": ("pydantic_ai", "from pydantic_ai import Agent"),
    "langgraph": (
        "langgraph",
        "import langgraph.checkpoint.sqlite; from langgraph.graph import StateGraph; import langgraph.prebuilt",
    ),
    "cpex": ("cpex", "from cpex.framework import PluginManager"),
}
_ROUNDS: Final = 11


def run() -> Iterator[Line]:
    """Measure imports in new interpreters that take turns, less what an empty interpreter costs."""
    compileall.compile_dir(Path(deedbook.__file__).parent, quiet=1)  # as pip does when it installs
    frameworks = {name: code for name, (module, code) in _FRAMEWORKS.items() if find_spec(module)}
    told = {"nothing": ("-c", "pass"), "required": ("-c", _REQUIRED), "ours": ("-c", _OURS)}
    told |= {"click": ("-c", "import click"), "--help": ("-c", "from deedbook.cli import main; main()", "--help")}
    told |= {name: ("-c", code) for name, code in frameworks.items()}
    rounds = [{name: cpu_seconds(*arguments) for name, arguments in told.items()} for _ in range(_ROUNDS)]
    yield Measure("import: to importing the required packages", "at most", 2, _ratio(rounds, "ours", "required"))
    yield Measure("import: resident memory", "at most", 30, resident(_OURS) / 2**20, unit="MiB")
    for name in _FRAMEWORKS:
        if name in frameworks:
            yield Measure(f"import: cheaper than {name}", "at least", 8, _ratio(rounds, name, "ours"))
        else:
            yield Note(f"import: {name} is not installed; skipped")
    yield Measure("deedbook --help: to importing click", "at most", 3, _ratio(rounds, "--help", "click"))


def _ratio(rounds: list[dict[str, float]], name: str, floor: str) -> float:
    return median((each[name] - each["nothing"]) / (each[floor] - each["nothing"]) for each in rounds)
