"""What a start does without: nobody waits for the import of what an ordinary session never uses."""

import json
import subprocess
import sys

import pytest

NEVER = ("cel_expr_python", "cryptography", "httpx", "openai", "re2", "cattrs", "click", "ssl", "asyncio", "logging")
"""Libraries: SDKs and engines that plugins use, and what only those need who wait, read YAML or type a command."""
LATER = (
    "charter.abilities", "charter.compiler", "charter.guards", "charter.instances", "charter.narrowing",
    "charter.skills", "format.loops", "format.markdown", "log.checkpoints.announcing", "log.checkpoints.coverage",
    "log.checkpoints.followers", "log.checkpoints.keeper", "log.checkpoints.keys", "log.checkpoints.log",
    "log.checkpoints.trees", "log.checkpoints.writer", "mcp.surveys", "plugins.isolation", "plugins.routing.bm25",
    "plugins.routing.routes", "programs.exchange", "programs.scripts", "serve.agents", "serve.bridging.desk",
    "serve.tools", "serve.workdocs", "workspace.activation", "workspace.declarations", "workspace.edits",
    "workspace.listings", "workspace.migrations", "workspace.personas", "workspace.servers", "workspace.trees",
    "workspace.workspace",
)  # fmt: skip
"""Rooms of the kernel: they read and compile a workspace, or serve hooks elsewhere, conditions and event loops."""


def modules(code):
    """Return the names of all modules that a new interpreter has imported after *code*."""
    told = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-I", "-c", told], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout))


@pytest.fixture(scope="module")
def kernel():
    return modules("import deedbook.kernel")


@pytest.mark.parametrize("name", NEVER)
def test_kernel_begins_without_what_few_sessions_use(kernel, name):
    assert name not in kernel


@pytest.mark.parametrize("name", LATER)
def test_kernel_begins_without_what_reads_and_compiles_a_workspace(kernel, name):
    assert f"deedbook.{name}" not in kernel


def test_rooms_that_come_later_exist():
    found = modules("import " + ", ".join(f"deedbook.{name}" for name in LATER))
    assert {f"deedbook.{name}" for name in LATER} <= found


def test_client_of_the_runtime_begins_without_the_kernel():
    found = modules("import deedbook.serve.client")
    assert {name for name in found if name.startswith("deedbook.")} == {
        "deedbook.serve", "deedbook.serve.client", "deedbook.serve.serving", "deedbook.serve.serving.addresses",
        "deedbook.format", "deedbook.format.errors", "deedbook.format.jsontext",
    }  # fmt: skip
    assert not {"orjson", "ruamel", "jsonschema_rs", "fastjsonschema", "pluggy", *NEVER} & found


def test_kernel_begins_without_any_plugin(kernel):
    assert not [name for name in kernel if name.startswith("deedbook_")]
