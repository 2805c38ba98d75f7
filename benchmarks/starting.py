"""What it costs to import Deedbook, in time and memory (T10)."""

import compileall
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import deedbook
from benchmarks.measures import Line, Measure, Value, missing
from benchmarks.processes import in_turns, python, resident
from benchmarks.rounds import Plan

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


def run(plan: Plan) -> Iterator[Line]:
    """Measure imports in new interpreters that take turns, less what an empty interpreter costs."""
    compileall.compile_dir(Path(deedbook.__file__).parent, quiet=1)  # as pip does when it installs
    found = {name: code for name, (module, code) in _FRAMEWORKS.items() if find_spec(module)}
    frameworks = {} if plan.quick else found
    codes = {"nothing": "pass", "required": _REQUIRED, "ours": _OURS, **frameworks}
    programs = {name: python("-c", code) for name, code in codes.items()}
    _, cpu = in_turns(programs, plan.size(_ROUNDS, 1))
    alone = cpu.less("nothing")
    yield Value("import: CPU", alone.micros("ours").times(1e-3), "ms")
    yield Measure("import: to importing the required packages", "at most", 2, alone.ratio("ours", "required"))
    yield Measure("import: resident memory", "at most", 30, resident(_OURS) / 2**20, unit="MiB")
    yield Value("import of the required packages: resident memory", resident(_REQUIRED) / 2**20, unit="MiB")
    for name in frameworks:
        yield Measure(f"import: cheaper than {name}", "at least", 8, alone.ratio(name, "ours"))
    if lacking := [name for name in _FRAMEWORKS if name not in found]:
        yield missing("import beside other projects", *lacking)
